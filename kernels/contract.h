/* The arithmetic contract: the functions and orders of summation that fix every bit (docs/numerics.md).
 *
 * Everything a backend computes in f32 is written here once, in scalar C whose loops over lanes or elements
 * vectorise without changing a bit: explicit fmaf, no contraction, selections instead of branches, no
 * reassociation. A vector kernel may rewrite any of it as long as memcmp finds no difference.
 *
 * Conditions: round to nearest; FTZ and DAZ on (contract_enter) in every computing thread; compiled with
 * -ffp-contract=off. Comparisons are written so that NaN passes through and is found later.
 * Thread rule: pure functions of their arguments.
 * Sources: polynomials of Cephes' single-precision library (expf, logf, sinf, cosf, tanhf; S. Moshier), erf
 * after N. Juffa. Bounds are measured against long double over all exponents by tests/unit/test_contract. */
#ifndef TOKENRING_KERNELS_CONTRACT_H
#define TOKENRING_KERNELS_CONTRACT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/formats.h"

/* Keys caches and the journal; changes with any bit. */
#define CONTRACT_VERSION "exact-1"

enum {
	CONTRACT_LANES = 16,    /* of every reduction that is not over k of a matmul */
	CONTRACT_TILE = 32,     /* keys an attention tile */
	CONTRACT_SEGMENT = 256, /* keys accumulated separately */
};

/* Turns FTZ and DAZ on and rounding to nearest for the calling thread; returns the state for
 * contract_leave. */
uint32_t contract_enter(void);
void contract_leave(uint32_t state);

/* ---- elementary functions ---- */

/* Error at most 1.1 ulp for -87 <= x <= 88.72; +0 below -87; +inf above 88.73; NaN for NaN. */
static inline float contract_exp(float x)
{
	const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
	float y = x > 89.0f ? 89.0f : x;
	float t = fmaf(y, 1.44269504088896341f, magic);
	float n = t - magic;
	float r = fmaf(n, -0.693359375f, y);
	r = fmaf(n, 2.12194440e-4f, r);

	float p = fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
	p = fmaf(p, r, 8.3334519073e-3f);
	p = fmaf(p, r, 4.1665795894e-2f);
	p = fmaf(p, r, 1.6666665459e-1f);
	p = fmaf(p, r, 5.0000001201e-1f);
	p = fmaf(p, r * r, r) + 1.0f;

	/* 2^n in two factors, because 2^128 is no float; n is -126 .. 128 where it counts. */
	uint32_t low = float_bits(t) - 0x4b400000u + 254u;
	uint32_t half = low >> 1 & 0xffu, other = (low - half) & 0xffu;
	float e = p * float_from_bits(half << 23) * float_from_bits(other << 23);
	return x < -87.0f ? 0.0f : e;
}

/* Error at most 1.2 ulp for 2^-126 <= x; -inf below (zero, and what DAZ makes zero); NaN for x < 0 or NaN;
 * +inf for +inf. */
static inline float contract_log(float x)
{
	uint32_t bits = float_bits(x), from_half = bits - 0x3f3504f3u; /* sqrt(1/2) */
	float e = (float)((int32_t)from_half >> 23);
	float f = float_from_bits((from_half & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
	float z = f * f;

	float p = fmaf(7.0376836292e-2f, f, -1.1514610310e-1f);
	p = fmaf(p, f, 1.1676998740e-1f);
	p = fmaf(p, f, -1.2420140846e-1f);
	p = fmaf(p, f, 1.4249322787e-1f);
	p = fmaf(p, f, -1.6668057665e-1f);
	p = fmaf(p, f, 2.0000714765e-1f);
	p = fmaf(p, f, -2.4999993993e-1f);
	p = fmaf(p, f, 3.3333331174e-1f);
	float y = f * z * p;
	y = fmaf(e, -2.12194440e-4f, y);
	y = fmaf(z, -0.5f, y);
	float log = fmaf(e, 0.693359375f, f + y);

	log = x < 1.17549435e-38f ? -INFINITY : log;
	log = x < 0.0f ? NAN : log;
	return x < INFINITY ? log : x; /* +inf and NaN */
}

/* x = n * pi/2 + r in f64; returns r rounded once and n mod 4. */
static inline float contract_reduce(float x, uint32_t *ret_quadrant)
{
	const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
	double t = (double)x * 0.63661977236758134308 + magic;
	double n = t - magic;
	double r = fma(n, -1.57079632679489655800, (double)x);
	uint64_t bits;

	r = fma(n, -6.12323399573676603587e-17, r);
	memcpy(&bits, &t, sizeof bits);
	*ret_quadrant = (uint32_t)bits & 3;
	return (float)r;
}

static inline float contract_sin_core(float r)
{
	float z = r * r;
	float p = fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
	p = fmaf(p, z, -1.6666654611e-1f);
	return fmaf(p * z, r, r);
}

static inline float contract_cos_core(float r)
{
	float z = r * r;
	float p = fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
	p = fmaf(p, z, 4.166664568298827e-2f);
	return fmaf(p * z, z, fmaf(z, -0.5f, 1.0f));
}

/* Both at once: error at most 1.6 ulp for |x| <= 2^22; NaN for what is not finite. */
static inline void contract_sincos(float x, float *ret_sin, float *ret_cos)
{
	uint32_t quadrant;
	float r = contract_reduce(x, &quadrant);
	float s = contract_sin_core(r), c = contract_cos_core(r);
	float sine = quadrant & 1 ? c : s, cosine = quadrant & 1 ? s : c;

	*ret_sin = quadrant & 2 ? -sine : sine;
	*ret_cos = (quadrant + 1) & 2 ? -cosine : cosine;
}

static inline float contract_sin(float x)
{
	float s, c;
	contract_sincos(x, &s, &c);
	return s;
}

static inline float contract_cos(float x)
{
	float s, c;
	contract_sincos(x, &s, &c);
	return c;
}

/* Error at most 1.6 ulp; NaN for NaN. */
static inline float contract_tanh(float x)
{
	float a = fabsf(x), z = x * x;
	float p = fmaf(-5.70498872745e-3f, z, 2.06390887954e-2f);
	p = fmaf(p, z, -5.37397155531e-2f);
	p = fmaf(p, z, 1.33314422036e-1f);
	p = fmaf(p, z, -3.33332819422e-1f);
	float small = fmaf(p * z, x, x);
	float large = copysignf(1.0f - 2.0f / (contract_exp(a + a) + 1.0f), x);

	return a > 0.625f ? large : small;
}

/* Error at most 1.5 ulp; NaN for NaN. */
static inline float contract_erf(float x)
{
	float a = fabsf(x), s = x * x;
	float r = fmaf(-1.72853470e-5f, a, 3.83197126e-4f);
	float u = fmaf(-3.88396438e-3f, a, 2.42546219e-2f);
	r = fmaf(r, s, u);
	r = fmaf(r, a, -1.06777877e-1f);
	r = fmaf(r, a, -6.34846687e-1f);
	r = fmaf(r, a, -1.28717512e-1f);
	r = fmaf(r, a, -a);
	float large = copysignf(1.0f - contract_exp(r), x);

	float p = fmaf(-5.96761703e-4f, s, 4.99119423e-3f);
	p = fmaf(p, s, -2.67681349e-2f);
	p = fmaf(p, s, 1.12819925e-1f);
	p = fmaf(p, s, -3.76125336e-1f);
	p = fmaf(p, s, 1.28379166e-1f);
	float small = fmaf(p, x, x);

	return a > 0.927734375f ? (a > 6.0f ? copysignf(1.0f, x) : large) : small;
}

/* 1 / (1 + exp(-x)) */
static inline float contract_sigmoid(float x)
{
	return 1.0f / (1.0f + contract_exp(-x));
}

static inline float contract_silu(float x)
{
	return x / (1.0f + contract_exp(-x));
}

/* x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) */
static inline float contract_gelu_tanh(float x)
{
	float inner = fmaf(x * x * 0.044715f, x, x);
	return 0.5f * x * (1.0f + contract_tanh(0.797884560802865356f * inner));
}

/* x/2 * (1 + erf(x / sqrt(2))) */
static inline float contract_gelu_erf(float x)
{
	return 0.5f * x * (1.0f + contract_erf(x * 0.707106781186547524f));
}

/* max(x, 0)^2; NaN passes. */
static inline float contract_relu2(float x)
{
	float r = x < 0.0f ? 0.0f : x;
	return r * r;
}

/* Clamp to [-limit, limit]; NaN passes. */
static inline float contract_clamp(float x, float limit)
{
	x = x > limit ? limit : x;
	return x < -limit ? -limit : x;
}

/* cap * tanh(x / cap) */
static inline float contract_softcap(float x, float cap)
{
	return cap * contract_tanh(x / cap);
}

/* ---- reductions ---- */

/* 16 lanes to one sum: +8, +4, +2, +1. */
static inline float contract_tree(const float lane[CONTRACT_LANES])
{
	float eight[8], four[4];

	for (int i = 0; i < 8; i++)
		eight[i] = lane[i] + lane[i + 8];
	for (int i = 0; i < 4; i++)
		four[i] = eight[i] + eight[i + 4];
	return (four[0] + four[2]) + (four[1] + four[3]);
}

/* Element k to lane k mod 16, then the tree. (The zero padding of the last lanes changes nothing: a lane
 * begins as +0 and so never is -0.) */
static inline float contract_sum(const float *x, uint32_t n)
{
	float lane[CONTRACT_LANES] = {0};
	uint32_t k = 0;

	for (; k + CONTRACT_LANES <= n; k += CONTRACT_LANES)
		for (uint32_t i = 0; i < CONTRACT_LANES; i++)
			lane[i] = lane[i] + x[k + i];
	for (uint32_t i = 0; k + i < n; i++)
		lane[i] = lane[i] + x[k + i];
	return contract_tree(lane);
}

/* Sum of squares of x - mean: lanes a = fma(y, y, a), y = x - mean. */
static inline float contract_sum_squares(const float *x, float mean, uint32_t n)
{
	float lane[CONTRACT_LANES] = {0};
	uint32_t k = 0;

	for (; k + CONTRACT_LANES <= n; k += CONTRACT_LANES)
		for (uint32_t i = 0; i < CONTRACT_LANES; i++)
			lane[i] = fmaf(x[k + i] - mean, x[k + i] - mean, lane[i]);
	for (uint32_t i = 0; k + i < n; i++)
		lane[i] = fmaf(x[k + i] - mean, x[k + i] - mean, lane[i]);
	return contract_tree(lane);
}

/* 1 / sqrt(sum / n + eps); NaN if the sum has overflowed, which would otherwise turn the row into zeros
 * silently. */
static inline float contract_inverse_rms(float sum, float eps, uint32_t n)
{
	return sum < INFINITY ? 1.0f / sqrtf(sum / (float)n + eps) : NAN;
}

/* ---- rows ---- */

/* y = (x * r) * w, r = 1 / sqrtf(sum(x^2) / n + eps). With plus_one w[k] is used as 1 + w[k]. y may be
 * x. */
static inline void contract_rms_norm(const float *x, const float *w, int plus_one, float eps, uint32_t n,
				     float *y)
{
	float r = contract_inverse_rms(contract_sum_squares(x, 0.0f, n), eps, n);

	for (uint32_t k = 0; k < n; k++)
		y[k] = x[k] * r * (plus_one ? 1.0f + w[k] : w[k]);
}

/* mean = sum / n; r = 1 / sqrtf(sum((x - mean)^2) / n + eps); y = ((x - mean) * r) * w. */
static inline void contract_layer_norm(const float *x, const float *w, int plus_one, float eps, uint32_t n,
				       float *y)
{
	float mean = contract_sum(x, n) / (float)n;
	float r = contract_inverse_rms(contract_sum_squares(x, mean, n), eps, n);

	for (uint32_t k = 0; k < n; k++)
		y[k] = (x[k] - mean) * r * (plus_one ? 1.0f + w[k] : w[k]);
}

/* One block of 32 activations of a quantised matmul: q = rint(x * (127 / amax)), ties to even; s = amax /
 * 127. amax < 1e-30: q = 0, s = +0. Returns 1, q = 0 and s = NaN (so that whatever uses it is found, too) if
 * a value is not finite, else 0. */
static inline int contract_quantise(const float x[BLOCK_COLUMNS], int8_t q[BLOCK_COLUMNS], float *ret_s)
{
	const float magic = 12582912.0f;
	uint32_t largest = 0;

	for (int k = 0; k < BLOCK_COLUMNS; k++) {
		uint32_t bits = float_bits(x[k]) & 0x7fffffffu;
		largest = bits > largest ? bits : largest;
	}
	float amax = float_from_bits(largest);
	if (largest >= 0x7f800000u || amax < 1e-30f) {
		memset(q, 0, BLOCK_COLUMNS);
		*ret_s = largest >= 0x7f800000u ? NAN : 0.0f;
		return largest >= 0x7f800000u;
	}
	float inverse = 127.0f / amax;
	*ret_s = amax / 127.0f;
	for (int k = 0; k < BLOCK_COLUMNS; k++)
		q[k] = (int8_t)(float_bits(x[k] * inverse + magic) - 0x4b400000u);
	return 0;
}

/* Up to 32 keys or values of a Q8 cache: the scale is amax / 127 as a half, q = rint(x * (1 / scale)), ties
 * to even, within -127 .. 127 (a subnormal scale is too coarse to be below amax / 127 by little); scale 0: q
 * = 0. Scores take a key as a quantised product takes a weight (contract_key_scores); a value's scale goes to
 * its weight, fma(p * scale, (float)q, o). Returns 1, q = 0 and a scale that is NaN if a value is not finite
 * or amax / 127 no finite half, else 0. */
static inline int contract_quantise_kv(const float *x, uint32_t n, int8_t *q, uint16_t *ret_scale)
{
	const float magic = 12582912.0f;
	uint32_t largest = 0;

	for (uint32_t k = 0; k < n; k++) {
		uint32_t bits = float_bits(x[k]) & 0x7fffffffu;
		largest = bits > largest ? bits : largest;
	}
	uint16_t half = f16_from_f32(float_from_bits(largest) / 127.0f);
	if (!f16_finite(half)) {
		memset(q, 0, n);
		*ret_scale = 0x7e00;
		return 1;
	}
	float inverse = half ? 1.0f / f16_to_f32(half) : 0.0f;
	for (uint32_t k = 0; k < n; k++) {
		float y = contract_clamp(x[k] * inverse, 127.0f);
		q[k] = (int8_t)(float_bits(y + magic) - 0x4b400000u);
	}
	*ret_scale = half;
	return 0;
}

/* One block of a quantised matmul onto one output. dot: sum of (scale * q_w) * q_x; sum: sum of min * q_x;
 * s: the activations' scale. */
static inline float contract_block(float acc, float d, float m, int has_min, float s, int32_t dot,
				   int32_t sum)
{
	if (has_min)
		acc = fmaf(m, s * (float)sum, acc);
	return fmaf((float)dot, d * s, acc);
}

/* A pair of RoPE: (x0, x1) turned by the angle with cosine c and sine s, which are those of (float)position *
 * frequency. */
static inline void contract_rotate(float *x0, float *x1, float c, float s)
{
	float a = *x0, b = *x1;

	*x0 = fmaf(a, c, -(b * s));
	*x1 = fmaf(a, s, b * c);
}

/* ---- attention ---- */

/* Maximum so far, sum of exponentials and weighted values of a query over some keys. o: (dv) */
struct contract_softmax {
	float m, l;
};

/* One tile of 32 keys at absolute positions [32 t, 32 t + 32). score: scaled, softcapped; mask: 1 where the
 * query may see the key. v: (32, stride) values as f32, those of a Q8 cache without their scales: (groups of
 * 32 of d, 32), else NULL; what a masked key points at is not used (selected away: it may be a stale NaN).
 * The caller skips tiles without an unmasked key. o: (dv). A segment begins with m = -inf, l = 0, o = 0. */
static inline void contract_tile(const float score[CONTRACT_TILE], const uint8_t mask[CONTRACT_TILE],
				 const float *v, const float *scale, uint32_t stride, uint32_t dv,
				 struct contract_softmax *state, float *o)
{
	float p[CONTRACT_TILE], lane[CONTRACT_LANES], m = state->m;

	for (int j = 0; j < CONTRACT_TILE; j++)
		m = mask[j] && score[j] > m ? score[j] : m;
	float alpha = state->m == -INFINITY ? 0.0f : contract_exp(state->m - m);
	for (int j = 0; j < CONTRACT_TILE; j++)
		p[j] = mask[j] ? contract_exp(score[j] - m) : 0.0f;
	for (int i = 0; i < CONTRACT_LANES; i++)
		lane[i] = p[i] + p[i + CONTRACT_LANES];
	state->l = fmaf(state->l, alpha, contract_tree(lane));
	state->m = m;
	for (uint32_t d = 0; d < dv; d++)
		o[d] = o[d] * alpha;
	for (uint32_t j = 0; j < CONTRACT_TILE; j++)
		for (uint32_t d = 0; d < dv; d++) {
			float w = mask[j] && scale ? p[j] * scale[d / 32 * CONTRACT_TILE + j] : p[j];
			o[d] = fmaf(w, mask[j] ? v[(size_t)j * stride + d] : 0.0f, o[d]);
		}
}

/* Products of a query with a tile of keys of a Q8 cache. The query's d are quantised like activations, in
 * groups of 32, the last one padded with zeros. k: (dk, 32) quants, scale: (groups, 32). */
static inline void contract_key_scores(const float *query, const float *k, const float *scale, uint32_t dk,
				       float acc[CONTRACT_TILE])
{
	memset(acc, 0, CONTRACT_TILE * sizeof *acc);
	for (uint32_t g = 0; g < dk; g += BLOCK_COLUMNS) {
		uint32_t n = dk - g < BLOCK_COLUMNS ? dk - g : BLOCK_COLUMNS;
		float x[BLOCK_COLUMNS] = {0}, s;
		int8_t q[BLOCK_COLUMNS];
		memcpy(x, query + g, n * sizeof *x);
		contract_quantise(x, q, &s);
		for (uint32_t j = 0; j < CONTRACT_TILE; j++) {
			int32_t dot = 0;
			for (uint32_t i = 0; i < n; i++)
				dot += q[i] * (int32_t)k[(size_t)(g + i) * CONTRACT_TILE + j];
			acc[j] = contract_block(acc[j], scale[g + j], 0.0f, 0, s, dot, 0);
		}
	}
}

/* Merges a later segment (m, l, o) into the accumulator, which is a copy of the first. */
static inline void contract_merge(struct contract_softmax *to, float *to_o,
				  const struct contract_softmax *from, const float *from_o, uint32_t dv)
{
	float m = from->m > to->m ? from->m : to->m;
	float a = contract_exp(to->m - m), b = contract_exp(from->m - m);

	to->l = fmaf(from->l, b, to->l * a);
	to->m = m;
	for (uint32_t d = 0; d < dv; d++)
		to_o[d] = fmaf(from_o[d], b, to_o[d] * a);
}

#endif
