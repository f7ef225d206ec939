/* Command line options as tables: one row an option, one parser and one help text for all verbs.
 *
 * A verb keeps its options in a struct; each row names a field by its offset. Texts point into argv. */
#ifndef TOKENRING_TOOLS_CLI_OPTIONS_H
#define TOKENRING_TOOLS_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

enum { OPTIONS_LIST_MAX = 16 };

enum option_type {
	OPTION_FLAG,   /* bool field; takes no value */
	OPTION_NUMBER, /* uint64_t field, decimal, bounded by min and max */
	OPTION_REAL,   /* double field, bounded by min and max */
	OPTION_TEXT,   /* const char * field */
	OPTION_LIST,   /* struct option_list field; may be given OPTIONS_LIST_MAX times */
};

struct option_list {
	size_t n;
	const char *text[OPTIONS_LIST_MAX];
};

struct option_row {
	const char *name; /* without the dashes */
	char letter;      /* 0: none */
	enum option_type type;
	size_t offset;     /* of the field in the verb's struct */
	const char *value; /* what the help calls the value: "N"; NULL for a flag */
	double min, max;   /* numbers and reals */
	const char *help;
};

struct option_table {
	const struct option_row *rows;
	size_t n;
};

/* What is left when the options are taken out. */
struct positionals {
	size_t n;
	const char *const *text; /* (n) points into argv */
};

/* Parses argv[0..argc) into `fields` by the rows of `table`. Positionals are moved to the front of argv, in
 * order; "--" ends the options and "-" is a positional. Returns 0, or -EINVAL with a sentence in `why`;
 * `fields` may then be half filled. */
int options_parse(const struct option_table *table, void *fields, int argc, const char **argv,
		  struct positionals *ret_positionals, char *why, size_t why_bytes);

/* Writes the help lines of the rows, NUL-terminated, cut at `bytes`; returns the length they want. */
size_t options_help(const struct option_table *table, char *text, size_t bytes);

#endif
