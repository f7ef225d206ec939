/* What the kernel says about where things are: the other half of a plan.
 *
 * Thread rule: any thread; walks page tables, so neither for the hot path nor many times a second. Sources:
 * proc(5) (task, numa_maps, smaps), Documentation/admin-guide/numastat.rst. */
#ifndef TOKENRING_NUMA_OBSERVE_H
#define TOKENRING_NUMA_OBSERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "numa/parse.h"
#include "numa/topology.h"

/* Memory whose pages are counted together with others of the same `slot`. */
struct observe_range {
	uintptr_t base;
	size_t bytes;
	uint32_t slot;
};

struct observed_memory {
	uint64_t on_node[TOPOLOGY_NODES_MAX]; /* bytes that are there */
	uint64_t bytes;                       /* of all nodes */
	uint64_t huge_bytes;                  /* of them in huge pages, reserved or transparent */
	uint64_t page_bytes; /* the largest page size of the mappings; transparent ones aside */
};

/* Fills ret[slot] for each slot of the ranges, which must begin where their mappings do. `process`:
 * "/proc/self", or a folder that stands for it (tests). A kernel without NUMA has no numa_maps: all is on
 * node 0 then. Negative errno: smaps cannot be read. */
int observe_memory(const char *process, const struct observe_range *ranges, size_t n,
		   struct observed_memory *ret, uint32_t n_slots);

struct observed_thread {
	int id;
	char name[16];
	int last_cpu; /* that it ran on */
	struct id_set allowed;
	bool taken; /* the caller's */
};

/* The threads of a process, at most `max`; returns how many, or a negative errno. */
int observe_threads(const char *process, struct observed_thread *ret, unsigned max);

#endif
