/* Chat formats by name: how a turn of the user becomes the prompt of a model.
 *
 * Only the marks of a format are read as special tokens; what the user typed never is, so that a prompt
 * cannot forge a turn. */
#ifndef TOKENRING_TOOLS_CLI_CHAT_H
#define TOKENRING_TOOLS_CLI_CHAT_H

#include <stdbool.h>
#include <stddef.h>

struct chat_format {
	const char *name;
	const char *models;       /* matched in the model's name, in lower case, words separated by spaces */
	const char *architecture; /* matched if no name does; NULL: never */
	const char *default_system; /* NULL: none */
	const char *before_system, *after_system, *before_user, *after_user;
	const char *end_of_turn; /* one special token; ends the answer */
};

struct chat_part {
	const char *text;
	bool marks; /* special tokens count */
};

enum { CHAT_PARTS_MAX = 8 };

/* By name; NULL if there is none. */
const struct chat_format *chat_find(const char *name);

/* By what the daemon says of the model; NULL if none is known for it. */
const struct chat_format *chat_for_model(const char *model, const char *architecture);

/* The names, separated by ", "; static. */
const char *chat_names(void);

/* The parts of a prompt in order; `system` NULL: the format's default. parts: (CHAT_PARTS_MAX); they point
 * into the arguments. Returns how many. */
size_t chat_prompt(const struct chat_format *format, const char *system, const char *user,
		   struct chat_part *parts);

#endif
