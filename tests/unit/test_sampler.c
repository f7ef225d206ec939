/* The sampler against numpy's draws (tests/golden/make_sampler_golden.py), and the edges by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <math.h>
#include <cmocka.h>

#include "daemon/engine/philox.h"
#include "daemon/engine/sampler.h"

enum { DRAWS = 48, VOCAB_MAX = 4099 };

static float x[VOCAB_MAX];

static void make_logits(uint32_t vocab, float spread)
{
	for (uint32_t i = 0; i < vocab; i++) {
		uint32_t out[4];

		philox4x32_10((uint32_t[4]){i, 0, 0, 0}, (uint32_t[2]){99, 0}, out);
		x[i] = ((float)(out[0] >> 8) / 16777216.0f - 0.5f) * spread;
	}
}

static void check_philox(const char *line)
{
	uint32_t v[10], out[4];

	assert_int_equal(sscanf(line, "philox %x %x %x %x %x %x %x %x %x %x", &v[0], &v[1], &v[2], &v[3],
				&v[4], &v[5], &v[6], &v[7], &v[8], &v[9]),
			 10);
	philox4x32_10(v, v + 4, out);
	assert_memory_equal(out, v + 6, sizeof(out));
}

static void check_case(const char *line)
{
	static const struct bias_entry bias[] = {{5, 3.0f}, {11, -INFINITY}};
	static uint32_t allowed[VOCAB_MAX], context[DRAWS];
	struct request request = {.bias = bias, .allowed = allowed};
	struct sampling *s = &request.sampling;
	struct sampler sampler;
	uint32_t vocab, with_bias, with_allowed, token;
	unsigned long long seed;
	float spread;
	int at = 0, more;

	assert_int_equal(sscanf(line, "case %u %f %llu %f %u %f %f %f %u %u%n", &vocab, &spread, &seed,
				&s->temperature, &s->top_k, &s->top_p, &s->min_p, &s->penalty, &with_bias,
				&with_allowed, &at),
			 10);
	s->seed = seed;
	make_logits(vocab, spread);
	request.n_bias = with_bias ? 2 : 0;
	for (uint32_t i = 0; with_allowed && i < vocab; i += 3)
		allowed[request.n_allowed++] = i;
	assert_int_equal(sampler_init(&sampler, vocab, NULL, NULL), 0);
	for (uint32_t p = 0; p < DRAWS; p++) {
		uint32_t want;

		assert_int_equal(sscanf(line + at, "%u%n", &want, &more), 1);
		at += more;
		assert_int_equal(sampler_draw(&sampler, &request, x, context, p, &token), 0);
		if (token != want)
			fail_msg("draw %u is %u, not %u, of %.80s", p, token, want, line);
		context[p] = 7 * p % vocab;
	}
	sampler_free(&sampler);
}

static void check_logprobs(const char *line)
{
	struct wire_scored top[5];
	struct sampler sampler;
	struct log_sum sum;
	uint32_t vocab, id;
	float spread, value;
	int at, more;

	assert_int_equal(sscanf(line, "logprobs %u %f %u %f%n", &vocab, &spread, &id, &value, &at), 4);
	make_logits(vocab, spread);
	assert_int_equal(sampler_init(&sampler, vocab, NULL, NULL), 0);
	assert_int_equal(sampler_log_sum(&sampler, x, &sum), 0);
	assert_true(fabsf(log_probability(x[id], &sum) - value) < 2e-6f);
	sampler_top(&sampler, x, &sum, 5, top);
	for (int i = 0; i < 5; i++, at += more) {
		assert_int_equal(sscanf(line + at, "%u %f%n", &id, &value, &more), 2);
		assert_int_equal(top[i].id, id);
		assert_true(fabsf(top[i].value - value) < 2e-6f);
	}
	sampler_free(&sampler);
}

static void test_golden(void **state)
{
	static char line[4096], path[4096];
	const char *root = getenv("TOKENRING_SOURCE_ROOT");
	int cases = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/golden/sampler.txt", root ? root : ".");
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		cases++;
		if (!strncmp(line, "philox", 6))
			check_philox(line);
		else if (!strncmp(line, "case", 4))
			check_case(line);
		else
			check_logprobs(line);
	}
	fclose(file);
	assert_int_equal(cases, 48);
}

static const struct sampling greedy = {.top_p = 1, .penalty = 1};

static void test_greedy_ties_go_to_the_lowest_id(void **state)
{
	const float logits[] = {1, 3, 2, 3, 3};
	struct request request = {.sampling = greedy};
	struct sampler sampler;
	uint32_t token;

	assert_int_equal(sampler_init(&sampler, 5, NULL, NULL), 0);
	assert_int_equal(sampler_draw(&sampler, &request, logits, NULL, 0, &token), 0);
	assert_int_equal(token, 1);
	request.sampling.temperature = 1;
	request.sampling.top_k = 2; /* two of three equals: the lowest ids */
	for (request.sampling.seed = 0; request.sampling.seed < 200; request.sampling.seed++) {
		assert_int_equal(sampler_draw(&sampler, &request, logits, NULL, 0, &token), 0);
		assert_true(token == 1 || token == 3);
	}
	sampler_free(&sampler);
}

static void test_what_is_not_a_number_is_an_error(void **state)
{
	float logits[40] = {0};
	struct request request = {.sampling = greedy};
	struct bias_entry bias = {3, -INFINITY};
	uint32_t allowed = 3, token = 77;
	struct sampler sampler;
	struct log_sum sum;

	assert_int_equal(sampler_init(&sampler, 40, NULL, NULL), 0);
	for (int i = 0; i < 40; i += 13) {
		logits[i] = NAN;
		assert_int_equal(sampler_draw(&sampler, &request, logits, NULL, 0, &token), -EDOM);
		assert_int_equal(sampler_log_sum(&sampler, logits, &sum), -EDOM);
		logits[i] = INFINITY;
		assert_int_equal(sampler_draw(&sampler, &request, logits, NULL, 0, &token), -EDOM);
		logits[i] = 0;
	}
	request.allowed = &allowed;
	request.n_allowed = 1;
	request.bias = &bias;
	request.n_bias = 1;
	assert_int_equal(sampler_draw(&sampler, &request, logits, NULL, 0, &token), -EDOM);
	assert_int_equal(token, 77);
	sampler_free(&sampler);
}

/* Every instruction set gives the same bits. */
static void test_vector_loops_equal_scalar_loops(void **state)
{
	enum { N = 1003 };
	static float in[N], a[N], b[N];

	if (logits_pick() == &logits_generic)
		skip();
	for (int i = 0; i < N; i++)
		in[i] = (float)(i * 7919 % N) * -0.1f + 3.0f;
	in[5] = -INFINITY;
	logits_generic.exp(in, 3.0f, a, N);
	logits_pick()->exp(in, 3.0f, b, N);
	assert_memory_equal(a, b, sizeof(a));
	logits_generic.divide(in, 0.7f, a, N);
	logits_pick()->divide(in, 0.7f, b, N);
	assert_memory_equal(a, b, sizeof(a));
	assert_true(logits_generic.max(in, N) == logits_pick()->max(in, N));
	assert_true(logits_pick()->max(in, N) == 3.0f);
}

static void check_search(const struct logits_ops *ops, const float *values, uint32_t n)
{
	float most = -INFINITY;

	for (uint32_t i = 0; i < n; i++)
		most = values[i] > most ? values[i] : most;
	assert_true(ops->max(values, n) == most);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t first = 0, above = i;

		while (values[first] != values[i])
			first++;
		while (above < n && !(values[above] > values[n - 1 - i]))
			above++;
		assert_int_equal(ops->find(values, n, values[i]), first);
		assert_int_equal(ops->above(values, i, n, values[n - 1 - i]), above);
	}
	assert_int_equal(ops->find(values, n, 77.0f), n);
	assert_int_equal(ops->above(values, 0, n, most), n);
}

/* Few different values, zeros of both signs among them, so that the first of equals is looked for. */
static void test_searches_equal_their_definition(void **state)
{
	enum { N = 331 };
	static float values[N], with_nan[N];

	for (uint32_t n = 0; n <= N; n += n < 150 ? 1 : 60) {
		for (uint32_t i = 0; i < n; i++)
			values[i] = (float)((int)(i * 7919 % 23) - 19) * (i % 3 ? 0.5f : -0.0f);
		check_search(&logits_generic, values, n);
		check_search(logits_pick(), values, n);
		for (uint32_t i = 0; i < n; i += 7) {
			memcpy(with_nan, values, sizeof(values));
			with_nan[i] = i % 2 ? NAN : -NAN;
			assert_true(isnan(logits_generic.max(with_nan, n)));
			assert_true(isnan(logits_pick()->max(with_nan, n)));
		}
	}
}

/* -0 as the largest and a +0 behind it: their distance must not be -0, which lies behind all buckets. */
static void test_zeros_of_both_signs_are_equals(void **state)
{
	const float logits[] = {-3, -0.0f, 0, -1, -0.0f, 0};
	struct request request = {.sampling = greedy};
	uint32_t token, drawn[6] = {0};
	struct sampler sampler;

	assert_int_equal(sampler_init(&sampler, 6, NULL, NULL), 0);
	assert_int_equal(sampler_draw(&sampler, &request, logits, NULL, 0, &token), 0);
	assert_int_equal(token, 1);
	request.sampling.temperature = 1;
	request.sampling.top_k = 3;
	for (request.sampling.seed = 0; request.sampling.seed < 200; request.sampling.seed++) {
		assert_int_equal(sampler_draw(&sampler, &request, logits, NULL, 0, &token), 0);
		drawn[token]++;
	}
	assert_true(drawn[1] && drawn[2] && drawn[4]);
	assert_int_equal(drawn[0] + drawn[3] + drawn[5], 0);
	sampler_free(&sampler);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_golden),
	    cmocka_unit_test(test_greedy_ties_go_to_the_lowest_id),
	    cmocka_unit_test(test_what_is_not_a_number_is_an_error),
	    cmocka_unit_test(test_vector_loops_equal_scalar_loops),
	    cmocka_unit_test(test_searches_equal_their_definition),
	    cmocka_unit_test(test_zeros_of_both_signs_are_equals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
