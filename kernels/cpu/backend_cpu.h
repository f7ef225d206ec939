/* The functions behind backend_cpu_ops that deal with programs (program.c). Private to kernels/cpu. */
#ifndef TOKENRING_KERNELS_CPU_BACKEND_CPU_H
#define TOKENRING_KERNELS_CPU_BACKEND_CPU_H

#include "kernels/backend_ops.h"

int cpu_program_measure(struct backend *, const struct tape *, const struct tape_limits *,
			struct program_bytes *ret);
int cpu_program_compile(struct backend *, const struct tape *, const struct tape_limits *,
			struct program **ret, char *why, size_t why_bytes);
void cpu_program_close(struct program *);
int cpu_program_load(struct program *, uint32_t weight, uint32_t row, uint32_t rows, const void *raw);
int cpu_program_step(struct program *, const struct batch *);
void cpu_program_paths(const struct program *, struct program_paths *ret);
const float *cpu_program_logits(const struct program *);
const struct output_best *cpu_program_best(const struct program *);
const float *cpu_program_hidden(const struct program *, size_t *ret_stride);
const uint8_t *cpu_program_faults(const struct program *);
void cpu_program_fill_block(struct program *, uint32_t group, uint32_t from, uint32_t to);

#endif
