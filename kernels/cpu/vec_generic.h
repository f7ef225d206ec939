/* Sixteen lanes in plain C, for any machine. vec_avx2.h and vec_avx512vnni.h give the same names. */
#ifndef TOKENRING_KERNELS_CPU_VEC_GENERIC_H
#define TOKENRING_KERNELS_CPU_VEC_GENERIC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/formats.h"

/* vf_dot_biased takes biased bytes and subtracts nothing: its accumulator begins at -128 S. */
#define VEC_BIASED_DOT_IS_SIGNED 0
/* Unrolling loops over lanes as well would take a compiler minutes. */
#define VEC_UNROLL(n)
#define VEC_QUERY_ROWS   2 /* query vectors of an attention tile */
#define VEC_VALUE_CHUNKS 2 /* of 16 values that stay in registers */

typedef struct {
	float lane[16];
} vf;

typedef struct {
	int32_t lane[16];
} vi;

#define EACH_LANE for (int i = 0; i < 16; i++)

static inline vf vf_set1(float x)
{
	vf y;
	EACH_LANE y.lane[i] = x;
	return y;
}

static inline vf vf_zero(void)
{
	return vf_set1(0.0f);
}

static inline vf vf_load(const float *x)
{
	vf y;
	memcpy(&y, x, sizeof y);
	return y;
}

static inline void vf_store(float *y, vf x)
{
	memcpy(y, &x, sizeof x);
}

/* Lanes from n on are zero. */
static inline vf vf_load_n(const float *x, uint32_t n)
{
	vf y = vf_zero();
	memcpy(&y, x, n * sizeof *x);
	return y;
}

static inline void vf_store_n(float *y, vf x, uint32_t n)
{
	memcpy(y, &x, n * sizeof *y);
}

static inline vf vf_from_f16(const uint16_t *x)
{
	vf y;
	EACH_LANE y.lane[i] = f16_to_f32(x[i]);
	return y;
}

/* Ties to even, subnormal halves kept in spite of FTZ. */
static inline void vf_store_f16(uint16_t *y, vf x)
{
	EACH_LANE y[i] = f16_from_f32(x.lane[i]);
}

static inline vf vf_from_bf16(const uint16_t *x)
{
	vf y;
	EACH_LANE y.lane[i] = bf16_to_f32(x[i]);
	return y;
}

static inline vf vf_from_u8(const uint8_t *x)
{
	vf y;
	EACH_LANE y.lane[i] = (float)x[i];
	return y;
}

static inline vf vf_from_vi(vi x)
{
	vf y;
	EACH_LANE y.lane[i] = (float)x.lane[i];
	return y;
}

static inline vf vf_add(vf a, vf b)
{
	EACH_LANE a.lane[i] = a.lane[i] + b.lane[i];
	return a;
}

static inline vf vf_sub(vf a, vf b)
{
	EACH_LANE a.lane[i] = a.lane[i] - b.lane[i];
	return a;
}

static inline vf vf_mul(vf a, vf b)
{
	EACH_LANE a.lane[i] = a.lane[i] * b.lane[i];
	return a;
}

static inline vf vf_div(vf a, vf b)
{
	EACH_LANE a.lane[i] = a.lane[i] / b.lane[i];
	return a;
}

/* a * b + c, rounded once */
static inline vf vf_fma(vf a, vf b, vf c)
{
	EACH_LANE c.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i]);
	return c;
}

/* *a * b + c: for a number that is used once or twice. */
static inline vf vf_fma_from(const float *a, vf b, vf c)
{
	return vf_fma(vf_set1(*a), b, c);
}

/* The larger; b if one is NaN. */
static inline vf vf_max(vf a, vf b)
{
	EACH_LANE a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
	return a;
}

/* Lanes [first, end) of x, the others of y. */
static inline vf vf_keep(vf x, vf y, int first, int end)
{
	EACH_LANE y.lane[i] = i >= first && i < end ? x.lane[i] : y.lane[i];
	return y;
}

/* x where a < b, else y; y where one is NaN. */
static inline vf vf_if_less(vf a, vf b, vf x, vf y)
{
	EACH_LANE y.lane[i] = a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i];
	return y;
}

/* Whether a < b in any lane. */
static inline int vf_any_less(vf a, vf b)
{
	int any = 0;
	EACH_LANE any |= a.lane[i] < b.lane[i];
	return any;
}

/* Whether any lane is infinite or not a number. */
static inline int vf_any_not_finite(vf x)
{
	int any = 0;
	EACH_LANE any |= (float_bits(x.lane[i]) & 0x7fffffffu) >= 0x7f800000u;
	return any;
}

static inline vi vf_bits(vf x)
{
	vi y;
	memcpy(&y, &x, sizeof y);
	return y;
}

static inline vf vf_from_bits(vi x)
{
	vf y;
	memcpy(&y, &x, sizeof y);
	return y;
}

/* The contract's tree: +8, +4, +2, +1. */
static inline float vf_tree(vf x)
{
	for (int step = 8; step; step /= 2)
		for (int i = 0; i < step; i++)
			x.lane[i] = x.lane[i] + x.lane[i + step];
	return x.lane[0];
}

static inline float vf_max_lane(vf x)
{
	float y = x.lane[0];
	EACH_LANE y = x.lane[i] > y ? x.lane[i] : y;
	return y;
}

static inline vi vi_set1(int32_t x)
{
	vi y;
	EACH_LANE y.lane[i] = x;
	return y;
}

static inline vi vi_load(const void *x)
{
	vi y;
	memcpy(&y, x, sizeof y);
	return y;
}

static inline vi vi_from_s8(const int8_t *x)
{
	vi y;
	EACH_LANE y.lane[i] = x[i];
	return y;
}

/* Four bytes, repeated. */
static inline vi vi_repeat(const void *x)
{
	int32_t word;
	memcpy(&word, x, sizeof word);
	return vi_set1(word);
}

static inline vi vi_add(vi a, vi b)
{
	EACH_LANE a.lane[i] = (int32_t)((uint32_t)a.lane[i] + (uint32_t)b.lane[i]);
	return a;
}

static inline vi vi_sub(vi a, vi b)
{
	EACH_LANE a.lane[i] = (int32_t)((uint32_t)a.lane[i] - (uint32_t)b.lane[i]);
	return a;
}

static inline vi vi_mul(vi a, vi b)
{
	EACH_LANE a.lane[i] = a.lane[i] * b.lane[i];
	return a;
}

static inline vi vi_and(vi a, int32_t b)
{
	EACH_LANE a.lane[i] &= b;
	return a;
}

#define vi_shift_left(x, n)  vi_shift_left_n(x, n)
#define vi_shift_right(x, n) vi_shift_right_n(x, n)

static inline vi vi_shift_left_n(vi a, int n)
{
	EACH_LANE a.lane[i] = (int32_t)((uint32_t)a.lane[i] << n);
	return a;
}

static inline vi vi_shift_right_n(vi a, int n)
{
	EACH_LANE a.lane[i] = (int32_t)((uint32_t)a.lane[i] >> n);
	return a;
}

/* acc + sum of four products of unsigned w and signed x in each lane. */
static inline vi vi_dot_unsigned(vi acc, vi w, vi x)
{
	const uint8_t *a = (const uint8_t *)&w;
	const int8_t *b = (const int8_t *)&x;

	EACH_LANE for (int c = 0; c < 4; c++) acc.lane[i] += a[4 * i + c] * b[4 * i + c];
	return acc;
}

static inline vi vi_dot_biased(vi acc, vi w, vi x)
{
	return vi_dot_unsigned(acc, w, x);
}

/* The larger as unsigned numbers. */
static inline vi vi_max(vi a, vi b)
{
	EACH_LANE a.lane[i] = (uint32_t)a.lane[i] > (uint32_t)b.lane[i] ? a.lane[i] : b.lane[i];
	return a;
}

static inline uint32_t vi_max_lane(vi x)
{
	uint32_t y = 0;
	EACH_LANE y = (uint32_t)x.lane[i] > y ? (uint32_t)x.lane[i] : y;
	return y;
}

static inline int32_t vi_sum(vi x)
{
	int32_t y = 0;
	EACH_LANE y += x.lane[i];
	return y;
}

/* Lanes of -128 .. 127 as bytes. */
static inline void vi_store_s8(int8_t *y, vi x)
{
	EACH_LANE y[i] = (int8_t)x.lane[i];
}

/* x, of which the compiler believes nothing. */
static inline vi vi_opaque(vi x)
{
	vi *p = &x;
	__asm__ volatile("" : "+r"(p) : : "memory");
	return *p;
}

/* Always inlined: GCC 12 takes a function that only prefetches for one without effect, and drops its calls
 * before it would inline them. */
static inline __attribute__((always_inline)) void vec_prefetch(const void *address)
{
	__builtin_prefetch(address);
}

#undef EACH_LANE
#endif
