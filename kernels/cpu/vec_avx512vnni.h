/* Sixteen lanes as one AVX-512 register (F, BW, VL, DQ, VNNI); names as in vec_generic.h. */
#ifndef TOKENRING_KERNELS_CPU_VEC_AVX512VNNI_H
#define TOKENRING_KERNELS_CPU_VEC_AVX512VNNI_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_BIASED_DOT_IS_SIGNED 0
#define VEC_UNROLL(n)            _Pragma(VEC_TEXT(GCC unroll n))
#define VEC_TEXT(x)              #x
#define VEC_QUERY_ROWS           6
#define VEC_VALUE_CHUNKS         4

typedef __m512 vf;
typedef __m512i vi;

static inline vf vf_set1(float x)
{
	return _mm512_set1_ps(x);
}

static inline vf vf_zero(void)
{
	return _mm512_setzero_ps();
}

static inline vf vf_load(const float *x)
{
	return _mm512_loadu_ps(x);
}

static inline void vf_store(float *y, vf x)
{
	_mm512_storeu_ps(y, x);
}

static inline vf vf_load_n(const float *x, uint32_t n)
{
	return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), x);
}

static inline void vf_store_n(float *y, vf x, uint32_t n)
{
	_mm512_mask_storeu_ps(y, (__mmask16)((1u << n) - 1), x);
}

static inline vf vf_from_f16(const uint16_t *x)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x));
}

static inline void vf_store_f16(uint16_t *y, vf x)
{
	_mm256_storeu_si256((__m256i *)y, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline vf vf_from_bf16(const uint16_t *x)
{
	__m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x));
	return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline vf vf_from_u8(const uint8_t *x)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)x)));
}

static inline vf vf_from_vi(vi x)
{
	return _mm512_cvtepi32_ps(x);
}

static inline vf vf_add(vf a, vf b)
{
	return _mm512_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
	return _mm512_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
	return _mm512_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
	return _mm512_div_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
	return _mm512_fmadd_ps(a, b, c);
}

/* Spelt out, because compilers load the number once for all that use it: as an instruction of its own, which
 * Zen 4 runs where it runs FMA (attention with 3 queries a key: 152 ns instead of 108). */
static inline vf vf_fma_from(const float *a, vf b, vf c)
{
	__asm__("vfmadd231ps %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*a), "v"(b));
	return c;
}

static inline vf vf_max(vf a, vf b)
{
	return _mm512_max_ps(a, b);
}

static inline __mmask16 vec_below(int end)
{
	return end >= 16 ? 0xffff : end <= 0 ? 0 : (__mmask16)((1u << end) - 1);
}

static inline vf vf_keep(vf x, vf y, int first, int end)
{
	return _mm512_mask_blend_ps((__mmask16)(vec_below(end) & ~vec_below(first)), y, x);
}

static inline vf vf_if_less(vf a, vf b, vf x, vf y)
{
	return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

static inline int vf_any_less(vf a, vf b)
{
	return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) != 0;
}

static inline int vf_any_not_finite(vf x)
{
	return _mm512_fpclass_ps_mask(x, 0x99) != 0; /* NaN of both kinds, infinity of both signs */
}

static inline vi vf_bits(vf x)
{
	return _mm512_castps_si512(x);
}

static inline vf vf_from_bits(vi x)
{
	return _mm512_castsi512_ps(x);
}

static inline float vf_tree(vf x)
{
	__m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
	return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

static inline float vf_max_lane(vf x)
{
	return _mm512_reduce_max_ps(x);
}

static inline vi vi_set1(int32_t x)
{
	return _mm512_set1_epi32(x);
}

static inline vi vi_load(const void *x)
{
	return _mm512_loadu_si512(x);
}

static inline vi vi_from_s8(const int8_t *x)
{
	return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)x));
}

static inline vi vi_repeat(const void *x)
{
	int32_t word;
	memcpy(&word, x, sizeof word);
	return _mm512_set1_epi32(word);
}

static inline vi vi_add(vi a, vi b)
{
	return _mm512_add_epi32(a, b);
}

static inline vi vi_sub(vi a, vi b)
{
	return _mm512_sub_epi32(a, b);
}

static inline vi vi_mul(vi a, vi b)
{
	return _mm512_mullo_epi32(a, b);
}

static inline vi vi_and(vi a, int32_t b)
{
	return _mm512_and_si512(a, _mm512_set1_epi32(b));
}

#define vi_shift_left(x, n)  _mm512_slli_epi32(x, n)
#define vi_shift_right(x, n) _mm512_srli_epi32(x, n)

static inline vi vi_dot_unsigned(vi acc, vi w, vi x)
{
	return _mm512_dpbusd_epi32(acc, w, x);
}

static inline vi vi_dot_biased(vi acc, vi w, vi x)
{
	return _mm512_dpbusd_epi32(acc, w, x);
}

static inline vi vi_max(vi a, vi b)
{
	return _mm512_max_epu32(a, b);
}

static inline uint32_t vi_max_lane(vi x)
{
	return _mm512_reduce_max_epu32(x);
}

static inline int32_t vi_sum(vi x)
{
	return _mm512_reduce_add_epi32(x);
}

static inline void vi_store_s8(int8_t *y, vi x)
{
	_mm_storeu_si128((__m128i *)y, _mm512_cvtepi32_epi8(x));
}

static inline vi vi_opaque(vi x)
{
	__asm__ volatile("" : "+v"(x));
	return x;
}

static inline __attribute__((always_inline)) void vec_prefetch(const void *address)
{
	_mm_prefetch((const char *)address, _MM_HINT_T0);
}

#endif
