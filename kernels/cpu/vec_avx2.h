/* Sixteen lanes as two AVX2 registers (with FMA and F16C); names as in vec_generic.h. */
#ifndef TOKENRING_KERNELS_CPU_VEC_AVX2_H
#define TOKENRING_KERNELS_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* VPMADDUBSW adds pairs in 16 bits: 255 * 127 * 2 would saturate, so biased bytes become signed ones and the
 * product is |w| * sign(x, w), at most 128 * 127 * 2 = 32,512. */
#define VEC_BIASED_DOT_IS_SIGNED 1
#define VEC_UNROLL(n)            _Pragma(VEC_TEXT(GCC unroll n))
#define VEC_TEXT(x)              #x
#define VEC_QUERY_ROWS           3
#define VEC_VALUE_CHUNKS         1

typedef struct {
	__m256 a, b;
} vf;

typedef struct {
	__m256i a, b;
} vi;

#define VF(first, second) ((vf){(first), (second)})
#define VI(first, second) ((vi){(first), (second)})

static inline vf vf_set1(float x)
{
	return VF(_mm256_set1_ps(x), _mm256_set1_ps(x));
}

static inline vf vf_zero(void)
{
	return VF(_mm256_setzero_ps(), _mm256_setzero_ps());
}

static inline vf vf_load(const float *x)
{
	return VF(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8));
}

static inline void vf_store(float *y, vf x)
{
	_mm256_storeu_ps(y, x.a);
	_mm256_storeu_ps(y + 8, x.b);
}

static inline vf vf_load_n(const float *x, uint32_t n)
{
	float all[16] = {0};
	memcpy(all, x, n * sizeof *x);
	return vf_load(all);
}

static inline void vf_store_n(float *y, vf x, uint32_t n)
{
	float all[16];
	vf_store(all, x);
	memcpy(y, all, n * sizeof *y);
}

static inline vf vf_from_f16(const uint16_t *x)
{
	return VF(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x)),
		  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + 8))));
}

static inline void vf_store_f16(uint16_t *y, vf x)
{
	_mm_storeu_si128((__m128i *)y, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
	_mm_storeu_si128((__m128i *)(y + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}

static inline __m256 vec_bf16_half(const uint16_t *x)
{
	__m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x));
	return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vf vf_from_bf16(const uint16_t *x)
{
	return VF(vec_bf16_half(x), vec_bf16_half(x + 8));
}

static inline vf vf_from_u8(const uint8_t *x)
{
	return VF(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)x))),
		  _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(x + 8)))));
}

static inline vf vf_from_vi(vi x)
{
	return VF(_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b));
}

static inline vf vf_add(vf a, vf b)
{
	return VF(_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b));
}

static inline vf vf_sub(vf a, vf b)
{
	return VF(_mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b));
}

static inline vf vf_mul(vf a, vf b)
{
	return VF(_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b));
}

static inline vf vf_div(vf a, vf b)
{
	return VF(_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b));
}

static inline vf vf_fma(vf a, vf b, vf c)
{
	return VF(_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b));
}

static inline vf vf_fma_from(const float *a, vf b, vf c)
{
	return vf_fma(vf_set1(*a), b, c);
}

static inline vf vf_max(vf a, vf b)
{
	return VF(_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b));
}

static inline __m256 vec_keep_half(__m256 x, __m256 y, int first, int end)
{
	__m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	__m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane);
	__m256i inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane);
	return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(_mm256_andnot_si256(before, inside)));
}

static inline vf vf_keep(vf x, vf y, int first, int end)
{
	return VF(vec_keep_half(x.a, y.a, first, end), vec_keep_half(x.b, y.b, first - 8, end - 8));
}

static inline vf vf_if_less(vf a, vf b, vf x, vf y)
{
	return VF(_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
		  _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ)));
}

static inline int vf_any_less(vf a, vf b)
{
	return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ),
					       _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ))) != 0;
}

/* The exponent is all ones. */
static inline __m256i vec_not_finite_half(__m256 x)
{
	__m256i exponent = _mm256_set1_epi32(0x7f800000);
	return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(x), exponent), exponent);
}

static inline int vf_any_not_finite(vf x)
{
	return _mm256_movemask_epi8(_mm256_or_si256(vec_not_finite_half(x.a), vec_not_finite_half(x.b))) != 0;
}

static inline vi vf_bits(vf x)
{
	return VI(_mm256_castps_si256(x.a), _mm256_castps_si256(x.b));
}

static inline vf vf_from_bits(vi x)
{
	return VF(_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b));
}

static inline float vf_tree(vf x)
{
	__m256 eight = _mm256_add_ps(x.a, x.b);
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
	return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

static inline float vf_max_lane(vf x)
{
	__m256 eight = _mm256_max_ps(x.a, x.b);
	__m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
	return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

static inline vi vi_set1(int32_t x)
{
	return VI(_mm256_set1_epi32(x), _mm256_set1_epi32(x));
}

static inline vi vi_load(const void *x)
{
	return VI(_mm256_loadu_si256((const __m256i *)x),
		  _mm256_loadu_si256((const __m256i *)((const char *)x + 32)));
}

static inline vi vi_from_s8(const int8_t *x)
{
	return VI(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)x)),
		  _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(x + 8))));
}

static inline vi vi_repeat(const void *x)
{
	int32_t word;
	memcpy(&word, x, sizeof word);
	return vi_set1(word);
}

static inline vi vi_add(vi a, vi b)
{
	return VI(_mm256_add_epi32(a.a, b.a), _mm256_add_epi32(a.b, b.b));
}

static inline vi vi_sub(vi a, vi b)
{
	return VI(_mm256_sub_epi32(a.a, b.a), _mm256_sub_epi32(a.b, b.b));
}

static inline vi vi_mul(vi a, vi b)
{
	return VI(_mm256_mullo_epi32(a.a, b.a), _mm256_mullo_epi32(a.b, b.b));
}

static inline vi vi_and(vi a, int32_t b)
{
	__m256i mask = _mm256_set1_epi32(b);
	return VI(_mm256_and_si256(a.a, mask), _mm256_and_si256(a.b, mask));
}

/* Macros, because the count must be a constant without optimisation, too. */
#define vi_shift_left(x, n)  VI(_mm256_slli_epi32((x).a, n), _mm256_slli_epi32((x).b, n))
#define vi_shift_right(x, n) VI(_mm256_srli_epi32((x).a, n), _mm256_srli_epi32((x).b, n))

static inline __m256i vec_dot_half(__m256i acc, __m256i w, __m256i x)
{
	__m256i pairs = _mm256_maddubs_epi16(w, x);
	return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* w at most 127. */
static inline vi vi_dot_unsigned(vi acc, vi w, vi x)
{
	return VI(vec_dot_half(acc.a, w.a, x.a), vec_dot_half(acc.b, w.b, x.b));
}

static inline __m256i vec_dot_biased_half(__m256i acc, __m256i biased, __m256i x)
{
	__m256i w = _mm256_xor_si256(biased, _mm256_set1_epi8(-128));
	return vec_dot_half(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

/* acc + sum of (w - 128) * x */
static inline vi vi_dot_biased(vi acc, vi w, vi x)
{
	return VI(vec_dot_biased_half(acc.a, w.a, x.a), vec_dot_biased_half(acc.b, w.b, x.b));
}

static inline vi vi_max(vi a, vi b)
{
	return VI(_mm256_max_epu32(a.a, b.a), _mm256_max_epu32(a.b, b.b));
}

static inline uint32_t vi_max_lane(vi x)
{
	__m256i eight = _mm256_max_epu32(x.a, x.b);
	__m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
	four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
	four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
	return (uint32_t)_mm_cvtsi128_si32(four);
}

static inline int32_t vi_sum(vi x)
{
	__m256i eight = _mm256_add_epi32(x.a, x.b);
	__m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
	four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
	four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
	return _mm_cvtsi128_si32(four);
}

static inline void vi_store_s8(int8_t *y, vi x)
{
	__m128i first = _mm_packs_epi32(_mm256_castsi256_si128(x.a), _mm256_extracti128_si256(x.a, 1));
	__m128i second = _mm_packs_epi32(_mm256_castsi256_si128(x.b), _mm256_extracti128_si256(x.b, 1));
	_mm_storeu_si128((__m128i *)y, _mm_packs_epi16(first, second));
}

static inline vi vi_opaque(vi x)
{
	__asm__ volatile("" : "+x"(x.a), "+x"(x.b));
	return x;
}

static inline __attribute__((always_inline)) void vec_prefetch(const void *address)
{
	_mm_prefetch((const char *)address, _MM_HINT_T0);
}

#endif
