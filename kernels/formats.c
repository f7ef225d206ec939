#include "kernels/formats.h"

#include <errno.h>

#define ASSERT_BYTES(name, bytes) \
	_Static_assert(sizeof(struct block_##name) == (bytes), "block_" #name " has padding")
ASSERT_BYTES(q4_0, 18);
ASSERT_BYTES(q4_1, 20);
ASSERT_BYTES(q5_0, 22);
ASSERT_BYTES(q5_1, 24);
ASSERT_BYTES(q8_0, 34);
ASSERT_BYTES(q2_k, 84);
ASSERT_BYTES(q3_k, 110);
ASSERT_BYTES(q4_k, 144);
ASSERT_BYTES(q5_k, 176);
ASSERT_BYTES(q6_k, 210);

bool weight_type_has_min(enum weight_type type)
{
	return type == TYPE_Q4_1 || type == TYPE_Q5_1 || type == TYPE_Q2_K || type == TYPE_Q4_K ||
	       type == TYPE_Q5_K;
}

static void nibbles(const uint8_t qs[16], int offset, int8_t q[BLOCK_COLUMNS])
{
	for (int j = 0; j < 16; j++) {
		q[j] = (int8_t)((qs[j] & 15) - offset);
		q[j + 16] = (int8_t)((qs[j] >> 4) - offset);
	}
}

static void fifth_bits(const uint8_t qh[4], int8_t q[BLOCK_COLUMNS])
{
	for (int j = 0; j < BLOCK_COLUMNS; j++)
		q[j] = (int8_t)(q[j] + 16 * (qh[j / 8] >> (j % 8) & 1));
}

static void decode_q4_0(const struct block_q4_0 *block, uint32_t b, struct weight_block *ret)
{
	ret->d = f16_to_f32(block->d);
	nibbles(block->qs, 8, ret->q);
}

static void decode_q4_1(const struct block_q4_1 *block, uint32_t b, struct weight_block *ret)
{
	ret->d = f16_to_f32(block->d);
	ret->m = f16_to_f32(block->m);
	nibbles(block->qs, 0, ret->q);
}

static void decode_q5_0(const struct block_q5_0 *block, uint32_t b, struct weight_block *ret)
{
	ret->d = f16_to_f32(block->d);
	nibbles(block->qs, 16, ret->q);
	fifth_bits(block->qh, ret->q);
}

static void decode_q5_1(const struct block_q5_1 *block, uint32_t b, struct weight_block *ret)
{
	ret->d = f16_to_f32(block->d);
	ret->m = f16_to_f32(block->m);
	nibbles(block->qs, 0, ret->q);
	fifth_bits(block->qh, ret->q);
}

static void decode_q8_0(const struct block_q8_0 *block, uint32_t b, struct weight_block *ret)
{
	ret->d = f16_to_f32(block->d);
	memcpy(ret->q, block->qs, BLOCK_COLUMNS);
}

static void decode_q2_k(const struct block_q2_k *block, uint32_t b, struct weight_block *ret)
{
	ret->d = f16_to_f32(block->d);
	ret->m = -f16_to_f32(block->dmin);
	for (int h = 0; h < 2; h++) {
		ret->scale[h] = block->scales[2 * b + (uint32_t)h] & 15;
		ret->min[h] = block->scales[2 * b + (uint32_t)h] >> 4;
	}
	for (int l = 0; l < BLOCK_COLUMNS; l++)
		ret->q[l] = block->qs[32 * (b / 4) + (uint32_t)l] >> 2 * (b % 4) & 3;
}

static int q3_k_scale(const uint8_t scales[12], uint32_t i)
{
	int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
	return (low | (scales[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
}

static void decode_q3_k(const struct block_q3_k *block, uint32_t b, struct weight_block *ret)
{
	ret->d = f16_to_f32(block->d);
	for (int h = 0; h < 2; h++)
		ret->scale[h] = (int8_t)q3_k_scale(block->scales, 2 * b + (uint32_t)h);
	for (int l = 0; l < BLOCK_COLUMNS; l++) {
		int low = block->qs[32 * (b / 4) + (uint32_t)l] >> 2 * (b % 4) & 3;
		ret->q[l] = (int8_t)(low - (block->hmask[l] >> b & 1 ? 0 : 4));
	}
}

/* The packing that Q4_K and Q5_K share (get_scale_min_k4 of ggml). */
static void scale_and_min(const uint8_t s[12], uint32_t b, int *ret_scale, int *ret_min)
{
	if (b < 4) {
		*ret_scale = s[b] & 63;
		*ret_min = s[b + 4] & 63;
	} else {
		*ret_scale = (s[b + 4] & 15) | s[b - 4] >> 6 << 4;
		*ret_min = s[b + 4] >> 4 | s[b] >> 6 << 4;
	}
}

static void scaled_minimum(uint16_t d, uint16_t dmin, const uint8_t scales[12], uint32_t b,
			   struct weight_block *ret)
{
	int scale, min;

	scale_and_min(scales, b, &scale, &min);
	ret->d = f16_to_f32(d) * (float)scale;
	ret->m = -(f16_to_f32(dmin) * (float)min);
}

static void decode_q4_k(const struct block_q4_k *block, uint32_t b, struct weight_block *ret)
{
	scaled_minimum(block->d, block->dmin, block->scales, b, ret);
	for (int l = 0; l < BLOCK_COLUMNS; l++)
		ret->q[l] = block->qs[32 * (b / 2) + (uint32_t)l] >> 4 * (b % 2) & 15;
}

static void decode_q5_k(const struct block_q5_k *block, uint32_t b, struct weight_block *ret)
{
	scaled_minimum(block->d, block->dmin, block->scales, b, ret);
	for (int l = 0; l < BLOCK_COLUMNS; l++) {
		int low = block->qs[32 * (b / 2) + (uint32_t)l] >> 4 * (b % 2) & 15;
		ret->q[l] = (int8_t)(low | (block->qh[l] >> b & 1) << 4);
	}
}

static void decode_q6_k(const struct block_q6_k *block, uint32_t b, struct weight_block *ret)
{
	uint32_t half = b / 4, j = b % 4;

	ret->d = f16_to_f32(block->d);
	ret->scale[0] = block->scales[2 * b];
	ret->scale[1] = block->scales[2 * b + 1];
	for (uint32_t l = 0; l < BLOCK_COLUMNS; l++) {
		int low = block->ql[64 * half + 32 * (j % 2) + l] >> 4 * (j / 2) & 15;
		int high = block->qh[32 * half + l] >> 2 * j & 3;
		ret->q[l] = (int8_t)((low | high << 4) - 32);
	}
}

int weight_block_decode(enum weight_type type, const void *row, uint32_t b, struct weight_block *ret)
{
	uint32_t per = weight_type_info[type].block_weights / BLOCK_COLUMNS, sub = per ? b % per : 0;
	const void *block =
	    (const uint8_t *)row + (per ? (uint64_t)(b / per) : 0) * weight_type_info[type].block_bytes;

	*ret = (struct weight_block){.has_min = weight_type_has_min(type), .scale = {1, 1}, .min = {1, 1}};
	switch (type) {
#define CASE(TYPE, name)                        \
	case TYPE:                              \
		decode_##name(block, sub, ret); \
		break
		CASE(TYPE_Q4_0, q4_0);
		CASE(TYPE_Q4_1, q4_1);
		CASE(TYPE_Q5_0, q5_0);
		CASE(TYPE_Q5_1, q5_1);
		CASE(TYPE_Q8_0, q8_0);
		CASE(TYPE_Q2_K, q2_k);
		CASE(TYPE_Q3_K, q3_k);
		CASE(TYPE_Q4_K, q4_k);
		CASE(TYPE_Q5_K, q5_k);
		CASE(TYPE_Q6_K, q6_k);
#undef CASE
	default:
		return -EINVAL;
	}
	return float_finite(ret->d) && float_finite(ret->m) ? 0 : -EDOM;
}

static void dequantise_block(const struct weight_block *block, float *ret)
{
	for (int j = 0; j < BLOCK_COLUMNS; j++) {
		float value = block->d * (float)block->scale[j / 16] * (float)block->q[j];
		ret[j] = block->has_min ? value + block->m * (float)block->min[j / 16] : value;
	}
}

static void widen(enum weight_type type, const void *row, uint32_t n, float *ret)
{
	if (type == TYPE_F32) {
		memcpy(ret, row, (size_t)n * sizeof *ret);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint16_t half;
		memcpy(&half, (const uint8_t *)row + 2 * (size_t)i, sizeof half);
		ret[i] = type == TYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
	}
}

void weight_dequantise(enum weight_type type, const void *row, uint32_t n, float *ret)
{
	struct weight_block block;

	if (!weight_type_quantised(type)) {
		widen(type, row, n, ret);
		return;
	}
	for (uint32_t b = 0; b < n / BLOCK_COLUMNS; b++) {
		weight_block_decode(type, row, b, &block);
		dequantise_block(&block, ret + (size_t)b * BLOCK_COLUMNS);
	}
}
