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

static void test_no_samples(void **state)
{
	static const struct histogram empty;
	assert_int_equal(histogram_percentile(&empty, 0.5), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_any_size),
	    cmocka_unit_test(test_latencies),
	    cmocka_unit_test(test_small_values_are_exact),
	    cmocka_unit_test(test_every_power_of_two_has_its_bucket),
	    cmocka_unit_test(test_merge_is_like_adding_all),
	    cmocka_unit_test(test_no_samples),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
