#include "daemon/engine/extents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int extents_init(struct extents *extents, uint64_t offset, uint64_t bytes, uint64_t unit, uint32_t ranges)
{
	struct extent *free_ranges;

	if (unit == 0 || (unit & (unit - 1)) || offset % unit || bytes % unit || bytes == 0 ||
	    ranges > UINT32_MAX - 1)
		return -EINVAL;
	/* n ranges in use leave at most n + 1 gaps. */
	free_ranges = malloc(((size_t)ranges + 1) * sizeof *free_ranges);
	if (!free_ranges)
		return -ENOMEM;
	free_ranges[0] = (struct extent){offset, bytes};
	*extents = (struct extents){free_ranges, 1, ranges + 1, unit};
	return 0;
}

void extents_destroy(struct extents *extents)
{
	free(extents->free_ranges);
	*extents = (struct extents){0};
}

static uint64_t round_up(const struct extents *extents, uint64_t bytes)
{
	return (bytes + extents->unit - 1) & ~(extents->unit - 1);
}

static void remove_at(struct extents *extents, uint32_t at)
{
	extents->n_free--;
	memmove(&extents->free_ranges[at], &extents->free_ranges[at + 1],
		(extents->n_free - at) * sizeof(struct extent));
}

bool extents_alloc(struct extents *extents, uint64_t bytes, uint64_t *ret_offset)
{
	uint64_t size = round_up(extents, bytes);

	if (size == 0)
		return false;
	for (uint32_t i = 0; i < extents->n_free; i++) {
		struct extent *range = &extents->free_ranges[i];

		if (range->bytes < size)
			continue;
		*ret_offset = range->offset;
		range->offset += size;
		range->bytes -= size;
		if (range->bytes == 0)
			remove_at(extents, i);
		return true;
	}
	return false;
}

static uint32_t first_above(const struct extents *extents, uint64_t offset)
{
	uint32_t low = 0, high = extents->n_free;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (extents->free_ranges[middle].offset > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

void extents_free(struct extents *extents, uint64_t offset, uint64_t bytes)
{
	uint64_t size = round_up(extents, bytes);
	uint32_t at = first_above(extents, offset);
	struct extent *ranges = extents->free_ranges;
	bool joins_before = at > 0 && ranges[at - 1].offset + ranges[at - 1].bytes == offset;
	bool joins_after = at < extents->n_free && offset + size == ranges[at].offset;

	if (joins_before) {
		ranges[at - 1].bytes += size;
		if (joins_after) {
			ranges[at - 1].bytes += ranges[at].bytes;
			remove_at(extents, at);
		}
	} else if (joins_after) {
		ranges[at].offset = offset;
		ranges[at].bytes += size;
	} else if (extents->n_free < extents->capacity) {
		memmove(&ranges[at + 1], &ranges[at], (extents->n_free - at) * sizeof(struct extent));
		ranges[at] = (struct extent){offset, size};
		extents->n_free++;
	}
}
