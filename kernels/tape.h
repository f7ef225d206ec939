/* The tape: a model as a flat list of operations on named buffers.
 *
 * An architecture file (daemon/model/arch_*.c) turns a model's configuration into a tape; a backend compiles
 * it for given limits (kernels/backend.h). Fusion is the backend's business and never changes bits. The tape
 * holds shapes and parameters, no pointers to weights: a backend receives raw weights by index through
 * program_load. It can say more than the backends run: what they refuse with -ENOTSUP is in `unsupported`
 * (cpu/plan.c) and `supported` (ref/ref_backend.c).
 *
 * Matrices are (rows n, columns k), a row contiguous: y[n] = sum over k of w[n][k] x[k]. With experts:
 * (experts, n, k). Thread rule: plain data; built by one thread, then read-only. Source: docs/numerics.md
 * fixes the arithmetic of every operation. */
#ifndef TOKENRING_KERNELS_TAPE_H
#define TOKENRING_KERNELS_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/types.h"

enum {
	TAPE_NONE = 0xffff, /* no buffer, weight, table or bias */
	TAPE_GROUPS_MAX = 8,
	TAPE_NAME_BYTES = 64,
	TAPE_KV_BLOCK = 32,    /* tokens a KV block, also the key tile of attention */
	TAPE_KV_SEGMENT = 256, /* keys accumulated separately, then merged in ascending order */
};

enum row_kind {
	ROW_TOKEN,        /* one row a token of the batch */
	ROW_TOKEN_EXPERT, /* experts_used rows a token, ordered by ascending expert id */
	ROW_OUTPUT,       /* one row an output row of the batch */
	ROW_SEQUENCE,     /* one row a sequence */
};

/* A buffer of f32 activations, or a view of columns [column, column + width) of its parent. */
struct tape_buffer {
	uint16_t parent; /* TAPE_NONE: owns its memory */
	uint8_t rows;    /* enum row_kind */
	uint32_t column; /* 0 without a parent */
	uint32_t width;
};

struct tape_weight {
	char name[TAPE_NAME_BYTES]; /* as in the model file */
	enum weight_type type;
	uint32_t experts; /* 1: a plain matrix or vector */
	uint32_t n, k;    /* a vector: n = 1, k its length */
};

/* f32 constants made by the architecture: RoPE frequencies (one a rotated pair), computed in f64 and rounded
 * once. */
struct tape_table {
	float *values;
	uint32_t n;
};

enum kv_kind { KV_FULL, KV_WINDOW, KV_LATENT, KV_STATE };

/* Layers that share one block table. */
struct tape_group {
	uint8_t kind;    /* enum kv_kind */
	uint32_t layers; /* KV layers of this group, numbered from 0 inside it */
	uint32_t kv_heads, dk, dv;
	uint32_t window; /* KV_WINDOW: keys with position > query - window; 0 else */
};

enum tape_op_kind {
	TAPE_EMBED, /* out[0] = scale * row token of weight */
	TAPE_NORM, /* out[0] = norm(in[0]) * weight (+ bias); in TOKEN and out OUTPUT: gathers the output rows
		    */
	TAPE_MATMUL,   /* out[0] = in[0] x weight^T (+ bias) */
	TAPE_ROPE,     /* in place on in[0] (out[0] the same buffer) */
	TAPE_KV_WRITE, /* stores in[0] (keys) and in[1] (values) at the rows' positions */
	TAPE_ATTN,     /* out[0] = attention of the queries in[0] over the cache */
	TAPE_ACT,      /* out[0] = act(in[0]), gated: act(in[0]) * in[1] */
	TAPE_MUL,      /* out[0] = in[0] * in[1] */
	TAPE_ADD,      /* out[0] = in[0] + in[1] */
	TAPE_ROUTE,    /* out[0] (TOKEN, 2 * experts_used): expert ids ascending as f32 integers, then their
			  weights */
	TAPE_EXPERTS, /* out[0] = sum over the chosen experts of weight * (act(x G) * (x U)) D; in[1]: ROUTE's
			 output */
	TAPE_SCAN,    /* recurrent kinds; no backend runs it yet */
	TAPE_POOL,    /* out[0] (SEQUENCE) = last or mean of in[0], of the rows in this batch alone */
	TAPE_LOGITS,  /* the batch's result from in[0] (OUTPUT): weight (vocab, k) */
	TAPE_OP_COUNT
};

enum tape_norm { NORM_RMS, NORM_LAYER };
enum tape_rope { ROPE_PAIR /* (x[2i], x[2i+1]) */, ROPE_HALF /* (x[i], x[i + dims/2]) */ };
enum tape_act { ACT_SILU, ACT_GELU_TANH, ACT_GELU_ERF, ACT_RELU2 };
/* A mean over a prompt that is cut into several batches is not POOL_MEAN's: who wants it adds up the rows
 * that OUTPUT_HIDDEN gives. */
enum tape_pool { POOL_LAST, POOL_MEAN };

struct tape_op {
	uint8_t kind;     /* enum tape_op_kind */
	uint16_t layer;   /* for reports */
	uint16_t segment; /* rises by one where streamed weights may be awaited; 0 in a resident model */
	uint16_t in[2], out[1]; /* buffers or TAPE_NONE */
	uint16_t weight, bias;  /* weights or TAPE_NONE */
	uint16_t weights[3];    /* EXPERTS: gate, up, down, each (experts, n, k) */
	union {
		struct {
			float scale;
			bool positions; /* the row is the position, not the token */
		} embed;
		struct {
			uint8_t kind; /* enum tape_norm */
			float eps;
			bool weight_plus_one;
			uint32_t groups; /* 1: whole rows; heads: each head's columns by themselves with one
					    weight vector */
		} norm;
		struct {
			uint32_t heads; /* > 1: block-diagonal; weight (heads, n / heads, k / heads) */
			bool adapters;  /* adapters may add to this product */
			uint8_t shard;  /* axis by which tensor parallelism may split: 0 none, 1 n, 2 k */
		} matmul;
		struct {
			uint8_t style; /* enum tape_rope */
			uint16_t table;
			uint32_t heads, head_dim, dims,
			    first; /* rotates columns [first, first + dims) of each head */
		} rope;
		struct {
			uint16_t group, layer; /* the cache group and the layer inside it */
			uint32_t heads;        /* query heads; a multiple of the group's kv_heads */
			float scale;
			float softcap;      /* 0: none */
			uint16_t sinks;     /* weight of one logit a head, or TAPE_NONE */
			bool v_is_k;        /* values are the first dv columns of the keys */
			bool bidirectional; /* no causal mask */
		} attn;                     /* KV_WRITE uses group and layer */
		struct {
			uint8_t kind; /* enum tape_act */
			bool gated;
			float limit; /* clamp before the activation; 0: none */
		} act;
		struct {
			uint32_t experts, used, groups,
			    top_groups;   /* in[0] x weight^T gives one logit an expert */
			bool sigmoid;     /* else softmax */
			bool renormalise; /* weights of the chosen sum to one */
			float scale;
			uint8_t act; /* EXPERTS: enum tape_act */
		} route;             /* EXPERTS uses experts, used, act */
		struct {
			uint8_t kind; /* enum tape_pool */
		} pool;
		struct {
			float scale;
			float softcap; /* 0: none */
		} logits;
	} u;
};

struct tape {
	uint32_t n_ops, n_buffers, n_weights, n_tables, n_groups;
	struct tape_op *ops;
	struct tape_buffer *buffers;
	struct tape_weight *weights;
	struct tape_table *tables;
	struct tape_group groups[TAPE_GROUPS_MAX];
	uint32_t vocab, context; /* token ids below vocab; positions below context */
	uint32_t width;          /* of the residual stream, and of what LOGITS reads */
};

/* ---- building (tape.c); each returns the index or -ENOMEM; -EOVERFLOW past 65,534 entries ---- */
int tape_add_buffer(struct tape *, enum row_kind rows, uint32_t width);
int tape_add_view(struct tape *, uint16_t parent, uint32_t column, uint32_t width);
int tape_add_weight(struct tape *, const char *name, enum weight_type, uint32_t experts, uint32_t n,
		    uint32_t k);
int tape_add_table(struct tape *, const float *values, uint32_t n); /* copies */
/* Appends `op`; the union, inputs and outputs as given. */
int tape_add_op(struct tape *, const struct tape_op *op);

/* Checks every index, width, kind and parameter against each other, so that backends need not. -EINVAL with a
 * sentence. */
int tape_check(const struct tape *, char *why, size_t why_bytes);

/* Frees the arrays; the struct itself belongs to the caller. */
void tape_free(struct tape *);

#endif
