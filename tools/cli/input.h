/* Text from the command line, from a file or from standard input. */
#ifndef TOKENRING_TOOLS_CLI_INPUT_H
#define TOKENRING_TOOLS_CLI_INPUT_H

#include <stddef.h>

#include "tools/cli/verb.h"

struct input {
	char *text; /* NUL-terminated; freed by input_free */
	size_t bytes;
};

/* The text of the argument; standard input if it is NULL or "-". At most 64 MiB. Complains on failure. */
enum exit_code input_read(const char *argument, struct input *ret);
/* The text of a file; standard input if the path is "-". At most 64 MiB. Complains on failure. */
enum exit_code input_read_file(const char *path, struct input *ret);
void input_free(struct input *input);

#endif
