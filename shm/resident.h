/* Memory whose pages are there before it is used: a page fault on the path of a request is a system call by
 * another name. */
#ifndef TOKENRING_SHM_RESIDENT_H
#define TOKENRING_SHM_RESIDENT_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Like calloc, for free; blocks in the kernel. */
static inline void *resident_calloc(size_t n, size_t bytes)
{
	enum { PAGE_BYTES = 4096 };
	char *memory = calloc(n, bytes);
	uintptr_t from = (uintptr_t)memory / PAGE_BYTES * PAGE_BYTES;
	size_t all = n * bytes;

	if (!memory || madvise((void *)from, (uintptr_t)memory + all - from, MADV_POPULATE_WRITE) == 0)
		return memory;
	for (size_t i = 0; i < all; i += PAGE_BYTES) /* before Linux 5.14 */
		((volatile char *)memory)[i] = 0;
	if (all > 0)
		((volatile char *)memory)[all - 1] = 0;
	return memory;
}

/* The same for more of the calling thread's stack than work on requests takes. */
static inline void resident_stack(void)
{
	volatile char stack[96 << 10];

	for (size_t i = 0; i < sizeof stack; i += 1024)
		stack[i] = 0;
}

#endif
