/* An allocator of runs of units whose book-keeping lies apart from the space: the client's for request blocks
 * and reply areas in its arena, the front's for its private copies of them. Nothing of it is in shared
 * memory.
 *
 * What a unit is, the caller knows. Free runs hang in lists by size class (eight classes a power of two),
 * found through a bitmap, and merge with their neighbours when freed, so that every call takes bounded time:
 * the two-level segregated fit of Masmano, Ripoll, Crespo and Real (ECRTS 2004). Thread rule: one thread.
 * arena_init allocates; nothing else does. */
#ifndef TOKENRING_SHM_ARENA_H
#define TOKENRING_SHM_ARENA_H

#include <stdint.h>

enum { ARENA_CLASSES = 240, ARENA_NONE = UINT32_MAX };

struct arena_run;

struct arena {
	struct arena_run *runs; /* (n_units + 1) */
	uint32_t n_units;
	uint64_t present[(ARENA_CLASSES + 63) / 64]; /* bit c: heads[c] is not empty */
	uint32_t heads[ARENA_CLASSES];
};

/* `n_units` free ones, below 2^31. -ENOMEM; -EINVAL. */
int arena_init(struct arena *arena, uint64_t n_units);
void arena_destroy(struct arena *arena);

/* The first unit of `n_units` (at least 1) free ones, or ARENA_NONE. */
uint32_t arena_take(struct arena *arena, uint32_t n_units);

/* Gives back what arena_take returned. */
void arena_give(struct arena *arena, uint32_t first);

/* The longest free run, in units: walks the lists, for tests. */
uint32_t arena_longest(const struct arena *arena);

#endif
