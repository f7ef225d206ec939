/* A model file: its directory, its tape, and where each weight of the tape lies.
 *
 * Thread rule: a model is immutable after model_open; any number of threads may read it. */
#ifndef TOKENRING_MODEL_MODEL_H
#define TOKENRING_MODEL_MODEL_H

#include "daemon/model/gguf.h"
#include "kernels/tape.h"

/* Parallel to the tape's weights: rows of `row_bytes`, (experts x n) of them, one after the other. */
struct model_weight {
	uint64_t offset; /* in the file */
	uint64_t bytes;
	uint64_t row_bytes;
};

struct model;

/* Opens a GGUF file of a supported architecture and builds its tape, which has passed tape_check.  No weights
 * are read. Blocks on the file system, allocates.  gguf_open's errors; -ENOTSUP: an architecture, type or key
 * that is not supported; -EINVAL: keys or tensors that do not fit together; -ENOMEM. */
int model_open(const char *path, struct model **ret, char *why, size_t why_bytes);

/* Accepts NULL. */
void model_close(struct model *);

/* All owned by the model. */
const struct gguf *model_gguf(const struct model *);
const struct tape *model_tape(const struct model *);
const struct model_weight *model_weights(const struct model *); /* (tape->n_weights) */
uint64_t model_weight_bytes(const struct model *);              /* of all of them */

/* What a listing says about a file, also of an architecture that is not supported; 0 or empty where it does
 * not say. */
struct model_description {
	struct gguf_text name, architecture; /* owned by the gguf */
	uint64_t parameters, bytes;          /* of all tensors */
	uint64_t bytes_of_type[TYPE_COUNT];
	uint32_t tensors, layers, width, ffn, vocab, context;
	uint32_t heads, kv_heads, head_dim;
	uint32_t experts, experts_used;
	bool supported; /* the architecture has a builder; the rest is seen when it builds */
};

void model_describe(const struct gguf *, struct model_description *ret);

#endif
