/* The histogram's percentiles against an exact sort of the same samples. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tools/cli/histogram.h"

enum { N = 200000 };
static uint64_t samples[N];
static struct histogram histogram;

static uint64_t next_random(void)
{
	static uint64_t state = 88172645463325252ULL; /* xorshift64, Marsaglia 2003 */
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static void check_percentiles(void)
{
	static const double fractions[] = {1e-9, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
	qsort(samples, N, sizeof *samples, ascending);
	for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++) {
		size_t rank = (size_t)ceil(fractions[i] * N);
		double exact = (double)samples[rank ? rank - 1 : 0];
		double got = (double)histogram_percentile(&histogram, fractions[i]);
		assert_true(fabs(got - exact) <= 0.005 * exact);
	}
	assert_int_equal(histogram.n, N);
	assert_int_equal(histogram.max, samples[N - 1]);
	assert_true(histogram_percentile(&histogram, 1) <= histogram.max);
}

static void fill(uint64_t (*draw)(void))
{
	histogram = (struct histogram){0};
	for (size_t i = 0; i < N; i++) {
		samples[i] = draw();
		histogram_add(&histogram, samples[i]);
	}
}

static uint64_t draw_any_size(void)
{
	return next_random() >> (next_random() % 64);
}

static uint64_t draw_latency(void)
{
	uint64_t tail = next_random() % 1000 ? 0 : next_random() % 500000;
	return 300 + next_random() % 90 + tail;
}

static uint64_t draw_small(void)
{
	return next_random() % 256;
}

static uint64_t draw_two_humps(void)
{
	return (next_random() % 10 ? 110 : 34000) + next_random() % 40;
}

/* P(x > t) = 300 / t: the tail of a machine that stalls. */
static uint64_t draw_heavy_tail(void)
{
	double u = (double)(next_random() >> 11) * 0x1p-53;
	return (uint64_t)(300 / (1 - u));
}

static uint64_t draw_constant(void)
{
	return 123456789;
}

static void test_any_size(void **state)
{
	fill(draw_any_size);
	check_percentiles();
}

static void test_latencies(void **state)
{
	fill(draw_latency);
	check_percentiles();
}

static void test_shapes(void **state)
{
	fill(draw_two_humps);
	check_percentiles();
	fill(draw_heavy_tail);
	check_percentiles();
	fill(draw_constant);
	check_percentiles();
}

static void test_small_values_are_exact(void **state)
{
	fill(draw_small);
	qsort(samples, N, sizeof *samples, ascending);
	for (unsigned percent = 1; percent <= 100; percent++)
		assert_int_equal(histogram_percentile(&histogram, percent / 100.0),
				 samples[(size_t)ceil(percent / 100.0 * N) - 1]);
}

static void test_every_power_of_two_has_its_bucket(void **state)
{
	unsigned last = 0;
	for (unsigned bit = 0; bit < 64; bit++) {
		unsigned bucket = histogram_bucket(1ULL << bit);
		assert_true(bucket < HISTOGRAM_BUCKETS && bucket > last);
		last = bucket;
		if (bit)
			assert_true(histogram_bucket((1ULL << bit) - 1) < bucket);
	}
	assert_int_equal(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void test_merge_is_like_adding_all(void **state)
{
	static struct histogram half[2];
	for (size_t i = 0; i < N; i++) {
		samples[i] = draw_latency();
		histogram_add(&half[i & 1], samples[i]);
	}
	histogram = (struct histogram){0};
	histogram_merge(&histogram, &half[0]);
	histogram_merge(&histogram, &half[1]);
	check_percentiles();
}

/* Times between 300 and 400 that a clock of 10 ns rounds: the quantile finds the hidden ones again. */
static void test_quantiles_see_through_a_coarse_clock(void **state)
{
	static const double fractions[] = {0.1, 0.37, 0.5, 0.55, 0.9};
	histogram = (struct histogram){0};
	for (size_t i = 0; i < N; i++) {
		samples[i] = 300 + next_random() % 100;
		histogram_add(&histogram, (samples[i] + 5) / 10 * 10);
	}
	qsort(samples, N, sizeof *samples, ascending);
	for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++) {
		double exact = (double)samples[(size_t)ceil(fractions[i] * N) - 1];
		assert_true(fabs(histogram_quantile(&histogram, fractions[i]) - exact) <= 2);
	}
}

static void test_lone_samples_stay_where_they_are(void **state)
{
	histogram = (struct histogram){0};
	for (uint64_t value = 10; value <= 250; value += 10)
		histogram_add(&histogram, value);
	for (unsigned i = 1; i <= 25; i++)
		assert_true(histogram_quantile(&histogram, (i - 0.5) / 25) == 10.0 * i);
}

/* One stall of 100 intervals hides 99 samples; all are put back and sorted. */
static void test_correction_adds_what_a_stall_hid(void **state)
{
	enum { INTERVAL = 1000, STALL = 100 * INTERVAL, QUIET = 900 };
	static struct histogram corrected;
	size_t n = 0;
	histogram = corrected = (struct histogram){0};
	for (; n < QUIET; n++) {
		samples[n] = 10 + n % 7;
		histogram_add(&histogram, samples[n]);
	}
	histogram_add(&histogram, STALL);
	for (uint64_t hidden = STALL; hidden >= INTERVAL; hidden -= INTERVAL)
		samples[n++] = hidden;
	histogram_correct(&corrected, &histogram, INTERVAL);
	assert_int_equal(corrected.n, n);
	assert_int_equal(corrected.max, STALL);
	qsort(samples, n, sizeof *samples, ascending);
	for (unsigned percent = 1; percent <= 100; percent++) {
		double exact = (double)samples[(size_t)ceil(percent / 100.0 * (double)n) - 1];
		double got = (double)histogram_percentile(&corrected, percent / 100.0);
		assert_true(fabs(got - exact) <= 0.01 * exact);
	}
	/* Uncorrected, 99.8 % of the samples look quick. */
	assert_true(histogram_percentile(&histogram, 0.998) < 20);
	assert_true(histogram_percentile(&corrected, 0.998) > 95 * INTERVAL);
}

static void test_no_interval_corrects_nothing(void **state)
{
	static struct histogram same;
	fill(draw_latency);
	same = (struct histogram){0};
	histogram_correct(&same, &histogram, 0);
	assert_memory_equal(same.count, histogram.count, sizeof same.count);
	assert_int_equal(same.n, histogram.n);
}

static void test_no_samples(void **state)
{
	static const struct histogram empty;
	assert_int_equal(histogram_percentile(&empty, 0.5), 0);
	assert_true(histogram_quantile(&empty, 0.5) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_any_size),
	    cmocka_unit_test(test_latencies),
	    cmocka_unit_test(test_shapes),
	    cmocka_unit_test(test_small_values_are_exact),
	    cmocka_unit_test(test_every_power_of_two_has_its_bucket),
	    cmocka_unit_test(test_merge_is_like_adding_all),
	    cmocka_unit_test(test_quantiles_see_through_a_coarse_clock),
	    cmocka_unit_test(test_lone_samples_stay_where_they_are),
	    cmocka_unit_test(test_correction_adds_what_a_stall_hid),
	    cmocka_unit_test(test_no_interval_corrects_nothing),
	    cmocka_unit_test(test_no_samples),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
