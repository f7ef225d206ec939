/* Which instruction sets this machine and its operating system can run.
 *
 * Thread rule: any thread; no state. */
#ifndef TOKENRING_KERNELS_CPU_DETECT_H
#define TOKENRING_KERNELS_CPU_DETECT_H

#include <stddef.h>

#include "kernels/cpu/isa.h"

/* `name`: "auto" or NULL (the best that runs here), "generic", "avx2", "avx512vnni". -EINVAL: no such name;
 * -ENODEV: not on this machine; with a sentence. */
int detect_isa(const char *name, const struct cpu_isa **ret, char *why, size_t why_bytes);

#endif
