/* tokenring: the command line of the inference daemon. Finds the verb, parses its options, calls its handler.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tokenring/tokenring.h>

#include "tools/cli/verb.h"

static const struct verb *const verbs[] = {
    &verb_run,          &verb_embed,         &verb_status,           &verb_model_info,
    &verb_tokenize,     &verb_detokenize,    &verb_doctor,           &verb_bench_ring,
    &verb_bench_decode, &verb_bench_prefill, &verb_bench_perplexity, &verb_bench_lines,
    &verb_bench_peer,
};

enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

enum exit_code complain(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fflush(stdout);
	fputs("tokenring: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	return EXIT_FAILED;
}

enum exit_code complain_usage(const struct verb *verb, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "tokenring %s: ", verb->name);
	vfprintf(stderr, format, args);
	fprintf(stderr, "; `tokenring %s --help` shows what there is\n", verb->name);
	va_end(args);
	return EXIT_USAGE;
}

/* Whether the verb is one of two words that begin with `group`. */
static bool is_of_group(const struct verb *verb, const char *group)
{
	size_t length = strlen(group);
	return !strncmp(verb->name, group, length) && verb->name[length] == ' ';
}

static bool is_group(const char *word)
{
	for (size_t i = 0; i < N_VERBS; i++)
		if (is_of_group(verbs[i], word))
			return true;
	return false;
}

/* All verbs, or those of one group. */
static void list_verbs(FILE *file, const char *group)
{
	fputs("\nverbs:\n", file);
	for (size_t i = 0; i < N_VERBS; i++)
		if (!group || is_of_group(verbs[i], group))
			fprintf(file, "  %-16s %s\n", verbs[i]->name, verbs[i]->summary);
}

static void print_usage(FILE *file)
{
	fputs("usage: tokenring VERB [OPTION]... [ARGUMENT]...\n"
	      "       tokenring VERB --help\n"
	      "       tokenring --version\n",
	      file);
	list_verbs(file, NULL);
	fputs(
	    "\nexit codes: 0; 1 refused or failed, with a sentence on standard error; 2 wrong command line\n",
	    file);
}

static bool asks_for_help(const char *word)
{
	return !strcmp(word, "--help") || !strcmp(word, "-h");
}

static enum exit_code print_group_help(const char *group)
{
	printf("usage: tokenring %s VERB [OPTION]... [ARGUMENT]...\n"
	       "       tokenring %s VERB --help\n",
	       group, group);
	list_verbs(stdout, group);
	return EXIT_DONE;
}

static enum exit_code print_help(const struct verb *verb)
{
	size_t bytes = options_help(&verb->options, NULL, 0) + 1;
	char *text = malloc(bytes);
	if (!text)
		return complain("no memory for the help text");
	options_help(&verb->options, text, bytes);
	printf("usage: tokenring %s [OPTION]...%s%s\n%s\n\noptions:\n%s", verb->name,
	       *verb->arguments ? " " : "", verb->arguments, verb->summary, text);
	if (verb->notes)
		printf("\n%s", verb->notes);
	free(text);
	return EXIT_DONE;
}

/* How many words of argv name the verb: 0 if they do not. */
static int words_that_name(const struct verb *verb, int argc, const char **argv)
{
	const char *second = strchr(verb->name, ' ');
	size_t first_bytes = second ? (size_t)(second - verb->name) : strlen(verb->name);
	if (argc < 1 || strlen(argv[0]) != first_bytes || memcmp(argv[0], verb->name, first_bytes) != 0)
		return 0;
	if (!second)
		return 1;
	return argc > 1 && !strcmp(argv[1], second + 1) ? 2 : 0;
}

static enum exit_code run_verb(const struct verb *verb, int argc, const char **argv)
{
	char why[256];
	struct positionals arguments;
	void *options = malloc(verb->bytes);
	if (!options)
		return complain("no memory for the options");
	memcpy(options, verb->defaults, verb->bytes);
	enum exit_code code;
	if (options_parse(&verb->options, options, argc, argv, &arguments, why, sizeof why))
		code = complain_usage(verb, "%s", why);
	else if (((const struct common *)options)->help)
		code = print_help(verb);
	else if (arguments.n < verb->min_arguments)
		code = complain_usage(verb, "an argument is missing: %s", verb->arguments);
	else if (arguments.n > verb->max_arguments)
		code = complain_usage(verb, "\"%s\" is one argument too many (quote a text of several words)",
				      arguments.text[verb->max_arguments]);
	else
		code = verb->handler(options, &arguments);
	free(options);
	return code;
}

/* The first word is that of verbs of two words: say which second words there are. */
static enum exit_code unknown_verb(int argc, const char **argv)
{
	size_t found = 0;
	for (size_t i = 0; i < N_VERBS; i++)
		if (is_of_group(verbs[i], argv[0]))
			fprintf(stderr, "%s%s", found++ ? ", " : "tokenring: there are the verbs ",
				verbs[i]->name);
	if (found)
		fprintf(stderr, "%s%s\n", argc > 1 ? ", but not with " : "", argc > 1 ? argv[1] : "");
	else
		fprintf(stderr, "tokenring: there is no verb \"%s\"; `tokenring --help` lists them\n",
			argv[0]);
	return EXIT_USAGE;
}

static enum exit_code close_output(enum exit_code code)
{
	if (fflush(stdout) || ferror(stdout))
		return code ? code : complain("standard output cannot be written: %m");
	return code;
}

/* A standard stream that the caller closed would lend its number to the next socket, and the answer's text
 * would go to the daemon. What holds the number instead can neither be read nor written. */
static void hold_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH | O_CLOEXEC) < 0)
			return; /* nothing else could be opened either */
}

int main(int argc, char **argv)
{
	const char **words = (const char **)argv + 1;
	int n = argc - 1;
	hold_streams();
	if (n < 1) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	if (asks_for_help(words[0]) || !strcmp(words[0], "help")) {
		print_usage(stdout);
		return (int)close_output(EXIT_DONE);
	}
	if (!strcmp(words[0], "--version")) {
		printf("tokenring %s\n", tr_version());
		return (int)close_output(EXIT_DONE);
	}
	for (size_t i = 0; i < N_VERBS; i++) {
		int used = words_that_name(verbs[i], n, words);
		if (used)
			return (int)close_output(run_verb(verbs[i], n - used, words + used));
	}
	if (n > 1 && asks_for_help(words[1]) && is_group(words[0]))
		return (int)close_output(print_group_help(words[0]));
	return (int)unknown_verb(n, words);
}
