/* Attention kernels over the vector type of vec.h: keys in lanes for scores, values in lanes for
 * the weighted sum, up to VEC_QUERY_ROWS queries on each loaded key and value.
 *
 * While a tile is computed the next one is prefetched, keys with keys, values with values. What counted,
 * measured with one thread of a Zen 4, 2,048 keys of 3 heads of 64, next to the weights of SmolLM2-135M: a
 * cache in the order in which it is read, [head][K, V] inside a block, where K of all heads before V of all
 * heads left the hardware's prefetcher behind: 126 to 165 tokens/s (two threads: 195 to 240). Prefetching the
 * next tile without that order gained nothing.
 *
 * A masked key contributes fma(+0, +0, o) in the contract, which changes nothing but -0 to +0 and does so
 * once: masked keys are left out and one +0 is added on their side of the unmasked ones. */
#ifndef TOKENRING_KERNELS_CPU_ISA_ATTENTION_H
#define TOKENRING_KERNELS_CPU_ISA_ATTENTION_H

#include "kernels/contract.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/panel_layout.h"
#include "kernels/cpu/vec.h"

enum { KV_GROUP = 32 }; /* elements that share a scale of Q8_0 */

/* The contract's exponential, lane by lane. */
PANEL_INLINE vf vf_exp(vf x)
{
	const vf magic = vf_set1(12582912.0f);
	vf y = vf_if_less(vf_set1(89.0f), x, vf_set1(89.0f), x);
	vf t = vf_fma(y, vf_set1(1.44269504088896341f), magic);
	vf n = vf_sub(t, magic);
	vf r = vf_fma(n, vf_set1(-0.693359375f), y);
	r = vf_fma(n, vf_set1(2.12194440e-4f), r);

	vf p = vf_fma(vf_set1(1.9875691500e-4f), r, vf_set1(1.3981999507e-3f));
	p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
	p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
	p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
	p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
	p = vf_add(vf_fma(p, vf_mul(r, r), r), vf_set1(1.0f));

	vi low = vi_sub(vf_bits(t), vi_set1(0x4b400000 - 254));
	vi half = vi_and(vi_shift_right(low, 1), 0xff);
	vi other = vi_and(vi_sub(low, half), 0xff);
	vf e =
	    vf_mul(vf_mul(p, vf_from_bits(vi_shift_left(half, 23))), vf_from_bits(vi_shift_left(other, 23)));
	return vf_if_less(x, vf_set1(-87.0f), vf_zero(), e);
}

/* A tile of 32 keys for up to VEC_QUERY_ROWS queries. */
struct score_tile {
	float score[VEC_QUERY_ROWS][TAPE_KV_BLOCK]; /* then the weights p */
	float alpha[VEC_QUERY_ROWS];
	int first[VEC_QUERY_ROWS], end[VEC_QUERY_ROWS]; /* unmasked keys of the tile */
};

/* Bytes of an element of keys or values. */
static inline size_t kv_element_bytes(const enum weight_type type)
{
	return type == TYPE_Q8_0 ? 1 : 2;
}

/* Sixteen elements, those of Q8_0 without their scale. */
PANEL_INLINE vf kv_load(const enum weight_type type, const uint8_t *from)
{
	if (type == TYPE_Q8_0)
		return vf_from_vi(vi_from_s8((const int8_t *)from));
	const uint16_t *half = (const uint16_t *)from;
	return type == TYPE_BF16 ? vf_from_bf16(half) : vf_from_f16(half);
}

PANEL_INLINE vf kv_scaled(const enum weight_type type, const uint8_t *from, vf scale)
{
	vf x = kv_load(type, from);
	return type == TYPE_Q8_0 ? vf_mul(x, scale) : x;
}

/* n rows of keys, which share scales, onto the scores of T queries from their column d on. */
PANEL_INLINE void score_rows(const enum weight_type type, const int T, const struct attention_query *query,
			     uint32_t d, uint32_t n, const uint8_t *k, const uint8_t *next, const vf scale[2],
			     vf acc[VEC_QUERY_ROWS][2])
{
	const size_t half = 16 * kv_element_bytes(type);

	for (uint32_t i = 0; i < n; i++, k += 2 * half, next += 2 * half) {
		vf k0 = kv_scaled(type, k, scale[0]), k1 = kv_scaled(type, k + half, scale[1]);
		vec_prefetch(next);
		VEC_UNROLL(8)
		for (int t = 0; t < T; t++) {
			vf q = vf_set1(query[t].q[d + i]);
			acc[t][0] = vf_fma(q, k0, acc[t][0]);
			acc[t][1] = vf_fma(q, k1, acc[t][1]);
		}
	}
}

/* score = FMA chain over d ascending. Meanwhile the next tile's keys are prefetched. */
PANEL_INLINE void raw_scores(const enum weight_type type, const int T, const struct attention_query *query,
			     const uint8_t *k, uint32_t dk, const uint8_t *next, struct score_tile *tile)
{
	const size_t scales = kv_scales_bytes(type, dk), row = TAPE_KV_BLOCK * kv_element_bytes(type);
	vf acc[VEC_QUERY_ROWS][2], scale[2] = {vf_zero(), vf_zero()};

	VEC_UNROLL(8)
	for (int t = 0; t < T; t++)
		acc[t][0] = acc[t][1] = vf_zero();
	for (uint32_t d = 0; d < dk; d += KV_GROUP) {
		if (type == TYPE_Q8_0) {
			scale[0] = vf_from_f16((const uint16_t *)k + d);
			scale[1] = vf_from_f16((const uint16_t *)k + d + 16);
			vec_prefetch(next + 2 * (size_t)d);
		}
		score_rows(type, T, query, d, dk - d < KV_GROUP ? dk - d : KV_GROUP, k + scales + d * row,
			   next + scales + d * row, scale, acc);
	}
	VEC_UNROLL(8)
	for (int t = 0; t < T; t++) {
		vf_store(tile->score[t], acc[t][0]);
		vf_store(tile->score[t] + 16, acc[t][1]);
	}
}

/* Scores to weights of one query; updates its m and l. */
static inline void weigh(const struct attention_source *source, struct attention_query *query, float *score,
			 int first, int end, float *ret_alpha)
{
	const vf least = vf_set1(-INFINITY), scale = vf_set1(source->scale);
	vf s0 = vf_mul(vf_load(score), scale), s1 = vf_mul(vf_load(score + 16), scale);

	if (source->softcap != 0.0f) {
		vf_store(score, s0);
		vf_store(score + 16, s1);
		for (int j = 0; j < TAPE_KV_BLOCK; j++)
			score[j] = contract_softcap(score[j], source->softcap);
		s0 = vf_load(score);
		s1 = vf_load(score + 16);
	}
	bool all = first == 0 && end == TAPE_KV_BLOCK;
	vf most = all ? vf_max(s0, s1)
		      : vf_max(vf_keep(s0, least, first, end), vf_keep(s1, least, first - 16, end - 16));
	float before = query->m, now = vf_max_lane(most);
	float m = now > before ? now : before;

	vf p0 = vf_exp(vf_sub(s0, vf_set1(m))), p1 = vf_exp(vf_sub(s1, vf_set1(m)));
	if (!all) {
		p0 = vf_keep(p0, vf_zero(), first, end);
		p1 = vf_keep(p1, vf_zero(), first - 16, end - 16);
	}
	vf_store(score, p0);
	vf_store(score + 16, p1);
	/* exp(0) is 1 exactly, so an unchanged maximum needs none. */
	float alpha = before == -INFINITY ? 0.0f : m == before ? 1.0f : contract_exp(before - m);
	query->l = fmaf(query->l, alpha, vf_tree(vf_add(p0, p1)));
	query->m = m;
	*ret_alpha = alpha;
}

/* Scales of the 32 tokens, (n groups from that of column d on, 32 tokens). */
PANEL_INLINE void load_scales(const int n, const uint8_t *v, uint32_t d, float scale[][TAPE_KV_BLOCK])
{
	const uint16_t *half = (const uint16_t *)v + d / KV_GROUP * TAPE_KV_BLOCK;

	for (int i = 0; i < n; i++, half += TAPE_KV_BLOCK) {
		vf_store(scale[i], vf_from_f16(half));
		vf_store(scale[i] + 16, vf_from_f16(half + 16));
	}
}

/* A part of the values of a tile: columns from d on of tokens [first, end). */
struct value_part {
	const uint8_t *v, *next; /* of the tile, and of the one that is prefetched meanwhile */
	uint32_t dv, d;
	int first, end;
};

/* o = o * alpha, then o = fma(p_j, v_j, o) for j in [first, end), on C chunks of 16 values; d is a multiple
 * of 32 if C is not 1. Meanwhile the same part of the next tile's values is prefetched. */
PANEL_INLINE void weighted_chunks(const enum weight_type type, const int T, const int C,
				  const struct value_part *part, float (*p)[TAPE_KV_BLOCK],
				  const float *alpha, struct attention_query *query)
{
	const size_t bytes = kv_element_bytes(type), scales = kv_scales_bytes(type, part->dv);
	vf o[VEC_QUERY_ROWS][VEC_VALUE_CHUNKS];
	float scale[(VEC_VALUE_CHUNKS + 1) / 2][TAPE_KV_BLOCK];

	if (type == TYPE_Q8_0)
		load_scales((C + 1) / 2, part->v, part->d, scale);
	VEC_UNROLL(8)
	for (int t = 0; t < T; t++)
		VEC_UNROLL(4)
	for (int c = 0; c < C; c++)
		o[t][c] = vf_mul(vf_load(query[t].o + part->d + 16 * c), vf_set1(alpha[t]));
	for (int j = part->first; j < part->end; j++) {
		size_t at = scales + ((size_t)j * part->dv + part->d) * bytes;
		vf value[VEC_VALUE_CHUNKS];
		VEC_UNROLL(4)
		for (int c = 0; c < C; c++)
			value[c] = kv_scaled(type, part->v + at + 16 * c * bytes,
					     type == TYPE_Q8_0 ? vf_set1(scale[c / 2][j]) : vf_zero());
		VEC_UNROLL(4)
		for (int c = 0; c < C; c += (int)(4 / bytes))
			vec_prefetch(part->next + at + 16 * c * bytes);
		VEC_UNROLL(8)
		for (int t = 0; t < T; t++) {
			vf weight = vf_set1(p[t][j]);
			VEC_UNROLL(4)
			for (int c = 0; c < C; c++)
				o[t][c] = vf_fma(weight, value[c], o[t][c]);
		}
	}
	VEC_UNROLL(8)
	for (int t = 0; t < T; t++)
		VEC_UNROLL(4)
	for (int c = 0; c < C; c++)
		vf_store(query[t].o + part->d + 16 * c, o[t][c]);
}

/* The last dv mod 16 values. */
PANEL_INLINE void weighted_tail(const enum weight_type type, const struct value_part *part, const float *p,
				float alpha, float *o)
{
	const size_t bytes = kv_element_bytes(type), scales = kv_scales_bytes(type, part->dv);
	vf sum = vf_mul(vf_load(o + part->d), vf_set1(alpha));
	float scale[1][TAPE_KV_BLOCK] = {{0}};

	if (type == TYPE_Q8_0)
		load_scales(1, part->v, part->d, scale);
	for (int j = part->first; j < part->end; j++) {
		uint8_t padded[32] = {0};
		memcpy(padded, part->v + scales + ((size_t)j * part->dv + part->d) * bytes,
		       (part->dv - part->d) * bytes);
		sum = vf_fma(vf_set1(p[j]), kv_scaled(type, padded, vf_set1(scale[0][j])), sum);
	}
	vf_store(o + part->d, sum);
}

PANEL_INLINE void weighted_values(const enum weight_type type, const int T, struct value_part part,
				  float (*p)[TAPE_KV_BLOCK], const float *alpha,
				  struct attention_query *query)
{
	for (; part.d + 16 * VEC_VALUE_CHUNKS <= part.dv; part.d += 16 * VEC_VALUE_CHUNKS)
		weighted_chunks(type, T, VEC_VALUE_CHUNKS, &part, p, alpha, query);
	for (; part.d + 16 <= part.dv; part.d += 16)
		weighted_chunks(type, T, 1, &part, p, alpha, query);
	if (part.d < part.dv)
		for (int t = 0; t < T; t++)
			weighted_tail(type, &part, p[t], alpha[t], query[t].o);
}

static void add_zero(float *o, uint32_t dv)
{
	for (uint32_t d = 0; d < dv; d += 16)
		vf_store(o + d, vf_add(vf_load(o + d), vf_zero()));
}

/* One query alone: rare, so not inlined. */
static void weighted_alone(const struct attention_source *source, const uint8_t *v, int first, int end,
			   float *p, float alpha, struct attention_query *query)
{
	struct value_part part = {.v = v, .next = v, .dv = source->dv, .first = first, .end = end};

	if (source->type == TYPE_Q8_0)
		weighted_values(TYPE_Q8_0, 1, part, (float(*)[TAPE_KV_BLOCK])p, &alpha, query);
	else if (source->type == TYPE_BF16)
		weighted_values(TYPE_BF16, 1, part, (float(*)[TAPE_KV_BLOCK])p, &alpha, query);
	else
		weighted_values(TYPE_F16, 1, part, (float(*)[TAPE_KV_BLOCK])p, &alpha, query);
}

/* Keys that all T queries see together are summed together; what only some see, query by query, before and
 * after. */
PANEL_INLINE void weigh_values(const enum weight_type type, const int T,
			       const struct attention_source *source, const uint8_t *v, const uint8_t *next,
			       struct score_tile *tile, struct attention_query *query)
{
	int first = 0, end = TAPE_KV_BLOCK;

	for (int t = 0; t < T; t++) {
		first = tile->first[t] > first ? tile->first[t] : first;
		end = tile->end[t] < end ? tile->end[t] : end;
	}
	end = end < first ? first : end;
	for (int t = 0; t < T; t++) {
		int until = tile->end[t] < first ? tile->end[t] : first;
		if (tile->first[t] == 0 && first == 0)
			continue;
		weighted_alone(source, v, 0, 0, tile->score[t], tile->alpha[t], &query[t]);
		if (tile->first[t] > 0)
			add_zero(query[t].o, source->dv);
		weighted_alone(source, v, tile->first[t], until, tile->score[t], 1.0f, &query[t]);
		tile->alpha[t] = 1.0f;
	}
	weighted_values(
	    type, T, (struct value_part){.v = v, .next = next, .dv = source->dv, .first = first, .end = end},
	    tile->score, tile->alpha, query);
	for (int t = 0; t < T; t++) {
		if (tile->end[t] > end)
			weighted_alone(source, v, tile->first[t] > end ? tile->end[t] : end, tile->end[t],
				       tile->score[t], 1.0f, &query[t]);
		if (tile->end[t] < TAPE_KV_BLOCK)
			add_zero(query[t].o, source->dv);
	}
}

PANEL_INLINE void attend_tile(const enum weight_type type, const int T, const struct attention_source *source,
			      size_t block, struct attention_tile next, struct score_tile *tile,
			      struct attention_query *query)
{
	raw_scores(type, T, query, source->k + block, source->dk, next.k, tile);
	for (int t = 0; t < T; t++)
		weigh(source, &query[t], tile->score[t], tile->first[t], tile->end[t], &tile->alpha[t]);
	weigh_values(type, T, source, source->v + block, next.v, tile, query);
}

/* One query alone: rare, so not inlined. */
static void attend_tile_alone(const struct attention_source *source, size_t block, int first, int end,
			      struct attention_query *query)
{
	struct score_tile tile = {.first = {first}, .end = {end}};

	if (first >= end)
		return;
	if (source->type == TYPE_Q8_0)
		attend_tile(TYPE_Q8_0, 1, source, block, source->ahead, &tile, query);
	else if (source->type == TYPE_BF16)
		attend_tile(TYPE_BF16, 1, source, block, source->ahead, &tile, query);
	else
		attend_tile(TYPE_F16, 1, source, block, source->ahead, &tile, query);
}

static int clamp_to_tile(uint32_t key, uint32_t tile)
{
	return key <= tile ? 0 : key - tile >= TAPE_KV_BLOCK ? TAPE_KV_BLOCK : (int)(key - tile);
}

static inline void begin_query(struct attention_query *query, uint32_t dv)
{
	query->m = -INFINITY;
	query->l = 0.0f;
	memset(query->o, 0, (dv + 15) / 16 * 16 * sizeof *query->o);
}

PANEL_INLINE void attend_queries(const enum weight_type type, const int T,
				 const struct attention_source *source, struct attention_query *query,
				 uint32_t from, uint32_t to)
{
	uint32_t end = 0;

	for (int t = 0; t < T; t++) {
		end = query[t].end > end ? query[t].end : end;
		if (from % TAPE_KV_SEGMENT == 0)
			begin_query(&query[t], source->dv);
	}
	for (uint32_t at = from; at < to && at < end; at += TAPE_KV_BLOCK) {
		struct score_tile tile;
		uint32_t next = at + TAPE_KV_BLOCK;
		int seen = 0;
		for (int t = 0; t < T; t++) {
			tile.first[t] = clamp_to_tile(query[t].first, at);
			tile.end[t] = clamp_to_tile(query[t].end, at);
			seen += tile.first[t] < tile.end[t];
		}
		size_t block = source->table[at / TAPE_KV_BLOCK] * source->block_bytes;
		if (seen == T)
			attend_tile(type, T, source, block,
				    next < to && next < end ? attention_tile(source, next) : source->ahead,
				    &tile, query);
		else
			for (int t = 0; t < T && seen; t++)
				attend_tile_alone(source, block, tile.first[t], tile.end[t], &query[t]);
	}
}

/* attend_<T> for each type */
#define ATTEND(T)                                                                                    \
	static void attend_##T(const struct attention_source *source, struct attention_query *query, \
			       uint32_t from, uint32_t to)                                           \
	{                                                                                            \
		if (source->type == TYPE_Q8_0)                                                       \
			attend_queries(TYPE_Q8_0, T, source, query, from, to);                       \
		else if (source->type == TYPE_BF16)                                                  \
			attend_queries(TYPE_BF16, T, source, query, from, to);                       \
		else                                                                                 \
			attend_queries(TYPE_F16, T, source, query, from, to);                        \
	}
ATTEND(1)
ATTEND(2)
#if VEC_QUERY_ROWS >= 3
ATTEND(3)
#endif
#if VEC_QUERY_ROWS >= 6
ATTEND(6)
#endif

static void isa_attend(const struct attention_source *source, struct attention_query *query, uint32_t n,
		       uint32_t from, uint32_t to)
{
#if VEC_QUERY_ROWS >= 6
	for (; n >= 6; n -= 6, query += 6)
		attend_6(source, query, from, to);
#endif
#if VEC_QUERY_ROWS >= 3
	for (; n >= 3; n -= 3, query += 3)
		attend_3(source, query, from, to);
#endif
	for (; n >= 2; n -= 2, query += 2)
		attend_2(source, query, from, to);
	if (n)
		attend_1(source, query, from, to);
}

static void isa_merge(float *M, float *L, float *O, const struct attention_query *from, uint32_t dv)
{
	float m = from->m > *M ? from->m : *M;
	float a = contract_exp(*M - m), b = contract_exp(from->m - m);

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
