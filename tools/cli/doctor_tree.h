/* Files below the root of a doctor_host. Each call reads its file anew; a file that is missing or empty is
 * "false". */
#ifndef TOKENRING_TOOLS_CLI_DOCTOR_TREE_H
#define TOKENRING_TOOLS_CLI_DOCTOR_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/cli/doctor.h"

enum { DOCTOR_TEXT_BYTES = 8192, LIST_ID_MAX = 8191 };

/* The file's text without white space at its end, cut at the buffer. The path begins with "/". */
__attribute__((format(printf, 3, 4))) bool tree_text(const struct doctor_host *, char text[DOCTOR_TEXT_BYTES],
						     const char *format, ...);

/* A decimal number at the file's beginning. */
__attribute__((format(printf, 3, 4))) bool tree_number(const struct doctor_host *, int64_t *ret,
						       const char *format, ...);

/* The next range of a list such as "0-3,8"; moves *at; false at the end, and where it is no list. */
bool list_next(const char **at, long *ret_first, long *ret_last);
bool list_has(const char *list, long id);
long list_count(const char *list);

/* Whether each member of `inner` is in `outer`. */
bool list_within(const char *inner, const char *outer);

/* The CPUs that are online, as a list; "0" where the kernel does not say. */
void tree_online(const struct doctor_host *, char text[DOCTOR_TEXT_BYTES]);

/* The NUMA nodes that are online, likewise. */
void tree_nodes(const struct doctor_host *, char text[DOCTOR_TEXT_BYTES]);

/* Whether a hypervisor runs this machine. */
bool tree_is_virtual(const struct doctor_host *);

/* The word in brackets: "madvise" of "always [madvise] never". "" if there is none. */
void chosen_word(const char *text, char *ret, size_t bytes);

#endif
