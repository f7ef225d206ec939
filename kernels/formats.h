/* Weights as they lie in a GGUF file: block structures, scalar decoding, and half-precision conversions.
 *
 * Decoding has two shapes. weight_dequantise gives the f32 values that ggml defines, bit for bit. A
 * weight_block is the integer view on which the int8 contract (contract.h) is defined: 32 columns as small
 * integers with their scales. Thread rule: pure functions; no allocation; not affected by FTZ or DAZ save in
 * the products of weight_dequantise.
 * Source: the block structures of ggml-common.h and dequantize_row_* of ggml-quants.c (llama.cpp). */
#ifndef TOKENRING_KERNELS_FORMATS_H
#define TOKENRING_KERNELS_FORMATS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/types.h"

enum {
	BLOCK_COLUMNS = 32, /* columns of a weight_block and of a quantised activation block */
	SUPER_COLUMNS = 256 /* columns of a K-quant super-block */
};

/* Little-endian, no padding: every member is bytes or uint16_t at an even offset. */
struct block_q4_0 {
	uint16_t d;     /* f16 */
	uint8_t qs[16]; /* low nibble: column j, high: column j + 16; the weight is d * (q - 8) */
};
struct block_q4_1 {
	uint16_t d, m; /* d * q + m */
	uint8_t qs[16];
};
struct block_q5_0 {
	uint16_t d;
	uint8_t qh[4]; /* bit j: fifth bit of column j; d * (q - 16) */
	uint8_t qs[16];
};
struct block_q5_1 {
	uint16_t d, m;
	uint8_t qh[4];
	uint8_t qs[16];
};
struct block_q8_0 {
	uint16_t d;
	int8_t qs[32];
};
struct block_q2_k {
	uint8_t scales[16]; /* 16 columns each: low nibble scale, high nibble minimum */
	uint8_t qs[64];     /* 128 columns in 32 bytes: columns 32 j + l in bits 2 j of byte l */
	uint16_t d, dmin;
};
struct block_q3_k {
	uint8_t hmask[32];  /* bit b of byte l: column 32 b + l has its third bit */
	uint8_t qs[64];     /* as in Q2_K */
	uint8_t scales[12]; /* sixteen 6-bit scales, biased by 32 */
	uint16_t d;
};
struct block_q4_k {
	uint16_t d, dmin;
	uint8_t scales[12]; /* eight 6-bit scales and minima, packed by get_scale_min_k4 */
	uint8_t qs[128];    /* 64 columns in 32 bytes: low nibbles, then high */
};
struct block_q5_k {
	uint16_t d, dmin;
	uint8_t scales[12];
	uint8_t qh[32]; /* bit b of byte l: fifth bit of column 32 b + l */
	uint8_t qs[128];
};
struct block_q6_k {
	uint8_t ql[128]; /* 128 columns in 64 bytes: low nibbles of 64 columns, then high */
	uint8_t qh[64];  /* 128 columns in 32 bytes: columns 32 j + l in bits 2 j of byte l */
	int8_t scales[16];
	uint16_t d;
};

/* Columns [32 b, 32 b + 32) of a row. The weight of column j is d * (scale[j / 16] * q[j]), plus m * min[j /
 * 16] where has_min. scale and min are 1 except: Q6_K and Q3_K (scale), Q2_K (both). */
struct weight_block {
	float d, m;
	bool has_min;
	int8_t scale[2], min[2];
	int8_t q[BLOCK_COLUMNS];
};

/* True for all but F32, F16, BF16: the matmul quantises activations to int8. */
static inline bool weight_type_quantised(enum weight_type type)
{
	return weight_type_info[type].block_weights > 1;
}

/* True if the view has a minimum: Q4_1, Q5_1, Q2_K, Q4_K, Q5_K. */
bool weight_type_has_min(enum weight_type);

/* Block b (of 32 columns) of a row of a quantised type. -EDOM: a scale or minimum is not finite (*ret is
 * written all the same). */
int weight_block_decode(enum weight_type, const void *row, uint32_t b, struct weight_block *ret);

/* n weights, a multiple of the type's block, as f32. */
void weight_dequantise(enum weight_type, const void *row, uint32_t n, float *ret);

static inline uint32_t float_bits(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

static inline float float_from_bits(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static inline bool float_finite(float value)
{
	return (float_bits(value) & 0x7f800000u) != 0x7f800000u;
}

/* Exact. A signalling NaN becomes quiet, as VCVTPH2PS makes it. */
static inline float f16_to_f32(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
	uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ffu;

	if (exponent == 0x1f)
		return float_from_bits(sign | 0x7f800000u | (mantissa ? mantissa << 13 | 0x400000u : 0));
	if (exponent)
		return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
	if (!mantissa)
		return float_from_bits(sign);
	/* Subnormal: m * 2^-24 by moving the leading bit to bit 10. */
	uint32_t shift = (uint32_t)__builtin_clz(mantissa) - 21;
	return float_from_bits(sign | (113 - shift) << 23 | (mantissa << shift & 0x3ffu) << 13);
}

/* Ties to even; subnormal halves are kept whatever FTZ says (integer arithmetic, equal to VCVTPS2PH).
 * Too large or infinite: an infinity, which f16_finite finds; NaN: a quiet NaN. */
static inline uint16_t f16_from_f32(float value)
{
	uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000u;
	bits &= 0x7fffffffu;

	if (bits > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
	if (bits >= 0x477ff000u) /* 65520 and above round to 2^16 */
		return (uint16_t)(sign | 0x7c00u);
	if (bits < 0x33000001u) /* up to 2^-25, the tie to zero included */
		return (uint16_t)sign;
	if (bits < 0x38800000u) {                    /* below 2^-14: a multiple of 2^-24 */
		uint32_t shift = 126 - (bits >> 23); /* 14 .. 24 */
		uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u;
		uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1);
		uint32_t half = 1u << (shift - 1);
		return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1)))));
	}
	bits += 0xfffu + (bits >> 13 & 1);
	return (uint16_t)(sign | (bits - 0x38000000u) >> 13);
}

static inline bool f16_finite(uint16_t half)
{
	return (half & 0x7c00u) != 0x7c00u;
}

/* Exact. */
static inline float bf16_to_f32(uint16_t half)
{
	return float_from_bits((uint32_t)half << 16);
}

/* Ties to even; subnormals kept; NaN stays NaN. */
static inline uint16_t bf16_from_f32(float value)
{
	uint32_t bits = float_bits(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x40u);
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#endif
