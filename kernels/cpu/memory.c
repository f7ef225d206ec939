#include "kernels/cpu/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

static size_t mapped_bytes(size_t bytes)
{
	size_t unit = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 4096;
	return (bytes + unit - 1) / unit * unit;
}

/* Maps more than asked and gives the ends back, because only aligned ranges become huge pages. */
static void *map_aligned(size_t bytes)
{
	size_t slack = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
	char *map = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	if (!slack)
		return map;
	size_t before = (HUGE_PAGE_BYTES - (uintptr_t)map % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
	if (before)
		munmap(map, before);
	if (slack - before)
		munmap(map + before + bytes, slack - before);
	return map + before;
}

void *memory_map(size_t bytes, bool touch)
{
	size_t mapped = mapped_bytes(bytes ? bytes : 1);
	char *memory = map_aligned(mapped);

	if (!memory)
		return NULL;
	madvise(memory, mapped, MADV_HUGEPAGE); /* a wish: ordinary pages do as well */
	if (touch && madvise(memory, mapped, MADV_POPULATE_WRITE) < 0) {
		for (size_t i = 0; i < mapped; i += 4096) /* before Linux 5.14 */
			((volatile char *)memory)[i] = 0;
	}
	return memory;
}

void memory_unmap(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, mapped_bytes(bytes ? bytes : 1));
}

static void *map_own(void *context, enum backend_memory_use use, size_t bytes, bool touch, char *why,
		     size_t why_bytes)
{
	void *memory = memory_map(bytes, touch);

	if (!memory)
		snprintf(
		    why, why_bytes,
		    "Cannot map %zu bytes: lower the context, the number of KV blocks or the rows a step.",
		    bytes);
	return memory;
}

static void unmap_own(void *context, void *memory, size_t bytes)
{
	memory_unmap(memory, bytes);
}

const struct backend_memory memory_own = {map_own, unmap_own, NULL};
