/* Aborts when a thread that must not allocate does. Counts by interposing malloc and its kin, except under
 * sanitizers, which have their own: there it does nothing. */
#ifndef TOKENRING_TESTS_HARNESS_ALLOCATION_H
#define TOKENRING_TESTS_HARNESS_ALLOCATION_H

#include <stdbool.h>

/* For the calling thread. */
void allocation_forbid(bool forbidden);

/* Whether it does anything in this build. */
bool allocation_checked(void);

#endif
