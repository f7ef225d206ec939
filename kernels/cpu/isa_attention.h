/* Attention kernels over the vector type of vec.h: keys in lanes for scores, values in lanes for the weighted
 * sum, up to VEC_QUERY_ROWS queries on each loaded key and value, all kv heads of a row block by block.
 *
 * Decode at 8,192 keys of 3 heads of 64 with 3 queries each, next to the weights of SmolLM2-135M in Q4_1, on
 * two cores of a Zen 4; share: of the read bandwidth, by the bytes of weights and keys and values
 * (bench_kernels Q4_1 THREADS auto long best TYPE):
 *
 *               one thread            two threads
 *   F16         79 tokens/s, 70 %     110 tokens/s, 86 %
 *   BF16        76 tokens/s, 66 %     108 tokens/s, 85 %
 *   Q8_0        95 tokens/s, 59 %     146 tokens/s, 80 %
 *
 * One thread computes where two wait for memory. What was tried (one thread, tokens/s; F16 and Q8_0):
 *
 *   72, 70   tile by tile and head by head, weights between keys and values
 *   44, 52   a segment's keys, its weights, its values, head by head: a head's parts of eight blocks are no
 *            stream for the hardware's prefetcher; from a cache that holds them all 85 instead of 76
 *   79, 75   a block's keys of all heads, their weights, their values: memory's order, and nine chains of
 *            weights at once, each of which has four times the latency of its work
 *   80, 100  in that, integer products for the keys of Q8_0, scales into the weights
 *
 * In that, too: FMA with the query or weight straight from memory, a tile's keys in 108 and not 152 ns.
 * Prefetching 1, 2, 3, 5 parts ahead, rows unrolled by 4: no difference. BF16 by even and odd halves of a
 * word: faster than widening, slower than FMA.
 *
 * A masked key contributes fma(+0, +0, o) in the contract, which changes nothing but -0 to +0 and does so
 * once: masked keys are left out and one +0 is added on their side of the unmasked ones. */
#ifndef TOKENRING_KERNELS_CPU_ISA_ATTENTION_H
#define TOKENRING_KERNELS_CPU_ISA_ATTENTION_H

#include "kernels/cpu/isa_scores.h"
#include "kernels/cpu/isa_values.h"

/* ---- T queries of one head, for each T and type ---- */

struct attend_kernels {
	void (*scores)(const struct attention_source *, const struct attention_query *, const uint8_t *k,
		       const uint8_t *next, float (*score)[TAPE_KV_BLOCK]);
	void (*values)(const struct attention_source *, const uint8_t *v, const uint8_t *next,
		       const int *first, const int *end, float (*p)[TAPE_KV_BLOCK], float *alpha,
		       struct attention_query *);
};

#define ATTEND(type, T)                                                                                     \
	static void scores_##type##_##T(const struct attention_source *source,                              \
					const struct attention_query *query, const uint8_t *k,              \
					const uint8_t *next, float(*score)[TAPE_KV_BLOCK])                  \
	{                                                                                                   \
		raw_scores(type, T, query, k, source->dk, next, score);                                     \
	}                                                                                                   \
	static void values_##type##_##T(                                                                    \
	    const struct attention_source *source, const uint8_t *v, const uint8_t *next, const int *first, \
	    const int *end, float(*p)[TAPE_KV_BLOCK], float *alpha, struct attention_query *query)          \
	{                                                                                                   \
		weigh_values(type, T, source, v, next, first, end, p, alpha, query);                        \
	}
#define ATTEND_KERNELS(type, T) {scores_##type##_##T, values_##type##_##T}
#define EACH_TYPE(T)            ATTEND(TYPE_F16, T) ATTEND(TYPE_BF16, T) ATTEND(TYPE_Q8_0, T)
EACH_TYPE(1)
EACH_TYPE(2)
#if VEC_QUERY_ROWS >= 3
EACH_TYPE(3)
#endif
#if VEC_QUERY_ROWS >= 6
EACH_TYPE(6)
#endif

/* For the largest T that n queries fill. */
static inline const struct attend_kernels *attend_kernels(enum weight_type type, uint32_t n, uint32_t *ret_T)
{
#define ROW(type) {[1] = ATTEND_KERNELS(type, 1), [2] = ATTEND_KERNELS(type, 2), MORE_THAN_TWO(type)}
#if VEC_QUERY_ROWS >= 6
#define MORE_THAN_TWO(type) [3] = ATTEND_KERNELS(type, 3), [6] = ATTEND_KERNELS(type, 6)
#elif VEC_QUERY_ROWS >= 3
#define MORE_THAN_TWO(type) [3] = ATTEND_KERNELS(type, 3)
#else
#define MORE_THAN_TWO(type)
#endif
	static const struct attend_kernels table[3][VEC_QUERY_ROWS + 1] = {ROW(TYPE_F16), ROW(TYPE_BF16),
									   ROW(TYPE_Q8_0)};
	uint32_t T = n < VEC_QUERY_ROWS ? n : VEC_QUERY_ROWS;
	int row = type == TYPE_Q8_0 ? 2 : type == TYPE_BF16;

	while (!table[row][T].scores)
		T--;
	*ret_T = T;
	return &table[row][T];
}

/* ---- heads ---- */

/* Keys of all heads and then their values, which is the order in memory: part `i` of a block, or of the one
 * after it. */
static inline const uint8_t *part_of(const struct attention_source *source, uint32_t heads, uint32_t i,
				     size_t block, size_t ahead)
{
	if (i >= 2 * heads) {
		i = (i - 2 * heads) % (2 * heads);
		block = ahead;
	}
	return block + (i < heads ? source[i].k : source[i - heads].v);
}

/* A tile for all heads: all their keys, then all their weights, then all their values. The weights of one
 * query are a chain whose latency is four times its work, so many are better. */
static void attend_tile(const struct attention_source *source, uint32_t heads, struct attention_query *query,
			uint32_t n, size_t block, size_t ahead, const struct tile_mask *mask)
{
	float p[ATTEND_QUERIES][TAPE_KV_BLOCK], alpha[ATTEND_QUERIES];
	uint32_t T;

	for (uint32_t h = 0; h < heads; h++) {
		const uint8_t *k = source[h].k + block;
		const uint8_t *next = part_of(source, heads, h + 1, block, ahead);
		for (uint32_t i = 0; i < n; i += T)
			attend_kernels(source->type, n - i, &T)
			    ->scores(&source[h], query + h * n + i, k, i ? k : next, p + h * n + i);
	}
	for (uint32_t h = 0; h < heads; h++)
		for (uint32_t i = 0; i < n; i++)
			weigh(source, &query[h * n + i], p[h * n + i], mask->first[i], mask->end[i],
			      &alpha[h * n + i]);
	for (uint32_t h = 0; h < heads; h++) {
		const uint8_t *v = source[h].v + block;
		const uint8_t *next = part_of(source, heads, heads + h + 1, block, ahead);
		for (uint32_t i = 0; i < n; i += T)
			attend_kernels(source->type, n - i, &T)
			    ->values(&source[h], v, i ? v : next, mask->first + i, mask->end + i,
				     p + h * n + i, alpha + h * n + i, query + h * n + i);
	}
}

static void attend_alone(const struct attention_source *source, uint32_t heads, struct attention_query *query,
			 uint32_t n, size_t block, const struct tile_mask *mask)
{
	for (uint32_t i = 0; i < n; i++) {
		struct tile_mask own = {.first = {mask->first[i]}, .end = {mask->end[i]}};
		for (uint32_t h = 0; h < heads && own.first[0] < own.end[0]; h++)
			attend_tile(&source[h], 1, &query[h * n + i], 1, block, block, &own);
	}
}

static int clamp_to_tile(uint32_t key, uint32_t tile)
{
	return key <= tile ? 0 : key - tile >= TAPE_KV_BLOCK ? TAPE_KV_BLOCK : (int)(key - tile);
}

/* The number of queries of a head that see a key of the tile at `at`. */
static uint32_t mask_tile(const struct attention_query *query, uint32_t n, uint32_t at, struct tile_mask *ret)
{
	uint32_t seen = 0;

	for (uint32_t i = 0; i < n; i++) {
		ret->first[i] = clamp_to_tile(query[i].first, at);
		ret->end[i] = clamp_to_tile(query[i].end, at);
		seen += ret->first[i] < ret->end[i];
	}
	return seen;
}

/* The end of the keys that any of them sees. */
static uint32_t begin_queries(struct attention_query *query, uint32_t n, uint32_t from, uint32_t dv)
{
	uint32_t end = 0;

	for (uint32_t i = 0; i < n; i++) {
		end = query[i].end > end ? query[i].end : end;
		if (from % TAPE_KV_SEGMENT)
			continue;
		query[i].m = -INFINITY;
		query[i].l = 0.0f;
		memset(query[i].o, 0, (dv + 15) / 16 * 16 * sizeof *query->o);
	}
	return end;
}

static void isa_attend(const struct attention_source *source, uint32_t heads, struct attention_query *query,
		       uint32_t n, uint32_t from, uint32_t to)
{
	uint32_t end = begin_queries(query, heads * n, from, source->dv);
	struct tile_mask mask;

	end = to < end ? to : end;
	for (uint32_t at = from, next = at + TAPE_KV_BLOCK; at < end; at = next, next += TAPE_KV_BLOCK) {
		size_t block = source->table[at / TAPE_KV_BLOCK] * source->block_bytes;
		uint32_t seen = mask_tile(query, n, at, &mask);
		size_t ahead =
		    next < end ? source->table[next / TAPE_KV_BLOCK] * source->block_bytes : source->ahead;
		if (seen == n)
			attend_tile(source, heads, query, n, block, ahead, &mask);
		else if (seen)
			attend_alone(source, heads, query, n, block, &mask);
	}
}

static void isa_merge(float *M, float *L, float *O, const struct attention_query *from, uint32_t dv)
{
	float m = from->m > *M ? from->m : *M;
	/* One of them is exp(0), which is 1 exactly. */
	float a = *M == m ? 1.0f : contract_exp(*M - m), b = from->m == m ? 1.0f : contract_exp(from->m - m);

	*L = fmaf(from->l, b, *L * a);
	*M = m;
	for (uint32_t d = 0; d < dv; d++)
		O[d] = fmaf(from->o[d], b, O[d] * a);
}

static void isa_divide(const float *O, float L, uint32_t dv, float *y)
{
	for (uint32_t d = 0; d < dv; d++)
		y[d] = O[d] / L;
}

#endif
