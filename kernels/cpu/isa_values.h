/* The second half of attention: sums of values by weight. */
#ifndef TOKENRING_KERNELS_CPU_ISA_VALUES_H
#define TOKENRING_KERNELS_CPU_ISA_VALUES_H

#include "kernels/cpu/isa_scores.h"

/* A part of the values of a tile: columns from d on of tokens [first, end). */
struct value_part {
	const uint8_t *v, *next; /* of the tile, and of what is prefetched meanwhile */
	uint32_t dv, d;
	int first, end;
};

/* Weights times the scales of a group of Q8_0. Those of keys that are not seen may be anything. */
PANEL_INLINE void scale_weights(const struct value_part *part, uint32_t d, const float *p, float *ret)
{
	const uint16_t *scale = (const uint16_t *)part->v + d / KV_GROUP * TAPE_KV_BLOCK;

	vf_store(ret, vf_mul(vf_load(p), vf_from_f16(scale)));
	vf_store(ret + 16, vf_mul(vf_load(p + 16), vf_from_f16(scale + 16)));
}

enum { VEC_VALUE_GROUPS = (VEC_VALUE_CHUNKS + 1) / 2 };

/* o = o * alpha, then o = fma(weight_j, v_j, o) for j in [first, end), on C chunks of 16 values; d is a
 * multiple of 32 if C is not 1. Meanwhile the same part of the values at `next` is prefetched. */
PANEL_INLINE void weighted_chunks(const enum weight_type type, const int T, const int C,
				  const struct value_part *part, float (*p)[TAPE_KV_BLOCK],
				  const float *alpha, struct attention_query *query)
{
	const size_t bytes = kv_element_bytes(type), scales = kv_scales_bytes(type, part->dv);
	vf o[VEC_QUERY_ROWS][VEC_VALUE_CHUNKS];
	float scaled[VEC_QUERY_ROWS][VEC_VALUE_GROUPS][TAPE_KV_BLOCK];

	VEC_UNROLL(8)
	for (int t = 0; t < T; t++)
		VEC_UNROLL(4)
	for (int c = 0; c < C; c++) {
		o[t][c] = vf_mul(vf_load(query[t].o + part->d + 16 * c), vf_set1(alpha[t]));
		if (type == TYPE_Q8_0 && c % 2 == 0)
			scale_weights(part, part->d + 16 * c, p[t], scaled[t][c / 2]);
	}
	for (int j = part->first; j < part->end; j++) {
		size_t at = scales + ((size_t)j * part->dv + part->d) * bytes;
		vf value[VEC_VALUE_CHUNKS];
		VEC_UNROLL(4)
		for (int c = 0; c < C; c++)
			value[c] = kv_load(type, part->v + at + 16 * c * bytes);
		VEC_UNROLL(4)
		for (int c = 0; c < C; c += (int)(4 / bytes))
			vec_prefetch(part->next + at + 16 * c * bytes);
		VEC_UNROLL(8)
		for (int t = 0; t < T; t++)
			VEC_UNROLL(4)
		for (int c = 0; c < C; c++)
			o[t][c] = vf_fma_from(type == TYPE_Q8_0 ? &scaled[t][c / 2][j] : &p[t][j], value[c],
					      o[t][c]);
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
	float scaled[TAPE_KV_BLOCK];

	if (type == TYPE_Q8_0)
		scale_weights(part, part->d, p, scaled);
	for (int j = part->first; j < part->end; j++) {
		uint8_t padded[32] = {0};
		memcpy(padded, part->v + scales + ((size_t)j * part->dv + part->d) * bytes,
		       (part->dv - part->d) * bytes);
		sum = vf_fma_from(type == TYPE_Q8_0 ? &scaled[j] : &p[j], kv_load(type, padded), sum);
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

/* The keys [first, end) of a tile that each query sees. */
struct tile_mask {
	int first[ATTEND_QUERIES], end[ATTEND_QUERIES];
};

/* Keys that all T queries see together are summed together; what only some see, query by query, before and
 * after. */
PANEL_INLINE void weigh_values(const enum weight_type type, const int T,
			       const struct attention_source *source, const uint8_t *v, const uint8_t *next,
			       const int *mask_first, const int *mask_end, float (*p)[TAPE_KV_BLOCK],
			       float *alpha, struct attention_query *query)
{
	int first = 0, end = TAPE_KV_BLOCK;

	for (int t = 0; t < T; t++) {
		first = mask_first[t] > first ? mask_first[t] : first;
		end = mask_end[t] < end ? mask_end[t] : end;
	}
	end = end < first ? first : end;
	for (int t = 0; t < T; t++) {
		int until = mask_end[t] < first ? mask_end[t] : first;
		if (mask_first[t] == 0 && first == 0)
			continue;
		weighted_alone(source, v, 0, 0, p[t], alpha[t], &query[t]);
		if (mask_first[t] > 0)
			add_zero(query[t].o, source->dv);
		weighted_alone(source, v, mask_first[t], until, p[t], 1.0f, &query[t]);
		alpha[t] = 1.0f;
	}
	weighted_values(
	    type, T, (struct value_part){.v = v, .next = next, .dv = source->dv, .first = first, .end = end},
	    p, alpha, query);
	for (int t = 0; t < T; t++) {
		if (mask_end[t] > end)
			weighted_alone(source, v, mask_first[t] > end ? mask_end[t] : end, mask_end[t], p[t],
				       1.0f, &query[t]);
		if (mask_end[t] < TAPE_KV_BLOCK)
			add_zero(query[t].o, source->dv);
	}
}

#endif
