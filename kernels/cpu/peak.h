/* The floors that decode and prefill are measured against: what this machine's memory and multipliers give.
 *
 * Thread rule: call from the thread that would run steps, pinned as it would be; blocks for about a quarter
 * of a second. cpus: as in struct backend_config. */
#ifndef TOKENRING_KERNELS_CPU_PEAK_H
#define TOKENRING_KERNELS_CPU_PEAK_H

#include <stddef.h>
#include <stdint.h>

/* Bytes a second when `threads` threads each read their slice of `bytes` in order, best of the passes.
 * -EINVAL, -ENOMEM, -EAGAIN. */
int cpu_peak_read(size_t bytes, uint32_t threads, const int *cpus, double *ret_bytes_per_s);

/* Integer operations (a multiply and an add are two) a second on registers, with the dot product of
 * instruction set `isa` ("auto" for the best). -ENODEV, -EINVAL, -EAGAIN. */
int cpu_peak_int8(const char *isa, uint32_t threads, const int *cpus, double *ret_ops_per_s);

#endif
