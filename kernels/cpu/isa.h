/* What an instruction set provides: the table of kernels behind the backend "cpu", and the layouts they
 * share.
 *
 * Each isa_*.c includes isa_body.inc over its own vector type, so that the arithmetic is written once; all
 * tables give equal bits (docs/numerics.md). Thread rule: pure functions on the caller's memory; the caller
 * has FTZ and DAZ on. No function allocates or blocks. */
#ifndef TOKENRING_KERNELS_CPU_ISA_H
#define TOKENRING_KERNELS_CPU_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/tape.h"

enum {
	PANEL_ROWS = 32,     /* rows of a weight that lie side by side, two groups of 16 lanes */
	TILE_ROWS = 8,       /* most activation rows a matmul kernel takes at once */
	TILE_SIZES = 4,      /* kernels for 1, 2, 4 and 8 rows */
	QUERY_ROWS = 8,      /* most query vectors of an item of attention */
	ATTEND_QUERIES = 32, /* most query vectors an attention call takes: its time is a poll's */
};

/* Layouts of 32 rows by 32 columns. An s is the group of 16 rows, a lane is a row of it.
 *
 *   header    of a block, both groups in each field
 *   super     kinds with K: 128 bytes before every 8 blocks: f16 d[32], f16 dmin[32]
 *   nibbles   j * 128 + s * 64 + lane * 4 + c: low columns 8 j + c, high columns 8 j + 4 + c    (c = 0..3)
 *   bytes     j * 128 + s * 64 + lane * 4 + c: columns 4 j + c
 *   fifths    nibbles, then 512 + s * 64 + lane * 4 + c: a byte whose bit j is the fifth bit of column
 *             8 j + c, bit 4 + j that of column 8 j + 4 + c
 *
 * Floats: a column is 32 values, columns ascending. */
enum panel_kind {
	PANEL_4_0, /* f16 d[32]; nibbles biased by 8 */
	PANEL_4_1, /* f16 d[32], m[32]; nibbles */
	PANEL_4_K, /* super; u8 scale[32], min[32]; nibbles; d = d * scale, m = -dmin * min */
	PANEL_5_0, /* f16 d[32]; fifths biased by 16 */
	PANEL_5_1, /* f16 d[32], m[32]; fifths */
	PANEL_5_K, /* super; u8 scale[32], min[32]; fifths */
	PANEL_8_0, /* f16 d[32]; bytes biased by 128 */
	PANEL_8_S, /* f16 d[32]; s8 scale_lo[32], scale_hi[32], one for 16 columns; bytes biased by 128 */
	PANEL_8_M, /* f16 d[32], m[32]; s8 scale_lo[32], scale_hi[32], min_lo[32], min_hi[32]; bytes */
	PANEL_F32,
	PANEL_F16,
	PANEL_BF16,
	PANEL_KINDS
};

/* Quantised activations. A tile of T rows has, for each block of 32 columns, T * ACT_BLOCK_BYTES:
 *   s8 q[T][32], f32 s[T], f32 s*S[T], i32 -8 S[T], i32 -128 S[T], i32 S_lo[T], i32 S_hi[T]
 * where S is the sum of q, S_lo of its first 16. Rows of one matrix are cut into tiles of 8, then 4, 2, 1;
 * the tile that begins at row r lies at r * blocks * ACT_BLOCK_BYTES whatever its size. */
enum { ACT_BLOCK_BYTES = 56 };

/* y[t * ldy + 0..31] = panel x row t. `k`: columns. Quantised kinds read `x` as a tile; float kinds as rows
 * of k f32. */
typedef void matmul_panel(const uint8_t *panel, uint32_t k, const void *x, float *y, size_t ldy);

/* Keys of one kv head in a block are (dk, 32), its values (32, dv), F16 or BF16. Of Q8_0 the keys are (dk /
 * 4, 32, 4) bytes biased by 128, what is missing at 4 of d arbitrary, the values (32, dv) signed bytes, and
 * before either lie the scales as f16: (groups of 32 of d, 32 tokens). */
static inline size_t kv_key_bytes(enum weight_type type, uint32_t dk)
{
	return kv_row_bytes(type, type == TYPE_Q8_0 ? (dk + 3) / 4 * 4 : dk) * TAPE_KV_BLOCK;
}

static inline size_t kv_value_bytes(enum weight_type type, uint32_t dv)
{
	return kv_row_bytes(type, dv) * TAPE_KV_BLOCK;
}

/* Element d of a key of Q8_0 behind the scales; slot: the token's place in the block. */
static inline size_t kv_quad(uint32_t d, uint32_t slot)
{
	return (size_t)(d / 4 * TAPE_KV_BLOCK + slot) * 4 + d % 4;
}

static inline size_t kv_scales_bytes(enum weight_type type, uint32_t d)
{
	return type == TYPE_Q8_0 ? (size_t)(d + 31) / 32 * TAPE_KV_BLOCK * 2 : 0;
}

/* Keys and values of one kv head, in blocks of 32 tokens: block id b at k + b * block_bytes. */
struct attention_source {
	enum weight_type type;
	const uint8_t *k, *v; /* of this head in block 0 */
	size_t block_bytes;
	const uint32_t *table; /* block ids by position / 32 */
	uint32_t dk, dv;
	float scale, softcap; /* softcap 0: none */
	size_t ahead;         /* of the block that is asked for after this call, from k and v: prefetched */
};

/* 32 of a query's d, quantised like activations; missing ones are 0. */
struct query_block {
	int8_t q[32];
	float s;
	int32_t sum;
};

static inline uint32_t query_blocks(uint32_t dk)
{
	return (dk + 31) / 32;
}

/* One query vector, which sees the keys [first, end). */
struct attention_query {
	const float *q;               /* (dk) */
	const struct query_block *q8; /* (groups of 32 of dk): for Q8_0, instead of q */
	uint32_t first, end;
	float *o; /* (dv) out: sums weighted by exp(score - m); 64-byte aligned, dv rounded up to 16 */
	float m, l;
};

/* The largest logit of a row so far, and whether one was not finite. */
struct best_logit {
	float value; /* -inf at first */
	uint32_t id;
	bool not_finite;
};

struct cpu_isa {
	const char *name;
	uint32_t macs_per_us; /* a careful guess of one thread's pace, for the poll callback */
	uint32_t query_rows;  /* query vectors a call of `attend` likes best */

	/* Row `row` of a tile of `rows`; k a multiple of 32. False: a value is not finite (its block is
	 * zeros). */
	bool (*quantise)(const float *x, uint32_t k, void *tile, uint32_t row, uint32_t rows);
	matmul_panel *matmul[PANEL_KINDS][TILE_SIZES];

	/* y = (x * r) * (w or 1 + w); x and y may be the same. w NULL: ones, whatever plus_one says. */
	void (*norm_rms)(const float *x, const float *w, bool plus_one, uint32_t n, float eps, float *y);
	void (*add)(const float *a, const float *b, uint32_t n, float *y);
	void (*mul)(const float *a, const float *b, uint32_t n, float *y);
	void (*scale)(const float *a, float scale, uint32_t n, float *y);
	/* y += scale * x, one FMA an element. */
	void (*fma)(float scale, const float *x, uint32_t n, float *y);
	/* y = act(x), times u unless NULL; x clamped to limit first if it is above 0. y may be x or u. */
	void (*act)(enum tape_act, float limit, const float *x, const float *u, uint32_t n, float *y);
	/* Turns n pairs: (x[2 i], x[2 i + 1]) if `pairs`, else (x[i], x[n + i]). */
	void (*rope)(float *x, const float *cosine, const float *sine, uint32_t n, bool pairs);
	/* n f32 to f16 or bf16 at dst[i * stride]. False: a value is not finite there. */
	bool (*store_f16)(const float *x, uint32_t n, uint16_t *dst, size_t stride);
	bool (*store_bf16)(const float *x, uint32_t n, uint16_t *dst, size_t stride);
	/* One token's n keys of a head to q[kv_quad(i, 0)], or its values to q[i], the scale of x[32 g ...]
	 * to scale[32 g]. False: a value or a scale is not finite. */
	bool (*store_q8)(const float *x, uint32_t n, bool key, int8_t *q, uint16_t *scale);
	void (*quantise_query)(const float *q, uint32_t dk, struct query_block *ret);
	bool (*finite)(const float *x, uint32_t n);
	/* Logits of the ids [id, id + n), n <= PANEL_ROWS, of each row at x[row * PANEL_ROWS]: ids that
	 * follow those of earlier calls, so that of equal logits the lowest id stays. */
	void (*best)(const float *x, uint32_t rows, uint32_t id, uint32_t n, struct best_logit *best);

	/* Keys of the tiles [from, to), within one segment of 256; from a multiple of 32. `heads` kv heads of
	 * one row's or more rows' queries, (heads, n) with heads * n <= ATTEND_QUERIES; query i of each head
	 * sees the same keys. A call whose `from` begins the segment begins each query's m, l and o, later
	 * ones go on. */
	void (*attend)(const struct attention_source *, uint32_t heads, struct attention_query *, uint32_t n,
		       uint32_t from, uint32_t to);
	/* Merges a later segment's (m, l, o) into (M, L, O). */
	void (*merge)(float *M, float *L, float *O, const struct attention_query *, uint32_t dv);
	/* y = O / L */
	void (*divide)(const float *O, float L, uint32_t dv, float *y);

	/* Reads `bytes` (a multiple of 256) once; the result only keeps the reads alive. */
	uint32_t (*read)(const uint8_t *, size_t bytes);
	/* Integer multiply-adds on registers: `rounds` times a fixed number, which is returned in all. */
	uint64_t (*int8_peak)(uint32_t rounds);
};

extern const struct cpu_isa cpu_isa_generic;
extern const struct cpu_isa cpu_isa_avx2;
extern const struct cpu_isa cpu_isa_avx512vnni;

#endif
