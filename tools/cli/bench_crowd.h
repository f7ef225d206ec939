/* Idle channels of a process of their own. */
#ifndef TOKENRING_TOOLS_CLI_BENCH_CROWD_H
#define TOKENRING_TOOLS_CLI_BENCH_CROWD_H

#include "tools/cli/bench_ring.h"

/* Starts a process that opens n channels and sleeps. Negative errno: that of the first tr_open that failed.
 */
int crowd_open(const struct ring *ring, unsigned n, pid_t *ret);

/* Ends it and gives the daemon time to take the channels apart. 0 is allowed. */
void crowd_close(pid_t crowd);

/* Says loudly that rows are missing. */
void crowd_note_missing(const struct ring *ring, unsigned n, int error);

#endif
