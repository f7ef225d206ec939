/* Private memory of a backend: zeroed, 64-byte aligned or better, huge pages where the kernel gives them.
 *
 * Thread rule: any thread. Nothing here runs inside a step. */
#ifndef TOKENRING_KERNELS_CPU_MEMORY_H
#define TOKENRING_KERNELS_CPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/backend.h"

/* `touch`: every page is mapped before this returns, so that no step faults. NULL: no memory. */
void *memory_map(size_t bytes, bool touch);
void memory_unmap(void *, size_t bytes);

/* The same for programs, where the daemon brings no memory. */
extern const struct backend_memory memory_own;

#endif
