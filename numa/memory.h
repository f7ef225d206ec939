/* Private memory on the nodes and the pages that a plan wants, and what became of the wish.
 *
 * Pages are tried in this order, each where it does not waste more than an eighth: 1 GiB and 2 MiB pages that
 * are reserved on the nodes themselves, transparent huge pages, ordinary ones. A node comes before a page
 * size: huge pages of another node are not taken.
 *
 * Thread rule: any thread; blocks in the kernel, so not for the hot path; large regions are filled by
 * helpers, which are gone when the call returns. Sources: mbind(2), madvise(2), mmap(2),
 * Documentation/admin-guide/mm/hugetlbpage.rst. */
#ifndef TOKENRING_NUMA_MEMORY_H
#define TOKENRING_NUMA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum numa_pages { NUMA_PAGES_ORDINARY, NUMA_PAGES_TRANSPARENT, NUMA_PAGES_2M, NUMA_PAGES_1G };

struct numa_wish {
	uint64_t nodes;   /* one bit a node id; several: interleaved; 0: wherever */
	bool reserved;    /* may take reserved huge pages */
	bool transparent; /* may be made of transparent huge pages */
	bool touch;       /* every page is there before numa_map returns; reserved ones always are */
};

struct numa_region {
	char *base;
	size_t bytes; /* whole pages */
	enum numa_pages pages;
	int bind_error; /* negative errno of mbind; 0: bound, or no node was asked for */
};

/* Zeroed memory, followed by a page that may not be touched. -ENOMEM. What of the wish cannot be had is left
 * out, and the region says so. */
int numa_map(struct numa_region *ret, size_t bytes, const struct numa_wish *wish);
void numa_unmap(const struct numa_region *region);

/* Makes future pages of mapped memory come from the nodes while they have some. 0; negative errno of mbind:
 * -ENOSYS without NUMA, -EPERM in a container without CAP_SYS_NICE. */
int numa_prefer(void *base, size_t bytes, uint64_t nodes);

/* The pages of this size that `bytes` would take. 0: too much of them would be wasted. */
uint64_t numa_pages_for(size_t bytes, enum numa_pages pages);

/* Free reserved pages of 2 MiB of a node, now; 0 if that cannot be read. */
uint64_t numa_free_pages(int node);

/* "1 GiB pages" and the like. */
const char *numa_pages_name(enum numa_pages pages);

#endif
