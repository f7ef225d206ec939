/* The verbs of the command line: each file of a verb exports one `struct verb`; main.c lists them. */
#ifndef TOKENRING_TOOLS_CLI_VERB_H
#define TOKENRING_TOOLS_CLI_VERB_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/cli/options.h"

enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1, /* refused or failed; a sentence was written to standard error */
	EXIT_USAGE = 2,
};

/* The options of every verb: the first member of its struct, the first rows of its table. */
struct common {
	const char *socket; /* NULL: what tr_open does with NULL */
	bool help;
};

#define COMMON_OPTIONS                                                                               \
	{"socket", 0, OPTION_TEXT, offsetof(struct common, socket),                                  \
	 "PATH",   0, 0,           "the daemon's socket; else TOKENRING_SOCKET, else the system's"}, \
	    {"help", 'h', OPTION_FLAG, offsetof(struct common, help), NULL, 0, 0, "show this help"}

struct verb {
	const char *name;      /* one word, or two as in "bench ring" */
	const char *arguments; /* of the usage line */
	const char *summary;   /* one line */
	const char *notes;     /* paragraphs below the options; NULL: none */
	struct option_table options;
	const void *defaults; /* (bytes) what the options struct starts from */
	size_t bytes;
	size_t min_arguments, max_arguments;
	/* Returns an exit code. `options` has the verb's own type. */
	enum exit_code (*handler)(const void *options, const struct positionals *arguments);
};

extern const struct verb verb_run, verb_embed, verb_status, verb_model_info, verb_tokenize, verb_detokenize,
    verb_doctor, verb_bench_ring, verb_bench_decode, verb_bench_prefill, verb_bench_perplexity,
    verb_bench_lines, verb_bench_peer;

/* Writes "tokenring: ", the sentence and a newline to standard error; returns EXIT_FAILED. */
__attribute__((format(printf, 1, 2))) enum exit_code complain(const char *format, ...);

/* The same for a wrong command line; names the verb's help; returns EXIT_USAGE. */
__attribute__((format(printf, 2, 3))) enum exit_code complain_usage(const struct verb *verb,
								    const char *format, ...);

#endif
