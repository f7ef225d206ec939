/* The contract's functions against long double libm over all exponents, and its orders of summation against
 * plain restatements of docs/numerics.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <fenv.h>

#include "kernels/contract.h"

enum { STRIDE = 1999 }; /* bit patterns between samples; prime */

/* |got - want| in units of the last place of want, not below that of the smallest normal number. */
static double ulps(float got, long double want)
{
	int exponent;

	frexpl(want, &exponent);
	if (exponent < -125)
		exponent = -125;
	return (double)(fabsl((long double)got - want) / ldexpl(1.0L, exponent - 24));
}

/* The largest error of f over the floats of [low, high] (bit patterns of one sign, magnitudes ascending). */
static double worst(float (*f)(float), long double (*exact)(long double), float low, float high)
{
	double most = 0;

	for (uint32_t bits = float_bits(low); bits <= float_bits(high); bits += STRIDE) {
		float x = float_from_bits(bits);
		double error = ulps(f(x), exact((long double)x));
		if (!(error <= most))
			most = error;
	}
	return most;
}

static long double sigmoid_exact(long double x)
{
	return 1.0L / (1.0L + expl(-x));
}

static long double silu_exact(long double x)
{
	return x / (1.0L + expl(-x));
}

static long double gelu_tanh_exact(long double x)
{
	return 0.5L * x * (1.0L + tanhl(sqrtl(2.0L / acosl(-1.0L)) * (x + 0.044715L * x * x * x)));
}

static long double gelu_erf_exact(long double x)
{
	return 0.5L * x * (1.0L + erfl(x / sqrtl(2.0L)));
}

static void exp_is_within_its_bound(void **state)
{
	assert_true(worst(contract_exp, expl, 1e-30f, 88.72f) <= 1.1);
	assert_true(worst(contract_exp, expl, -1e-30f, -87.0f) <= 1.1);
	assert_true(float_bits(contract_exp(-87.00001f)) == 0 && float_bits(contract_exp(-INFINITY)) == 0);
	assert_true(contract_exp(-87.0f) > 1.6e-38f);
	assert_true(contract_exp(88.73f) == INFINITY && contract_exp(INFINITY) == INFINITY);
	assert_true(contract_exp(0.0f) == 1.0f && contract_exp(3e38f) == INFINITY);
	assert_true(isnan(contract_exp(NAN)));
}

static void log_is_within_its_bound(void **state)
{
	assert_true(worst(contract_log, logl, FLT_MIN, FLT_MAX) <= 1.2);
	assert_true(contract_log(0.0f) == -INFINITY && contract_log(1e-39f) == -INFINITY);
	assert_true(contract_log(1.0f) == 0.0f && contract_log(INFINITY) == INFINITY);
	assert_true(isnan(contract_log(-1.0f)) && isnan(contract_log(NAN)));
}

static void sine_and_cosine_are_within_their_bound(void **state)
{
	assert_true(worst(contract_sin, sinl, 1e-30f, 4194304.0f) <= 1.6);
	assert_true(worst(contract_cos, cosl, 1e-30f, 4194304.0f) <= 1.6);
	assert_true(worst(contract_sin, sinl, -1e-30f, -4194304.0f) <= 1.6);
	for (int i = 0; i < 131072; i += 13) { /* the angles of RoPE's fastest pair */
		assert_true(ulps(contract_sin((float)i), sinl(i)) <= 1.6);
		assert_true(ulps(contract_cos((float)i), cosl(i)) <= 1.6);
	}
	assert_true(isnan(contract_sin(INFINITY)) && isnan(contract_cos(NAN)));
}

static void tanh_and_erf_are_within_their_bounds(void **state)
{
	assert_true(worst(contract_tanh, tanhl, FLT_MIN, 100.0f) <= 1.6);
	assert_true(worst(contract_tanh, tanhl, -FLT_MIN, -100.0f) <= 1.6);
	assert_true(worst(contract_erf, erfl, FLT_MIN, 100.0f) <= 1.5);
	assert_true(worst(contract_erf, erfl, -FLT_MIN, -100.0f) <= 1.5);
	assert_true(contract_tanh(-INFINITY) == -1.0f && contract_tanh(3e38f) == 1.0f);
	assert_true(contract_erf(INFINITY) == 1.0f && contract_erf(-3e38f) == -1.0f);
	assert_true(isnan(contract_tanh(NAN)) && isnan(contract_erf(NAN)));
}

/* Largest |f - exact| / max(|x|, 1) over +-[0, 50]. */
static double worst_scaled(float (*f)(float), long double (*exact)(long double))
{
	double most = 0;

	for (uint32_t bits = float_bits(1e-20f); bits <= float_bits(50.0f); bits += STRIDE)
		for (int sign = -1; sign <= 1; sign += 2) {
			float x = (float)sign * float_from_bits(bits);
			double error = (double)fabsl(f(x) - exact(x)) / fmax(fabsf(x), 1.0);
			if (!(error <= most))
				most = error;
		}
	return most;
}

static void activations_are_within_their_bounds(void **state)
{
	assert_true(worst_scaled(contract_sigmoid, sigmoid_exact) <= 1.2e-7);
	assert_true(worst_scaled(contract_silu, silu_exact) <= 1.2e-7);
	assert_true(worst_scaled(contract_gelu_tanh, gelu_tanh_exact) <= 2.4e-7);
	assert_true(worst_scaled(contract_gelu_erf, gelu_erf_exact) <= 2.4e-7);
	assert_true(worst(contract_silu, silu_exact, -1e-20f, -80.0f) <= 4.0);
	assert_true(contract_silu(-200.0f) == 0.0f && contract_silu(200.0f) == 200.0f);
	assert_true(contract_relu2(-3.0f) == 0.0f && contract_relu2(3.0f) == 9.0f);
	assert_true(contract_clamp(9.0f, 7.0f) == 7.0f && contract_clamp(-9.0f, 7.0f) == -7.0f);
	assert_true(contract_softcap(1000.0f, 30.0f) == 30.0f);
	assert_true(isnan(contract_silu(NAN)) && isnan(contract_relu2(NAN)) && isnan(contract_clamp(NAN, 1)));
}

static void sums_run_over_sixteen_lanes_and_a_tree(void **state)
{
	float x[37], lane[16] = {0};

	for (int k = 0; k < 37; k++) {
		x[k] = sinf((float)k) * powf(10.0f, (float)(k % 9 - 4));
		lane[k % 16] += x[k];
	}
	for (int width = 8; width; width /= 2)
		for (int i = 0; i < width; i++)
			lane[i] += lane[i + width];
	assert_true(contract_sum(x, 37) == lane[0]);
	assert_true(contract_sum_squares(x, 0.0f, 3) == fmaf(x[2], x[2], 0) + x[0] * x[0] + x[1] * x[1]);
}

static void norms_follow_their_formula(void **state)
{
	float x[3] = {3, 0, -4}, w[3] = {1, 2, 0.5f}, y[3];

	contract_rms_norm(x, w, 0, 0.0f, 3, y);
	assert_float_equal(y[0], 3 / sqrt(25.0 / 3), 1e-6);
	assert_float_equal(y[2], -2 / sqrt(25.0 / 3), 1e-6);
	contract_rms_norm(x, w, 1, 0.0f, 3, y);
	assert_float_equal(y[0], 6 / sqrt(25.0 / 3), 1e-6);
	float z[2] = {1, 3}, v[2] = {1, 10};
	contract_layer_norm(z, v, 0, 0.0f, 2, z);
	assert_true(z[0] == -1.0f && z[1] == 10.0f);
	x[0] = 1e20f; /* the sum of squares overflows: found, not turned into zeros */
	contract_rms_norm(x, w, 0, 0.0f, 3, y);
	assert_true(isnan(y[0]) && isnan(y[1]));
}

static void quantisation_rounds_ties_to_even(void **state)
{
	float x[32] = {127, 0.5f, 1.5f, -0.5f, -2.5f, -127, 126.5f}, s;
	int8_t q[32];

	assert_int_equal(contract_quantise(x, q, &s), 0);
	assert_true(s == 1.0f);
	const int8_t want[7] = {127, 0, 2, 0, -2, -127, 126};
	assert_memory_equal(q, want, sizeof want);
	memset(x, 0, sizeof x);
	x[9] = 9e-31f;
	assert_int_equal(contract_quantise(x, q, &s), 0);
	assert_true(float_bits(s) == 0 && q[9] == 0);
	x[9] = -INFINITY;
	assert_int_equal(contract_quantise(x, q, &s), 1);
	x[9] = NAN;
	assert_int_equal(contract_quantise(x, q, &s), 1);
	assert_true(isnan(s) && q[9] == 0);
	for (int k = 0; k < 32; k++)
		x[k] = FLT_MAX / (float)(k + 1);
	assert_int_equal(contract_quantise(x, q, &s), 0);
	assert_true(q[0] == 127 && q[1] == 64); /* 63.5 to even */
}

static void cached_values_are_quantised_by_the_rounded_scale(void **state)
{
	/* 2047.5 * 127: the scale 2047.5 is a tie between the halves 2047 and 2048, and 2048 is even. */
	float x[32] = {260032.5f, -260032.5f, 1024.0f, 3072.0f, 2047.0f, -129024.0f};
	int8_t q[32];
	uint16_t scale;

	assert_int_equal(contract_quantise_kv(x, 32, q, &scale), 0);
	assert_int_equal(scale, 0x6800);
	const int8_t want[6] = {127, -127, 0, 2, 1, -63};
	assert_memory_equal(q, want, sizeof want);
	assert_int_equal(contract_quantise_kv(x + 2, 2, q, &scale), 0); /* a short group: 3072 / 127 */
	assert_int_equal(scale, 0x4e0c); /* 24.1875; not above it by more than half of 1/64 */
	assert_true(q[0] == 42 && q[1] == 127);
	/* 1.4 * 2^-24 rounds to the smallest half: 127 * 1.4 would not fit eight bits. */
	x[0] = 127 * 1.4f * 0x1p-24f;
	x[1] = -0x1p-24f;
	assert_int_equal(contract_quantise_kv(x, 2, q, &scale), 0);
	assert_true(scale == 1 && q[0] == 127 && q[1] == -1);
	x[0] = 127 * 0x1p-25f; /* a tie: the scale is zero, and so is all */
	assert_int_equal(contract_quantise_kv(x, 2, q, &scale), 0);
	assert_true(scale == 0 && q[0] == 0 && q[1] == 0);
	x[1] = 127 * 65519.0f;
	assert_int_equal(contract_quantise_kv(x, 2, q, &scale), 0);
	assert_true(scale == 0x7bff && q[1] == 127);
	x[1] = -127 * 65520.0f;
	assert_int_equal(contract_quantise_kv(x, 2, q, &scale), 1);
	x[1] = NAN;
	assert_int_equal(contract_quantise_kv(x, 2, q, &scale), 1);
	assert_true(scale == 0x7e00 && q[0] == 0 && q[1] == 0);
}

/* Attention over two segments against plain softmax in long double; masked keys and values are NaN. */
static void tiles_and_segments_make_a_softmax(void **state)
{
	enum { KEYS = 64, DV = 3 };
	float score[KEYS], v[KEYS * DV], o[2][DV] = {{0}};
	uint8_t mask[KEYS];
	struct contract_softmax part[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
	long double sum = 0, want[DV] = {0};

	for (int j = 0; j < KEYS; j++) {
		mask[j] = j % 5 != 2;
		score[j] = mask[j] ? 20 * sinf((float)j) : NAN;
		for (int d = 0; d < DV; d++)
			v[j * DV + d] = mask[j] ? cosf((float)(j * DV + d)) : NAN;
		if (!mask[j])
			continue;
		sum += expl(score[j]);
		for (int d = 0; d < DV; d++)
			want[d] += expl(score[j]) * v[j * DV + d];
	}
	for (int t = 0; t < 2; t++)
		contract_tile(score + 32 * t, mask + 32 * t, v + 32 * DV * t, NULL, DV, DV, &part[t], o[t]);
	contract_merge(&part[0], o[0], &part[1], o[1], DV);
	for (int d = 0; d < DV; d++)
		assert_float_equal(o[0][d] / part[0].l, (double)(want[d] / sum), 1e-6);
}

static void entering_flushes_subnormals_and_leaving_restores(void **state)
{
	volatile float tiny = 1e-30f, product;
	uint32_t before = contract_enter();

	product = tiny * 1e-10f;
	assert_true(product == 0.0f);
	assert_int_equal(fegetround(), FE_TONEAREST);
	contract_leave(before);
	product = tiny * 1e-10f;
	assert_true(product > 0.0f);
}

static void rotation_is_a_rotation(void **state)
{
	float a = 3, b = 4, s, c;

	contract_sincos(1.0f, &s, &c);
	contract_rotate(&a, &b, c, s);
	assert_float_equal(a, 3 * cos(1) - 4 * sin(1), 1e-6);
	assert_float_equal(b, 3 * sin(1) + 4 * cos(1), 1e-6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(exp_is_within_its_bound),
	    cmocka_unit_test(log_is_within_its_bound),
	    cmocka_unit_test(sine_and_cosine_are_within_their_bound),
	    cmocka_unit_test(tanh_and_erf_are_within_their_bounds),
	    cmocka_unit_test(activations_are_within_their_bounds),
	    cmocka_unit_test(sums_run_over_sixteen_lanes_and_a_tree),
	    cmocka_unit_test(norms_follow_their_formula),
	    cmocka_unit_test(quantisation_rounds_ties_to_even),
	    cmocka_unit_test(cached_values_are_quantised_by_the_rounded_scale),
	    cmocka_unit_test(tiles_and_segments_make_a_softmax),
	    cmocka_unit_test(entering_flushes_subnormals_and_leaving_restores),
	    cmocka_unit_test(rotation_is_a_rotation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
