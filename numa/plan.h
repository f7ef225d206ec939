/* Which thread runs on which CPU, which memory lies on which node, and why, in a sentence each.
 *
 * Rules: cores before SMT siblings, fast cores before slow ones; a node before the next, beginning with the
 * accelerator's, else with the one of most memory that has room for all threads; from PLAN_MANY_CORES cores
 * on, the front has a core of its own and that of CPU 0 is used last, because interrupts and other programs
 * like it; reserved cores are those that would be used last; weights and KV where the threads are that read
 * them, interleaved if those are on several nodes; channels at the front's; readers near the drive.
 *
 * Thread rule: a pure function. */
#ifndef TOKENRING_NUMA_PLAN_H
#define TOKENRING_NUMA_PLAN_H

#include <stddef.h>

#include "numa/topology.h"

enum { PLAN_THREADS_MAX = 256, PLAN_WHY_BYTES = 192, PLAN_MANY_CORES = 8 };

enum plan_front { PLAN_FRONT_AUTO, PLAN_FRONT_OWN, PLAN_FRONT_SHARED };

struct plan_request {
	uint32_t threads;          /* that compute; 0: the planner's choice */
	uint32_t reserve_cores;    /* that neither its threads nor the front's own use */
	int engine_cpu, front_cpu; /* -1: the planner's choice */
	const int *worker_cpus;    /* (n_worker_cpus) */
	uint32_t n_worker_cpus;    /* 0: the planner's choice */
	enum plan_front front;     /* auto: own if a CPU is spare */
	int memory_node;           /* of weights and KV; -1: the planner's choice */
	int accelerator_node;      /* -1: none computes, or its node is not known */
	int storage_node;          /* of the drive with the weights; -1: not known */
	char storage_address[16];  /* its PCI address; empty: not known */
};

struct plan_thread {
	char name[16]; /* as the kernel shows it: engine, worker, front, loader, reader */
	int cpu;       /* -1: not pinned to one */
	int node;      /* of the CPU; without one: any CPU of this node; -1: any at all */
	char why[PLAN_WHY_BYTES];
};

enum plan_memory_kind { PLAN_WEIGHTS, PLAN_KV, PLAN_SCRATCH, PLAN_CHANNELS, PLAN_MEMORIES };

struct plan_memory {
	uint64_t nodes; /* one bit a node id, several: interleaved; 0: wherever */
	char why[PLAN_WHY_BYTES];
};

struct plan {
	uint32_t threads;             /* that compute, the engine's included */
	int cpus[PLAN_THREADS_MAX];   /* (threads) of each, the engine's first; -1: not pinned */
	bool separate;                /* the front has a thread of its own */
	int front_cpu;                /* -1: not pinned */
	int loader_node;              /* the loading thread runs on its CPUs; -1: on any */
	int reader_node;              /* so do the readers of weights; -1 */
	char warning[PLAN_WHY_BYTES]; /* a wish that cannot be had, and what to do; empty: none */
	uint32_t n_nodes;             /* of the machine */
	uint32_t n_lines;
	struct plan_thread
	    line[PLAN_THREADS_MAX + 3]; /* (n_lines) computing threads, front, loader, readers */
	struct plan_memory memory[PLAN_MEMORIES];
};

/* "weights", "kv", "scratch", "channels" */
const char *plan_memory_name(enum plan_memory_kind kind);

/* -EINVAL: an option names a CPU or a node that the process may not use, or fewer CPUs than threads; with a
 * sentence. *ret is large: not for a stack. */
int plan_make(struct plan *ret, const struct plan_request *, const struct topology *, char *why,
	      size_t why_bytes);

#endif
