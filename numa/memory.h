/* Advice to the kernel about private memory that the caller has mapped.
 *
 * Thread rule: any thread; system calls, so not for the hot path. Sources: madvise(2), mbind(2). */
#ifndef TOKENRING_NUMA_MEMORY_H
#define TOKENRING_NUMA_MEMORY_H

#include <stddef.h>

/* Maps `bytes` of zeroed private memory, aligned to and advised for huge pages from 2 MiB on, preferably from
 * `node` (-1: wherever). NULL with errno: no memory. Wishes that the kernel refuses are dropped: ordinary
 * pages of any node do as well. */
void *numa_map(size_t bytes, int node);
void numa_unmap(void *, size_t bytes);

#endif
