/* The first half of attention: scores of queries with keys, and the weights that become of them. */
#ifndef TOKENRING_KERNELS_CPU_ISA_SCORES_H
#define TOKENRING_KERNELS_CPU_ISA_SCORES_H

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

/* Keys of F16 or BF16: an FMA chain over d ascending. Meanwhile the keys at `next` are prefetched. */
PANEL_INLINE void half_scores(const enum weight_type type, const int T, const struct attention_query *query,
			      const uint8_t *k, uint32_t dk, const uint8_t *next, vf acc[VEC_QUERY_ROWS][2])
{
	for (uint32_t d = 0; d < dk; d++, k += 64, next += 64) {
		vf k0 = kv_load(type, k), k1 = kv_load(type, k + 32);
		vec_prefetch(next);
		VEC_UNROLL(8)
		for (int t = 0; t < T; t++) {
			acc[t][0] = vf_fma_from(&query[t].q[d], k0, acc[t][0]);
			acc[t][1] = vf_fma_from(&query[t].q[d], k1, acc[t][1]);
		}
	}
}

/* Integer products of up to 32 of d, in `quads` of 4. */
PANEL_INLINE void quad_dots(const int T, const struct attention_query *query, uint32_t g, uint32_t quads,
			    const uint8_t *k, const uint8_t *next, vi dot[VEC_QUERY_ROWS][2])
{
	VEC_UNROLL(8)
	for (int t = 0; t < T; t++) {
		int32_t start = VEC_BIASED_DOT_IS_SIGNED ? 0 : -128 * query[t].q8[g].sum;
		dot[t][0] = dot[t][1] = vi_set1(start);
	}
	for (uint32_t i = 0; i < quads; i++, k += 128, next += 128) {
		vi k0 = vi_load(k), k1 = vi_load(k + 64);
		vec_prefetch(next);
		vec_prefetch(next + 64);
		VEC_UNROLL(8)
		for (int t = 0; t < T; t++) {
			vi q = vi_repeat(query[t].q8[g].q + 4 * i);
			dot[t][0] = vi_dot_biased(dot[t][0], k0, q);
			dot[t][1] = vi_dot_biased(dot[t][1], k1, q);
		}
	}
}

/* Keys of Q8_0: contract_key_scores. */
PANEL_INLINE void quantised_scores(const int T, const struct attention_query *query, const uint8_t *k,
				   uint32_t dk, const uint8_t *next, vf acc[VEC_QUERY_ROWS][2])
{
	const size_t scales = kv_scales_bytes(TYPE_Q8_0, dk);

	for (uint32_t d = 0; d < dk; d += KV_GROUP) {
		const uint16_t *scale = (const uint16_t *)k + d;
		uint32_t left = dk - d < KV_GROUP ? dk - d : KV_GROUP;
		size_t at = scales + (size_t)d * TAPE_KV_BLOCK;
		vi dot[VEC_QUERY_ROWS][2];
		vec_prefetch(next + 2 * (size_t)d);
		quad_dots(T, query, d / KV_GROUP, (left + 3) / 4, k + at, next + at, dot);
		vf s0 = vf_from_f16(scale), s1 = vf_from_f16(scale + 16);
		VEC_UNROLL(8)
		for (int t = 0; t < T; t++) {
			vf s = vf_set1(query[t].q8[d / KV_GROUP].s);
			acc[t][0] = vf_fma(vf_from_vi(dot[t][0]), vf_mul(s0, s), acc[t][0]);
			acc[t][1] = vf_fma(vf_from_vi(dot[t][1]), vf_mul(s1, s), acc[t][1]);
		}
	}
}

PANEL_INLINE void raw_scores(const enum weight_type type, const int T, const struct attention_query *query,
			     const uint8_t *k, uint32_t dk, const uint8_t *next,
			     float (*score)[TAPE_KV_BLOCK])
{
	vf acc[VEC_QUERY_ROWS][2];

	VEC_UNROLL(8)
	for (int t = 0; t < T; t++)
		acc[t][0] = acc[t][1] = vf_zero();
	if (type == TYPE_Q8_0)
		quantised_scores(T, query, k, dk, next, acc);
	else
		half_scores(type, T, query, k, dk, next, acc);
	VEC_UNROLL(8)
	for (int t = 0; t < T; t++) {
		vf_store(score[t], acc[t][0]);
		vf_store(score[t] + 16, acc[t][1]);
	}
}

/* Times scale, softcapped; the largest of [first, end). */
static inline float scale_scores(const struct attention_source *source, float *score, int first, int end)
{
	const vf least = vf_set1(-INFINITY), scale = vf_set1(source->scale);
	vf s0 = vf_mul(vf_load(score), scale), s1 = vf_mul(vf_load(score + 16), scale);

	vf_store(score, s0);
	vf_store(score + 16, s1);
	if (source->softcap != 0.0f) {
		for (int j = 0; j < TAPE_KV_BLOCK; j++)
			score[j] = contract_softcap(score[j], source->softcap);
		s0 = vf_load(score);
		s1 = vf_load(score + 16);
	}
	if (first != 0 || end != TAPE_KV_BLOCK) {
		s0 = vf_keep(s0, least, first, end);
		s1 = vf_keep(s1, least, first - 16, end - 16);
	}
	return vf_max_lane(vf_max(s0, s1));
}

/* Scores to weights; their sum. */
static inline float weigh_scores(float *score, float m, int first, int end)
{
	vf p0 = vf_exp(vf_sub(vf_load(score), vf_set1(m)));
	vf p1 = vf_exp(vf_sub(vf_load(score + 16), vf_set1(m)));

	if (first != 0 || end != TAPE_KV_BLOCK) {
		p0 = vf_keep(p0, vf_zero(), first, end);
		p1 = vf_keep(p1, vf_zero(), first - 16, end - 16);
	}
	vf_store(score, p0);
	vf_store(score + 16, p1);
	return vf_tree(vf_add(p0, p1));
}

/* The maximum with a tile whose largest score is `now`; alpha, with which what was summed before is
 * multiplied. exp(0) is 1 exactly, so an unchanged maximum needs none. */
static inline float raise_maximum(struct attention_query *query, float now)
{
	float before = query->m, m = now > before ? now : before;

	query->m = m;
	return before == -INFINITY ? 0.0f : m == before ? 1.0f : contract_exp(before - m);
}

/* One tile of one query, of which it sees [first, end). */
static inline void weigh(const struct attention_source *source, struct attention_query *query, float *score,
			 int first, int end, float *ret_alpha)
{
	*ret_alpha = raise_maximum(query, scale_scores(source, score, first, end));
	query->l = fmaf(query->l, *ret_alpha, weigh_scores(score, query->m, first, end));
}

#endif
