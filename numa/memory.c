#include "numa/memory.h"

#include <linux/mempolicy.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	PAGE_BYTES = 4096,
	HUGE_PAGE_BYTES = 2 << 20,
	NODES_MAX = 1024,
	WORD_BITS = 8 * sizeof(unsigned long)
};

static size_t unit_of(size_t bytes)
{
	return bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES;
}

static size_t round_up(size_t bytes)
{
	size_t unit = unit_of(bytes);
	return bytes ? (bytes + unit - 1) / unit * unit : unit;
}

static void prefer_node(void *memory, size_t bytes, int node)
{
	unsigned long mask[NODES_MAX / WORD_BITS] = {0};

	if (node < 0 || node >= NODES_MAX)
		return;
	mask[node / WORD_BITS] = 1ul << node % WORD_BITS;
	syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, mask, NODES_MAX, 0);
}

void *numa_map(size_t bytes, int node)
{
	size_t mapped = round_up(bytes), unit = unit_of(bytes);
	char *map = mmap(NULL, mapped + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	/* The ends go back: only aligned ranges become huge pages. */
	size_t before = (unit - (uintptr_t)map % unit) % unit;
	if (before)
		munmap(map, before);
	munmap(map + before + mapped, unit - before);
	madvise(map + before, mapped, MADV_HUGEPAGE);
	prefer_node(map + before, mapped, node);
	return map + before;
}

void numa_unmap(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, round_up(bytes));
}
