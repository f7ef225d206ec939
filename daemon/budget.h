/* How much memory this process may use, and what the daemon asks for.
 *
 * Thread rule: pure but for reading /proc and /sys; blocks on the file system; any thread. */
#ifndef TOKENRING_DAEMON_BUDGET_H
#define TOKENRING_DAEMON_BUDGET_H

#include <stddef.h>
#include <stdint.h>

struct budget {
	uint64_t bytes;
	char source[32]; /* "cgroup limit", "MemAvailable", "option memory_limit": what sets the bound */
};

/* The smallest of MemAvailable, the limits of the process's own memory cgroup and all above it (version 2 and
 * version 1), and memory_limit if that is not 0. `root` stands before /proc and /sys ("" outside tests).
 * -EIO: neither can be read; with a sentence. */
int budget_read(const char *root, uint64_t memory_limit, struct budget *ret, char *why, size_t why_bytes);

/* What the daemon wants to hold, in bytes. */
struct demand {
	uint64_t weights, kv, scratch, channels;
};

static inline uint64_t demand_total(const struct demand *demand)
{
	return demand->weights + demand->kv + demand->scratch + demand->channels;
}

/* 0, or -ENOMEM with a sentence that has all the numbers and the remedy. */
int budget_check(const struct budget *, const struct demand *, char *why, size_t why_bytes);

#endif
