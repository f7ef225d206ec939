/* Row-wise kernels over the vector type of vec.h. Loops over contract_* functions are left to
 * the compiler's vectoriser; what it does badly (reductions in the contract's lanes) is written out. */
#ifndef TOKENRING_KERNELS_CPU_ISA_ROWS_H
#define TOKENRING_KERNELS_CPU_ISA_ROWS_H

#include "kernels/contract.h"
#include "kernels/cpu/isa_attention.h"
#include "kernels/cpu/isa_matmul.h"

/* contract_quantise, and the sums that matmuls want. */
PANEL_INLINE bool quantise_block(const float *x, int8_t *q, float *ret_s, int32_t *ret_lo, int32_t *ret_hi)
{
	const vf magic = vf_set1(12582912.0f);
	vf x0 = vf_load(x), x1 = vf_load(x + 16);
	uint32_t largest =
	    vi_max_lane(vi_max(vi_and(vf_bits(x0), 0x7fffffff), vi_and(vf_bits(x1), 0x7fffffff)));
	float amax = float_from_bits(largest);
	bool finite = largest < 0x7f800000u, silent = !finite || amax < 1e-30f;
	vf inverse = vf_set1(silent ? 0.0f : 127.0f / amax);

	/* 0 times an infinity is a NaN, so silence is a selection. */
	vi q0 = vi_sub(vf_bits(vf_add(vf_mul(x0, inverse), magic)), vi_set1(0x4b400000));
	vi q1 = vi_sub(vf_bits(vf_add(vf_mul(x1, inverse), magic)), vi_set1(0x4b400000));
	q0 = silent ? vi_set1(0) : q0;
	q1 = silent ? vi_set1(0) : q1;
	vi_store_s8(q, q0);
	vi_store_s8(q + 16, q1);
	*ret_lo = vi_sum(q0);
	*ret_hi = vi_sum(q1);
	*ret_s = !finite ? NAN : silent ? 0.0f : amax / 127.0f;
	return finite;
}

static bool isa_quantise(const float *x, uint32_t k, void *tile, uint32_t row, uint32_t rows)
{
	uint8_t *block = tile;
	bool finite = true;

	for (uint32_t b = 0; b < k / 32; b++, block += rows * ACT_BLOCK_BYTES) {
		float *s = (float *)(block + rows * 32) + row;
		int32_t *sums = (int32_t *)(block + rows * 40) + row, lo, hi;

		finite &= quantise_block(x + 32 * b, (int8_t *)block + row * 32, s, &lo, &hi);
		s[rows] = s[0] * (float)(lo + hi);
		sums[0] = -8 * (lo + hi);
		sums[rows] = -128 * (lo + hi);
		sums[2 * rows] = lo;
		sums[3 * rows] = hi;
	}
	return finite;
}

static void isa_norm_rms(const float *x, const float *w, bool plus_one, uint32_t n, float eps, float *y)
{
	const vf one = vf_set1(1.0f);
	uint32_t whole = n / 16 * 16;
	vf sum = vf_zero();

	for (uint32_t i = 0; i < whole; i += 16)
		sum = vf_fma(vf_load(x + i), vf_load(x + i), sum);
	if (whole < n) {
		vf last = vf_load_n(x + whole, n - whole);
		sum = vf_fma(last, last, sum);
	}
	vf r = vf_set1(contract_inverse_rms(vf_tree(sum), eps, n));
	for (uint32_t i = 0; i < whole; i += 16) {
		vf weight = w ? vf_load(w + i) : one;
		weight = w && plus_one ? vf_add(one, weight) : weight;
		vf_store(y + i, vf_mul(vf_mul(vf_load(x + i), r), weight));
	}
	if (whole < n) {
		vf weight = w ? vf_load_n(w + whole, n - whole) : one;
		weight = w && plus_one ? vf_add(one, weight) : weight;
		vf_store_n(y + whole, vf_mul(vf_mul(vf_load_n(x + whole, n - whole), r), weight), n - whole);
	}
}

static void isa_add(const float *a, const float *b, uint32_t n, float *y)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = a[i] + b[i];
}

static void isa_mul(const float *a, const float *b, uint32_t n, float *y)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = a[i] * b[i];
}

static void isa_scale(const float *a, float scale, uint32_t n, float *y)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = a[i] * scale;
}

/* contract_silu */
PANEL_INLINE vf vf_silu(vf x)
{
	return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_mul(x, vf_set1(-1.0f)))));
}

/* contract_tanh */
PANEL_INLINE vf vf_tanh(vf x)
{
	const vf one = vf_set1(1.0f);
	vf a = vf_from_bits(vi_and(vf_bits(x), 0x7fffffff)), z = vf_mul(x, x);
	vf p = vf_fma(vf_set1(-5.70498872745e-3f), z, vf_set1(2.06390887954e-2f));
	p = vf_fma(p, z, vf_set1(-5.37397155531e-2f));
	p = vf_fma(p, z, vf_set1(1.33314422036e-1f));
	p = vf_fma(p, z, vf_set1(-3.33332819422e-1f));
	vf small = vf_fma(vf_mul(p, z), x, x);
	vf large = vf_sub(one, vf_div(vf_set1(2.0f), vf_add(vf_exp(vf_add(a, a)), one)));

	/* `large` is not negative: adding the sign bit is copysign. */
	vi sign = vi_and(vf_bits(x), INT32_MIN);
	large = vf_from_bits(vi_add(vi_and(vf_bits(large), 0x7fffffff), sign));
	return vf_if_less(vf_set1(0.625f), a, large, small);
}

/* contract_gelu_tanh */
PANEL_INLINE vf vf_gelu_tanh(vf x)
{
	vf inner = vf_fma(vf_mul(vf_mul(x, x), vf_set1(0.044715f)), x, x);
	vf t = vf_tanh(vf_mul(vf_set1(0.797884560802865356f), inner));
	return vf_mul(vf_mul(vf_set1(0.5f), x), vf_add(vf_set1(1.0f), t));
}

/* The two activations of most models, without a limit. */
PANEL_INLINE void act_vectors(const enum tape_act kind, const float *x, const float *u, uint32_t n, float *y)
{
	for (uint32_t i = 0; i < n; i += 16) {
		uint32_t count = n - i < 16 ? n - i : 16;
		vf g = count == 16 ? vf_load(x + i) : vf_load_n(x + i, count);
		vf a = kind == ACT_SILU ? vf_silu(g) : vf_gelu_tanh(g);
		if (u)
			a = vf_mul(a, count == 16 ? vf_load(u + i) : vf_load_n(u + i, count));
		if (count == 16)
			vf_store(y + i, a);
		else
			vf_store_n(y + i, a, count);
	}
}

#define ACTIVATE(name)                                                       \
	for (uint32_t i = 0; i < n; i++) {                                   \
		float a = limit > 0.0f ? contract_clamp(x[i], limit) : x[i]; \
		y[i] = u ? contract_##name(a) * u[i] : contract_##name(a);   \
	}                                                                    \
	break

static void isa_act(enum tape_act kind, float limit, const float *x, const float *u, uint32_t n, float *y)
{
	if (!(limit > 0.0f) && (kind == ACT_SILU || kind == ACT_GELU_TANH)) {
		if (kind == ACT_SILU)
			act_vectors(ACT_SILU, x, u, n, y);
		else
			act_vectors(ACT_GELU_TANH, x, u, n, y);
		return;
	}
	switch (kind) {
	case ACT_SILU:
		ACTIVATE(silu);
	case ACT_GELU_TANH:
		ACTIVATE(gelu_tanh);
	case ACT_GELU_ERF:
		ACTIVATE(gelu_erf);
	case ACT_RELU2:
		ACTIVATE(relu2);
	}
}

static void isa_fma(float scale, const float *x, uint32_t n, float *y)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = fmaf(scale, x[i], y[i]);
}

static void isa_rope(float *x, const float *cosine, const float *sine, uint32_t n, bool pairs)
{
	if (pairs)
		for (uint32_t i = 0; i < n; i++)
			contract_rotate(&x[2 * i], &x[2 * i + 1], cosine[i], sine[i]);
	else
		for (uint32_t i = 0; i < n; i++)
			contract_rotate(&x[i], &x[n + i], cosine[i], sine[i]);
}

static bool isa_store_f16(const float *x, uint32_t n, uint16_t *dst, size_t stride)
{
	uint16_t half[16];
	bool finite = true;

	for (uint32_t i = 0; i < n; i += 16) {
		uint32_t count = n - i < 16 ? n - i : 16;
		vf_store_f16(half, count == 16 ? vf_load(x + i) : vf_load_n(x + i, count));
		for (uint32_t j = 0; j < count; j++) {
			finite &= f16_finite(half[j]);
			dst[(i + j) * stride] = half[j];
		}
	}
	return finite;
}

static bool isa_store_bf16(const float *x, uint32_t n, uint16_t *dst, size_t stride)
{
	bool finite = true;

	for (uint32_t i = 0; i < n; i++) {
		uint16_t half = bf16_from_f32(x[i]);
		finite &= (half & 0x7f80) != 0x7f80;
		dst[i * stride] = half;
	}
	return finite;
}

/* contract_quantise_kv of a whole group. */
PANEL_INLINE bool quantise_kv(const float *x, int8_t *q, uint16_t *ret_scale)
{
	const vf magic = vf_set1(12582912.0f), most = vf_set1(127.0f), least = vf_set1(-127.0f);
	vf x0 = vf_load(x), x1 = vf_load(x + 16);
	uint32_t largest =
	    vi_max_lane(vi_max(vi_and(vf_bits(x0), 0x7fffffff), vi_and(vf_bits(x1), 0x7fffffff)));
	uint16_t half = f16_from_f32(float_from_bits(largest) / 127.0f);
	bool finite = f16_finite(half);
	vf inverse = vf_set1(finite && half ? 1.0f / f16_to_f32(half) : 0.0f);

	x0 = vf_mul(x0, inverse);
	x1 = vf_mul(x1, inverse);
	x0 = vf_if_less(most, x0, most, vf_if_less(x0, least, least, x0));
	x1 = vf_if_less(most, x1, most, vf_if_less(x1, least, least, x1));
	/* 0 times an infinity is a NaN, so silence is a selection. */
	vi q0 = vi_sub(vf_bits(vf_add(x0, magic)), vi_set1(0x4b400000));
	vi q1 = vi_sub(vf_bits(vf_add(x1, magic)), vi_set1(0x4b400000));
	vi_store_s8(q, finite ? q0 : vi_set1(0));
	vi_store_s8(q + 16, finite ? q1 : vi_set1(0));
	*ret_scale = finite ? half : 0x7e00;
	return finite;
}

static bool isa_store_q8(const float *x, uint32_t n, bool key, int8_t *dst, uint16_t *scale)
{
	int8_t q[BLOCK_COLUMNS];
	bool finite = true;

	for (uint32_t i = 0; i < n; i += BLOCK_COLUMNS) {
		uint32_t count = n - i < BLOCK_COLUMNS ? n - i : BLOCK_COLUMNS;
		if (count == BLOCK_COLUMNS)
			finite &= quantise_kv(x + i, q, &scale[i]);
		else
			finite &= !contract_quantise_kv(x + i, count, q, &scale[i]);
		for (uint32_t j = 0; j < count && key; j++)
			dst[kv_quad(i + j, 0)] = (int8_t)(q[j] ^ -128);
		for (uint32_t j = 0; j < count && !key; j++)
			dst[i + j] = q[j];
	}
	return finite;
}

static void isa_quantise_query(const float *x, uint32_t dk, struct query_block *ret)
{
	for (; dk; ret++) {
		float padded[BLOCK_COLUMNS] = {0};
		uint32_t n = dk < BLOCK_COLUMNS ? dk : BLOCK_COLUMNS;
		int32_t lo, hi;
		memcpy(padded, x, n * sizeof *x);
		quantise_block(padded, ret->q, &ret->s, &lo, &hi);
		ret->sum = lo + hi;
		x += n;
		dk -= n;
	}
}

static bool isa_finite(const float *x, uint32_t n)
{
	uint32_t largest = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
		largest = bits > largest ? bits : largest;
	}
	return largest < 0x7f800000u;
}

static void best_one_by_one(const float *x, uint32_t id, uint32_t n, struct best_logit *best)
{
	for (uint32_t i = 0; i < n; i++) {
		best->not_finite |= (float_bits(x[i]) & 0x7fffffffu) >= 0x7f800000u;
		if (x[i] > best->value)
			*best = (struct best_logit){x[i], id + i, best->not_finite};
	}
}

/* A panel seldom has a logit above all before it: the logarithm of their number of times, if they are in no
 * order. */
static void isa_best(const float *x, uint32_t rows, uint32_t id, uint32_t n, struct best_logit *best)
{
	for (uint32_t row = 0; row < rows; row++, x += PANEL_ROWS) {
		vf a = vf_load(x), b = vf_load(x + 16), so_far = vf_set1(best[row].value);
		if (n < PANEL_ROWS || vf_any_less(so_far, vf_max(a, b)) || vf_any_not_finite(a) ||
		    vf_any_not_finite(b))
			best_one_by_one(x, id, n, &best[row]);
	}
}

enum { READ_AHEAD_BYTES = 4096 };

static uint32_t isa_read(const uint8_t *x, size_t bytes)
{
	vi sum[4] = {vi_set1(0), vi_set1(0), vi_set1(0), vi_set1(0)};
	uint32_t lanes[16], all = 0;

	for (size_t i = 0; i < bytes; i += 256) {
		VEC_UNROLL(4)
		for (int j = 0; j < 4; j++) {
			vec_prefetch(x + i + READ_AHEAD_BYTES + 64 * j);
			sum[j] = vi_add(sum[j], vi_load(x + i + 64 * j));
		}
	}
	sum[0] = vi_add(vi_add(sum[0], sum[1]), vi_add(sum[2], sum[3]));
	memcpy(lanes, &sum[0], sizeof lanes);
	for (int i = 0; i < 16; i++)
		all += lanes[i];
	return all;
}

/* Ten independent chains, enough for a latency of five at two a cycle. */
static uint64_t isa_int8_peak(uint32_t rounds)
{
	vi sum[10], w = vi_set1(0x01010101), x = vi_set1(0x01010101);
	uint32_t word = 0;

	for (int i = 0; i < 10; i++)
		sum[i] = vi_set1(i);
	for (uint32_t r = 0; r < rounds; r++) {
		VEC_UNROLL(16)
		for (int i = 0; i < 10; i++) {
			sum[i] = vi_dot_unsigned(sum[i], w, vi_opaque(x));
		}
	}
	for (int i = 0; i < 10; i++) {
		uint32_t lanes[16];
		memcpy(lanes, &sum[i], sizeof lanes);
		word ^= lanes[0];
	}
	/* The sum decides nothing, but the compiler cannot know. */
	return (uint64_t)rounds * 10 * 64 + (word == 0xdeadbeef);
}

#define ISA_TABLE(isa_name, pace)                 \
	{                                         \
	    .name = isa_name,                     \
	    .macs_per_us = pace,                  \
	    .query_rows = VEC_QUERY_ROWS,         \
	    .quantise = isa_quantise,             \
	    .matmul = MATMUL_TABLE,               \
	    .norm_rms = isa_norm_rms,             \
	    .add = isa_add,                       \
	    .mul = isa_mul,                       \
	    .scale = isa_scale,                   \
	    .act = isa_act,                       \
	    .fma = isa_fma,                       \
	    .rope = isa_rope,                     \
	    .store_f16 = isa_store_f16,           \
	    .store_bf16 = isa_store_bf16,         \
	    .store_q8 = isa_store_q8,             \
	    .quantise_query = isa_quantise_query, \
	    .finite = isa_finite,                 \
	    .best = isa_best,                     \
	    .attend = isa_attend,                 \
	    .merge = isa_merge,                   \
	    .divide = isa_divide,                 \
	    .read = isa_read,                     \
	    .int8_peak = isa_int8_peak,           \
	}

#endif
