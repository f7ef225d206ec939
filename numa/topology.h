/* Which CPUs the process may use, how they share cores and nodes, and which of them threads should take.
 *
 * Thread rule: any thread; reads files of /proc and /sys, so not for the hot path. Sources: Linux
 * Documentation/admin-guide/cputopology.rst, cgroup-v2.rst (cpu.max), sched-bwc.rst (cgroup v1). */
#ifndef TOKENRING_NUMA_TOPOLOGY_H
#define TOKENRING_NUMA_TOPOLOGY_H

#include <stdint.h>

enum { TOPOLOGY_CPUS_MAX = 1024 };

struct topology_cpu {
	int id;
	int core; /* lowest CPU id of its SMT siblings */
	int node; /* 0 where the kernel names none */
};

struct topology {
	uint32_t n_cpus, n_cores, n_nodes; /* of those that the process may use */
	double quota_cpus;                 /* CPU time a second by the cgroups' limits; 0: no limit */
	struct topology_cpu cpu[TOPOLOGY_CPUS_MAX]; /* (n_cpus) ascending by id */
};

/* `root`: "" for this machine, or a folder that stands for / (tests). -ENOENT: no list of allowed CPUs;
 * -E2BIG: more than TOPOLOGY_CPUS_MAX. */
int topology_read(const char *root, struct topology *ret);

/* How many computing threads serve best: one a core, and no more than the quota pays for in full, because a
 * thread that is throttled makes all others wait at the next barrier. At least 1. */
uint32_t topology_threads(const struct topology *);

/* Chooses a CPU for each of `threads` computing threads, entry 0 for the engine: one a core before siblings,
 * one node before the next, starting from the node with the most cores. More threads than CPUs: the rest are
 * -1, not pinned. */
void topology_place(const struct topology *, uint32_t threads, int *ret_cpus);

#endif
