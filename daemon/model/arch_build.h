/* What architectures are written with: keys, weights and operations, with one error that sticks.
 *
 * After the first failure every call does nothing and returns a harmless value, so that a build function
 * reads as the description of its model and looks at `error` once, at the end. */
#ifndef TOKENRING_MODEL_ARCH_BUILD_H
#define TOKENRING_MODEL_ARCH_BUILD_H

#include "daemon/model/arch.h"

struct arch_builder {
	const struct arch_source *source;
	struct tape *tape;
	const char *prefix; /* of the keys: the architecture's name */
	char *why;
	size_t why_bytes;
	int error;
	uint16_t layer; /* of the operations that come next */
	size_t n_used;  /* tensors that the model has used */
};

/* Records the first error; returns it. */
__attribute__((format(printf, 3, 4))) int arch_fail(struct arch_builder *, int error, const char *format,
						    ...);

/* Keys "<prefix>.<name>".  A value out of [low, high] is refused.  `need_` forms refuse absence. */
uint32_t arch_need_u32(struct arch_builder *, const char *name, uint32_t low, uint32_t high);
uint32_t arch_u32(struct arch_builder *, const char *name, uint32_t absent, uint32_t low, uint32_t high);
float arch_need_f32(struct arch_builder *, const char *name, float low, float high);
float arch_f32(struct arch_builder *, const char *name, float absent, float low, float high);
/* Refuses the file if the key is there with another value than this. */
void arch_only_u32(struct arch_builder *, const char *name, uint32_t value);
void arch_only_f32(struct arch_builder *, const char *name, float value);
void arch_only_true(struct arch_builder *, const char *name);
/* Refuses the file if the key is there. */
void arch_refuse_key(struct arch_builder *, const char *name);

/* Tensors.  `format` makes the name with the builder's layer in place of %u, if it has one. */
const struct gguf_tensor *arch_tensor(struct arch_builder *, const char *format); /* NULL if absent */
/* (experts, n, k); experts = 1 for matrices, n = 1 for vectors.  TAPE_NONE after a failure. */
uint16_t arch_weight(struct arch_builder *, const char *format, uint32_t experts, uint32_t n, uint32_t k);
/* A vector of floats; TAPE_NONE if absent. */
uint16_t arch_optional_vector(struct arch_builder *, const char *format, uint32_t k);
/* Marks a tensor that the model carries but does not need. */
void arch_skip_tensor(struct arch_builder *, const char *format);
/* Refuses a file with tensors that the tape does not use: its answers would be wrong. */
void arch_refuse_other_tensors(struct arch_builder *);

uint16_t arch_buffer(struct arch_builder *, enum row_kind rows, uint32_t width);
/* Columns [column, column + width) of `parent`. */
uint16_t arch_view(struct arch_builder *, uint16_t parent, uint32_t column, uint32_t width);
uint16_t arch_table(struct arch_builder *, const float *values, uint32_t n);

/* Operations; inputs and outputs are buffers. */
void arch_embed(struct arch_builder *, uint16_t out, uint16_t weight, float scale);
void arch_embed_positions(struct arch_builder *, uint16_t out, uint16_t weight); /* the row is the position */
void arch_norm(struct arch_builder *, uint16_t out, uint16_t in, uint16_t weight, float eps, uint32_t groups);
void arch_layer_norm(struct arch_builder *, uint16_t out, uint16_t in, uint16_t weight, uint16_t bias,
		     float eps);
void arch_matmul(struct arch_builder *, uint16_t out, uint16_t in, uint16_t weight, uint16_t bias);
void arch_add(struct arch_builder *, uint16_t out, uint16_t x, uint16_t y);
void arch_act(struct arch_builder *, enum tape_act, uint16_t out, uint16_t in);
void arch_gated(struct arch_builder *, enum tape_act, uint16_t out, uint16_t gate, uint16_t up);
void arch_rope(struct arch_builder *, uint16_t x, enum tape_rope style, uint16_t table, uint32_t heads,
	       uint32_t head_dim, uint32_t dims);
void arch_attention(struct arch_builder *, uint16_t out, const uint16_t qkv[3], uint16_t group,
		    uint16_t layer, uint32_t heads, float scale);
/* Softmax over all experts, the best `used` renormalised; weights: gate, up, down. */
void arch_experts(struct arch_builder *, enum tape_act, uint16_t out, uint16_t in, uint16_t route,
		  uint16_t router, const uint16_t weights[3], uint32_t experts, uint32_t used);
/* Logits by output.weight, or by the embedding if the file has none. */
void arch_output(struct arch_builder *, uint16_t in, uint16_t embedding);

/* Of keys and values; as many as query heads if the file does not say. */
uint32_t arch_kv_heads(struct arch_builder *, uint32_t heads);
/* The size of the vocabulary, from the embedding's rows; checks it against what the tokenizer lists. Gives
 * the tape both sizes. */
uint32_t arch_vocabulary(struct arch_builder *, uint32_t width);

/* RoPE frequencies, one a pair, in f64 rounded to f32: base, then the file's scaling keys and
 * rope_freqs.weight. *ret_magnitude is what scaling wants queries and keys to be multiplied by, each (1 but
 * for YaRN).  NULL: the file's scaling is not for this table. */
uint16_t arch_rope_table(struct arch_builder *, double base, uint32_t dims, float *ret_magnitude);

#endif
