/* The reference backend: scalar C, the oracle of every other backend. Private to kernels/ref.
 *
 * Two modes. int8 follows docs/numerics.md bit for bit; f32 dequantises every weight and adds one fma a term,
 * k ascending, with an F32 cache: what Hugging Face transformers compute in float32, in a fixed order. Either
 * runs on the calling thread alone.
 *
 * The files that compute (ref_step.c and what it calls) are built twice, with and without FMA instructions:
 * REF_SUFFIX tells them apart, and ref_backend.c chooses at run time. Both give the same bits, because fmaf
 * is exact either way. */
#ifndef TOKENRING_KERNELS_REF_REF_H
#define TOKENRING_KERNELS_REF_REF_H

#include "kernels/backend_ops.h"
#include "kernels/contract.h"

enum { REF_PANEL = 16 }; /* outputs side by side in a float weight */

/* A weight after loading: integers with scales, or floats in panels. */
struct ref_weight {
	enum weight_type type;
	bool floats;
	uint32_t experts, n, k;
	uint32_t blocks;  /* of 32 columns in a row; 0 for floats */
	uint32_t panels;  /* of an expert */
	int16_t *q;       /* (experts * n, k): scale times q of the weight_block */
	float *d;         /* (experts * n, blocks) */
	float *m;         /* (experts * n, blocks); NULL without a minimum */
	int8_t (*min)[2]; /* (experts * n, blocks); NULL without a minimum */
	float *panel;     /* (experts, panels, k, REF_PANEL) */
};

/* Rows of activations as a matmul takes them. */
struct ref_rows {
	const float *x; /* (rows, stride) */
	uint32_t rows, stride;
	int16_t *q;        /* (rows, k) */
	float *s;          /* (rows, blocks) */
	int32_t (*sum)[2]; /* (rows, blocks): sums of q over the halves of a block */
};

/* (layers, blocks, kv_heads, dk, 32) and (layers, blocks, kv_heads, 32, dv), as f32 whatever the cache's
 * type: what is written is rounded as that type is, so that it need not be widened at each read. Q8: quants;
 * the scales are (layers, blocks, kv_heads, groups of 32 of d, 32), with which the head's k or v begins. */
struct ref_cache {
	float *k, *v;
};

/* Floats that one head's keys or values of `d` take in a block, and those of them that are scales. */
static inline size_t ref_scales(enum weight_type type, uint32_t d)
{
	return type == TYPE_Q8_0 ? (size_t)(d + 31) / 32 * TAPE_KV_BLOCK : 0;
}

static inline size_t ref_head(enum weight_type type, uint32_t d)
{
	return ref_scales(type, d) + (size_t)d * TAPE_KV_BLOCK;
}

struct ref_backend;

struct ref_program {
	struct program base;
	struct ref_backend *backend;
	struct ref_weight *weights; /* (n_weights) */
	float **buffers;            /* (n_buffers); NULL for views */
	struct ref_cache cache[TAPE_GROUPS_MAX];
	struct ref_rows input;    /* room to quantise any input */
	float *scratch;           /* routing, experts, attention */
	float *logits;            /* (limits.logits + 1, vocab): the last is of rows that keep none */
	struct output_best *best; /* (outputs) */
	uint16_t hidden;          /* the buffer that LOGITS reads; TAPE_NONE: no LOGITS */
	uint8_t *faults;          /* (rows) */
	uint8_t *bad;             /* (rows of any kind): of the operation that runs */
};

struct ref_backend {
	struct backend base;
	bool f32;
	void (*step)(struct ref_program *, const struct batch *);
	void (*poll)(void *poll_data);
	void *poll_data;
};

void ref_step_portable(struct ref_program *, const struct batch *);
void ref_step_fma(struct ref_program *, const struct batch *);

/* ref_weight.c: allocates for the shape; converts rows; bytes that the weight takes. */
int ref_weight_create(const struct tape_weight *, bool f32, struct ref_weight *ret);
void ref_weight_destroy(struct ref_weight *);
int ref_weight_load(struct ref_weight *, uint32_t row, uint32_t rows, const void *raw);
uint64_t ref_weight_bytes(const struct tape_weight *, bool f32);

/* ---- between the files that are built twice ---- */
#define REF_PASTE_(name, suffix) name##suffix
#define REF_PASTE(name, suffix)  REF_PASTE_(name, suffix)
#define REF_NAME(name)           REF_PASTE(name, REF_SUFFIX)
#define ref_step                 REF_NAME(ref_step)
#define ref_matmul               REF_NAME(ref_matmul)
#define ref_activate             REF_NAME(ref_activate)
#define ref_attn                 REF_NAME(ref_attn)
#define ref_kv_write             REF_NAME(ref_kv_write)
#define ref_route                REF_NAME(ref_route)
#define ref_experts              REF_NAME(ref_experts)

/* y (rows, y_stride) [n] = sum over k of w[expert][n][k] x[k] + bias[n]. x (rows, x_stride). Sets bad[r] (may
 * be NULL) for rows with a value that is not finite. bias may be NULL. */
void ref_matmul(struct ref_program *, const struct ref_weight *, uint32_t expert,
		const struct ref_weight *bias, const float *x, uint32_t x_stride, uint32_t rows, float *y,
		uint32_t y_stride, uint8_t *bad);
/* y[i] = act(clamp(x[i])), times gate[i] unless NULL. y may be x. */
void ref_activate(enum tape_act, float limit, const float *x, const float *gate, uint32_t n, float *y);
void ref_attn(struct ref_program *, const struct batch *, const struct tape_op *);
void ref_kv_write(struct ref_program *, const struct batch *, const struct tape_op *);
void ref_route(struct ref_program *, const struct batch *, const struct tape_op *);
void ref_experts(struct ref_program *, const struct batch *, const struct tape_op *);

/* The first column of a buffer's row 0; rows are *ret_stride apart. */
static inline float *ref_buffer(const struct ref_program *program, uint16_t index, uint32_t *ret_stride)
{
	const struct tape_buffer *buffers = program->base.tape->buffers;
	uint32_t column = 0;

	while (buffers[index].parent != TAPE_NONE) {
		column += buffers[index].column;
		index = buffers[index].parent;
	}
	*ret_stride = buffers[index].width;
	return program->buffers[index] + column;
}

/* A vector weight as f32: a float weight's panels hold its only row in lane 0. */
static inline float ref_vector_at(const struct ref_weight *vector, uint32_t k)
{
	return vector->panel[(size_t)k * REF_PANEL];
}

/* Element k of a row as EMBED takes it. */
static inline float ref_element(const struct ref_weight *w, uint32_t row, uint32_t k)
{
	if (w->floats)
		return w->panel[((size_t)(row / REF_PANEL) * w->k + k) * REF_PANEL + row % REF_PANEL];
	size_t block = (size_t)row * w->blocks + k / BLOCK_COLUMNS;
	float q = (float)w->q[(size_t)row * w->k + k];
	return w->m ? fmaf(q, w->d[block], w->m[block] * (float)w->min[block][k / 16 % 2]) : q * w->d[block];
}

static inline void ref_poll(const struct ref_program *program)
{
	if (program->backend->poll)
		program->backend->poll(program->backend->poll_data);
}

#endif
