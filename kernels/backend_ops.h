/* What a backend provides to backend.c, which checks arguments and dispatches. Private to kernels/. */
#ifndef TOKENRING_KERNELS_BACKEND_OPS_H
#define TOKENRING_KERNELS_BACKEND_OPS_H

#include "kernels/backend.h"

struct backend_ops {
	const char *kind;
	/* open and compile build fully before they set *ret; the object's first member is the common struct
	 * below, its ops filled in by the backend. */
	int (*open)(const struct backend_config *, struct backend **ret, char *why, size_t why_bytes);
	void (*close)(struct backend *);
	const char *(*isa)(const struct backend *);
	const char *(*numerics)(const struct backend *);
	int (*measure)(struct backend *, const struct tape *, const struct tape_limits *,
		       struct program_bytes *ret);
	/* The tape has passed tape_check, the limits check_limits; limits.logits is not 0. */
	int (*compile)(struct backend *, const struct tape *, const struct tape_limits *,
		       struct program **ret, char *why, size_t why_bytes);
	void (*close_program)(struct program *);
	/* The weight index and the row range have been checked. */
	int (*load)(struct program *, uint32_t weight, uint32_t row, uint32_t rows, const void *raw);
	/* The batch has passed the limits. */
	int (*step)(struct program *, const struct batch *);
	void (*paths)(const struct program *, struct program_paths *ret);
	const float *(*logits)(const struct program *);
	const struct output_best *(*best)(const struct program *);
	const float *(*hidden)(const struct program *, size_t *ret_stride);
	const uint8_t *(*faults)(const struct program *);
	/* from == UINT32_MAX: zeros. */
	void (*fill_block)(struct program *, uint32_t group, uint32_t from, uint32_t to);
};

/* First member of every backend's own struct. */
struct backend {
	const struct backend_ops *ops;
};

/* First member of every backend's own program. */
struct program {
	const struct backend_ops *ops;
	const struct tape *tape;
	struct tape_limits limits;
};

extern const struct backend_ops backend_ref_int8_ops, backend_ref_f32_ops;
extern const struct backend_ops backend_cpu_ops; /* kernels/cpu */

#endif
