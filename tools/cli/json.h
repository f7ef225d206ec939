/* Just enough JSON for the daemon's status: find a number or a text by its key, and print an object as lines.
 * Pure functions of a NUL-terminated text. */
#ifndef TOKENRING_TOOLS_CLI_JSON_H
#define TOKENRING_TOOLS_CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The first value under `key`, at any depth. False, with *ret untouched, if there is none of that type. */
bool json_number(const char *json, const char *key, double *ret);
bool json_text(const char *json, const char *key, char *ret, size_t bytes);

/* Calls `each` with the text of every element of the array under `key`, NUL-terminated and valid during the
 * call. False: there is no such array, or no memory. */
bool json_elements(const char *json, const char *key, void (*each)(void *context, const char *element),
		   void *context);

/* Writes `text` as a JSON string, quotes included. */
void json_print_text(FILE *file, const char *text);

/* Prints each value on a line of its own as "outer.inner  value". Returns false if the text is not JSON; what
 * came before the fault is printed. */
bool json_print_lines(FILE *file, const char *json);

#endif
