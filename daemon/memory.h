/* The memory that a model runs in: on the nodes of the plan, on the largest pages that the options allow, and
 * a book of what came of that.
 *
 * Thread rule: memory_init and memory_done by main; the backend's calls come from the loading thread;
 * memory_ranges and memory_list from any. */
#ifndef TOKENRING_DAEMON_MEMORY_H
#define TOKENRING_DAEMON_MEMORY_H

#include <pthread.h>

#include "kernels/backend.h"
#include "numa/memory.h"
#include "numa/observe.h"
#include "numa/plan.h"

enum { MEMORY_REGIONS_MAX = 32, MEMORY_NOTE_BYTES = 320 };

struct memory_entry {
	enum plan_memory_kind kind;
	size_t asked; /* bytes */
	struct numa_region region;
	uint64_t missing_pages;       /* of 2 MiB, that would have held it */
	bool fell_short;              /* not bound, or smaller pages than option huge_pages prefers */
	char note[MEMORY_NOTE_BYTES]; /* the remedy if it is not bound; else empty */
};

struct memory {
	struct backend_memory hooks; /* for backend_config */
	const struct plan *plan;
	const struct topology *topology;
	bool reserved, transparent, required, wanted; /* of option huge_pages */
	pthread_mutex_t lock;                         /* guards what follows */
	uint32_t n;
	struct memory_entry entry[MEMORY_REGIONS_MAX];
};

/* `huge_pages`: the option's value. `plan` and `topology` outlive the memory. */
void memory_init(struct memory *, const struct plan *plan, const struct topology *topology,
		 const char *huge_pages);
void memory_done(struct memory *);

/* Bytes of reserved huge pages that memory of this size would take now instead of free memory. */
uint64_t memory_reserved_for(const struct memory *, enum plan_memory_kind kind, size_t bytes);

/* The command that would give the model's memory the huge pages that it lacks; false: it lacks none. */
bool memory_advice(struct memory *, char *text, size_t bytes);

/* A copy of the entries; at most MEMORY_REGIONS_MAX. Returns how many. */
uint32_t memory_list(struct memory *, struct memory_entry *ret);

#endif
