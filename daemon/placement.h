/* Which CPUs the daemon's threads run on.
 *
 * Thread rule: a pure function. */
#ifndef TOKENRING_DAEMON_PLACEMENT_H
#define TOKENRING_DAEMON_PLACEMENT_H

#include <stdbool.h>

#include "daemon/control/config.h"
#include "kernels/backend.h"
#include "numa/topology.h"

struct placement {
	uint32_t threads;           /* that compute, the engine's included */
	int cpus[BACKEND_CPUS_MAX]; /* (threads) of each, the engine's first; -1: not pinned */
	bool separate;              /* the front has a thread of its own: a CPU is spare */
	int front_cpu;              /* -1: not pinned */
};

/* Fills in what the options leave to the daemon. -EINVAL: more threads than CPUs are listed, or a CPU that is
 * not allowed, with a sentence. */
int placement_choose(struct placement *ret, const struct config *, const struct topology *, char *why,
		     size_t why_bytes);

#endif
