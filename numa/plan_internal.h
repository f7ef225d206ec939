/* A plan while it is made. */
#ifndef TOKENRING_NUMA_PLAN_INTERNAL_H
#define TOKENRING_NUMA_PLAN_INTERNAL_H

#include "numa/plan.h"

struct planning {
	const struct plan_request *request;
	const struct topology *topology;
	struct plan *plan;
	bool many;                         /* cores enough to leave one to CPU 0's duties */
	int start_node;                    /* where the first thread goes */
	char start_why[PLAN_WHY_BYTES];    /* why there; empty: there is but one node */
	uint32_t round[TOPOLOGY_CPUS_MAX]; /* 0: fast cores, 1: slow ones, from 2 on their further siblings */
	bool taken[TOPOLOGY_CPUS_MAX];     /* by a thread, or named by an option */
};

/* The CPU of this id, or NULL: the process may not use it. */
const struct topology_cpu *plan_cpu(const struct planning *, int id);

/* How far b is from a; 0: the same node, and 10 more than any real one if it is not known. */
uint32_t plan_distance(const struct planning *, int a, int b);

/* Appends a line; -1 as in struct plan_thread. */
void plan_say(struct planning *, const char *name, int cpu, int node, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Index of the best CPU for another thread that computes; UINT32_MAX: all are taken. */
uint32_t plan_next_cpu(const struct planning *);

/* plan_front.c: whether the front has a thread of its own; then its CPU, between the engine and the workers
 * or after them. */
void plan_front_choose(struct planning *);
void plan_front_early(struct planning *);
void plan_front_late(struct planning *);

/* plan_memory.c: memory, loader and readers, after all other threads. */
void plan_memories(struct planning *);

#endif
