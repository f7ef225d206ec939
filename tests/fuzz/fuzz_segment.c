/* A header that another process wrote: whatever segment_check accepts lies within the memory, without
 * overlap. */
#include <stdlib.h>
#include <string.h>

#include "shm/segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct segment_layout layout;
	uint64_t bytes, sq_end, cq_end;
	char why[64];

	if (size < sizeof layout)
		return 0;
	memcpy(&layout, data, sizeof layout);
	bytes = layout.bytes;
	if (segment_check(&layout, bytes, why, sizeof why) < 0)
		return 0;
	/* The last sum is judged in 128 bits, in which nothing wraps. */
	sq_end = layout.sq_off + 64ull * layout.sq_slots;
	cq_end = layout.cq_off + 64ull * layout.cq_slots;
	if (layout.sq_off < 4096 || layout.cq_off < sq_end || layout.arena_off < cq_end ||
	    (unsigned __int128)layout.arena_off + layout.arena_bytes > bytes || layout.max_inflight == 0 ||
	    2ull * layout.max_inflight > layout.cq_slots ||
	    (layout.sq_off | layout.cq_off | layout.arena_off) % 64)
		abort();
	return 0;
}
