/* Which CPUs the daemon's threads run on.
 *
 * Thread rule: reads the calling thread's affinity; call it before any thread is pinned. */
#ifndef TOKENRING_DAEMON_PLACEMENT_H
#define TOKENRING_DAEMON_PLACEMENT_H

#include <stdbool.h>

#include "daemon/control/config.h"
#include "kernels/backend.h"

struct placement {
	uint32_t threads;           /* that compute, the engine's included */
	int cpus[BACKEND_CPUS_MAX]; /* (threads) of each, the engine's first; -1: not pinned */
	bool separate;              /* the front has a thread of its own: a CPU is spare */
	int front_cpu;              /* -1: not pinned */
	uint32_t allowed;           /* CPUs that the process may use */
};

/* Fills in what the options leave to the daemon. -EINVAL: more threads than CPUs are listed, or a CPU that is
 * not allowed, with a sentence. */
int placement_choose(struct placement *ret, const struct config *, char *why, size_t why_bytes);

#endif
