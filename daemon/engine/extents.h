/* An allocator of ranges: offsets within a space, first fit, neighbours merged. Its book-keeping grows with
 * the ranges in use, not with the space: the front's private memory of request blocks holds few, large
 * ranges.
 *
 * Thread rule: one thread at a time. No allocation after extents_init; alloc and free take time linear in the
 * number of free ranges, which is at most one more than the ranges in use. */
#ifndef TOKENRING_DAEMON_ENGINE_EXTENTS_H
#define TOKENRING_DAEMON_ENGINE_EXTENTS_H

#include <stdbool.h>
#include <stdint.h>

struct extent {
	uint64_t offset, bytes;
};

struct extents {
	struct extent *free_ranges; /* (n_free) ascending, never adjacent */
	uint32_t n_free, capacity;
	uint64_t unit; /* offsets and sizes are multiples of it */
};

/* Manages [offset, offset + bytes), both multiples of `unit` (a power of two), for at most `ranges` ranges in
 * use at once. -ENOMEM; -EINVAL. */
int extents_init(struct extents *extents, uint64_t offset, uint64_t bytes, uint64_t unit, uint32_t ranges);

/* Safe on zeroed memory. */
void extents_destroy(struct extents *extents);

/* Takes `bytes` (more than 0; rounded up to the unit). False: no range of that size is free. */
bool extents_alloc(struct extents *extents, uint64_t bytes, uint64_t *ret_offset);

/* Gives back what extents_alloc gave, with the same number of bytes. */
void extents_free(struct extents *extents, uint64_t offset, uint64_t bytes);

#endif
