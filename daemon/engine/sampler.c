#include "daemon/engine/sampler.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/philox.h"
#include "kernels/contract.h"
#include "shm/resident.h"

int sampler_init(struct sampler *sampler, uint32_t vocab, void (*poll)(void *), void *poll_data)
{
	struct sampler built = {.vocab = vocab, .ops = logits_pick(), .poll = poll, .poll_data = poll_data};

	built.x = resident_calloc(vocab, sizeof(*built.x));
	built.weight = resident_calloc(vocab, sizeof(*built.weight));
	built.rank = resident_calloc(vocab, sizeof(*built.rank));
	built.seen = resident_calloc(vocab, sizeof(*built.seen));
	built.bucket_count = resident_calloc(SAMPLER_BUCKETS, sizeof(*built.bucket_count));
	built.bucket_mass = resident_calloc(SAMPLER_BUCKETS, sizeof(*built.bucket_mass));
	if (!built.bucket_count || !built.bucket_mass || !built.x || !built.weight || !built.rank ||
	    !built.seen) {
		sampler_free(&built);
		return -ENOMEM;
	}
	*sampler = built;
	return 0;
}

void sampler_free(struct sampler *sampler)
{
	free(sampler->x);
	free(sampler->weight);
	free(sampler->rank);
	free(sampler->seen);
	free(sampler->bucket_count);
	free(sampler->bucket_mass);
	*sampler = (struct sampler){0};
}

static void breathe(const struct sampler *sampler)
{
	if (sampler->poll)
		sampler->poll(sampler->poll_data);
}

static void penalise(struct sampler *sampler, float penalty, const uint32_t *context, uint32_t n)
{
	if (++sampler->draw == 0) { /* the stamps of 2^32 draws ago must not look fresh */
		memset(sampler->seen, 0, sampler->vocab * sizeof(*sampler->seen));
		sampler->draw = 1;
	}
	for (uint32_t i = 0; i < n; i++) {
		float *x = &sampler->x[context[i]];

		if (sampler->seen[context[i]] == sampler->draw)
			continue;
		sampler->seen[context[i]] = sampler->draw;
		*x = *x > 0.0f ? *x / penalty : *x * penalty;
	}
}

/* Sets every logit that is not in the ascending set to -inf. */
static void allow_only(float *x, uint32_t vocab, const uint32_t *allowed, uint32_t n)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < n && allowed[i] < vocab; i++) {
		for (; next < allowed[i]; next++)
			x[next] = -INFINITY;
		next = allowed[i] + 1;
	}
	for (; next < vocab; next++)
		x[next] = -INFINITY;
}

static bool is_plain(const struct request *request)
{
	return request->sampling.penalty == 1.0f && !request->n_bias && !request->n_allowed;
}

bool sampler_takes_best(const struct request *request)
{
	return request->sampling.temperature == 0.0f && is_plain(request);
}

/* The logits after penalty, bias and allowed set: the raw ones if none of these is asked. */
static const float *adjust(struct sampler *sampler, const struct request *request, const float *logits,
			   const uint32_t *context, uint32_t n_context)
{
	if (is_plain(request))
		return logits;
	memcpy(sampler->x, logits, sampler->vocab * sizeof(*logits));
	if (request->sampling.penalty != 1.0f)
		penalise(sampler, request->sampling.penalty, context, n_context);
	for (uint32_t i = 0; i < request->n_bias; i++)
		if (request->bias[i].id < sampler->vocab)
			sampler->x[request->bias[i].id] += request->bias[i].bias;
	if (request->n_allowed)
		allow_only(sampler->x, sampler->vocab, request->allowed, request->n_allowed);
	return sampler->x;
}

/* ---- ranking: by (value descending, id ascending) ---- */

static bool ranks_before(const float *x, uint32_t a, uint32_t b)
{
	return x[a] > x[b] || (x[a] == x[b] && a < b);
}

static void sift(const float *x, uint32_t *heap, uint32_t n, uint32_t at)
{
	uint32_t id = heap[at];

	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= n)
			break;
		if (child + 1 < n && ranks_before(x, heap[child + 1], heap[child]))
			child++;
		if (ranks_before(x, id, heap[child]))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = id;
}

static uint32_t heap_pop(struct sampler *sampler, uint32_t *n)
{
	uint32_t best = sampler->rank[0];

	sampler->rank[0] = sampler->rank[--*n];
	sift(sampler->x, sampler->rank, *n, 0);
	return best;
}

/* A number that rises as x falls: the sign, exponent and upper mantissa of the distance from the maximum. */
static uint32_t bucket_of(float x, float max)
{
	return float_bits(max - x) >> 19;
}

static double mass(const float *weight, uint32_t n)
{
	double sum = 0.0;

	for (uint32_t i = 0; i < n; i++)
		sum += weight[i];
	return sum;
}

static void fill_buckets(struct sampler *sampler, float max)
{
	memset(sampler->bucket_count, 0, SAMPLER_BUCKETS * sizeof(*sampler->bucket_count));
	memset(sampler->bucket_mass, 0, SAMPLER_BUCKETS * sizeof(*sampler->bucket_mass));
	for (uint32_t i = 0; i < sampler->vocab; i++) {
		uint32_t bucket = bucket_of(sampler->x[i], max);

		if (!(sampler->weight[i] > 0.0f))
			continue;
		sampler->bucket_count[bucket]++;
		sampler->bucket_mass[bucket] += sampler->weight[i];
	}
}

/* Drops all that lies behind the bucket and makes a heap of what lies in it; returns its size. */
static uint32_t cut_at_bucket(struct sampler *sampler, uint32_t bucket, float max)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < sampler->vocab; i++) {
		uint32_t its = bucket_of(sampler->x[i], max);

		if (its > bucket)
			sampler->weight[i] = 0.0f;
		else if (its == bucket && sampler->weight[i] > 0.0f)
			sampler->rank[n++] = i;
	}
	for (uint32_t i = n / 2; i-- > 0;)
		sift(sampler->x, sampler->rank, n, i);
	return n;
}

/* Keeps the shortest prefix of the ranking that has `count` entries or `wanted` mass, one entry at least.
 * Whole buckets first, so that only the one at the edge is sorted: a heap of all took milliseconds for a flat
 * distribution. */
static void keep_best(struct sampler *sampler, float max, uint32_t count, double wanted)
{
	uint32_t bucket = 0, kept = 0, n;
	double sum = 0.0;

	fill_buckets(sampler, max);
	breathe(sampler);
	while (bucket < SAMPLER_BUCKETS - 1 && kept + sampler->bucket_count[bucket] < count &&
	       sum + sampler->bucket_mass[bucket] < wanted) {
		kept += sampler->bucket_count[bucket];
		sum += sampler->bucket_mass[bucket++];
	}
	n = cut_at_bucket(sampler, bucket, max);
	breathe(sampler);
	while (n && (!kept || (kept < count && sum < wanted))) {
		sum += sampler->weight[heap_pop(sampler, &n)];
		if (++kept % 1024 == 0)
			breathe(sampler);
	}
	for (uint32_t i = 0; i < n; i++)
		sampler->weight[sampler->rank[i]] = 0.0f;
}

static void keep_min_p(struct sampler *sampler, float min_p)
{
	for (uint32_t i = 0; i < sampler->vocab; i++)
		if (sampler->weight[i] < min_p) /* the best has weight exp(0) = 1 */
			sampler->weight[i] = 0.0f;
}

static uint32_t inverse_cdf(const float *weight, uint32_t n, double u)
{
	double target = u * mass(weight, n), sum = 0.0;
	uint32_t last = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (!(weight[i] > 0.0f))
			continue;
		sum += weight[i];
		if (sum > target)
			return i;
		last = i;
	}
	return last; /* u just below 1 and a product that rounded up */
}

int sampler_draw(struct sampler *sampler, const struct request *request, const float *logits,
		 const uint32_t *context, uint32_t n_context, uint32_t *ret_token)
{
	const struct sampling *sampling = &request->sampling;
	const float *x = adjust(sampler, request, logits, context, n_context);
	float max = sampler->ops->max(x, sampler->vocab);

	if (!(fabsf(max) < INFINITY))
		return -EDOM;
	breathe(sampler);
	if (sampling->temperature == 0.0f) {
		*ret_token = sampler->ops->find(x, sampler->vocab, max);
		return 0;
	}
	sampler->ops->divide(x, sampling->temperature, sampler->x, sampler->vocab);
	max = sampler->ops->max(sampler->x, sampler->vocab);
	if (!(fabsf(max) < INFINITY)) /* a tiny temperature overflows */
		return -EDOM;
	sampler->ops->exp(sampler->x, max, sampler->weight, sampler->vocab);
	breathe(sampler);
	if (sampling->top_k && sampling->top_k < sampler->vocab)
		keep_best(sampler, max, sampling->top_k, INFINITY);
	if (sampling->top_p < 1.0f)
		keep_best(sampler, max, UINT32_MAX, sampling->top_p * mass(sampler->weight, sampler->vocab));
	if (sampling->min_p > 0.0f)
		keep_min_p(sampler, sampling->min_p);
	breathe(sampler);
	*ret_token = inverse_cdf(sampler->weight, sampler->vocab, philox_uniform(sampling->seed, n_context));
	breathe(sampler);
	return 0;
}

int sampler_log_sum(struct sampler *sampler, const float *logits, struct log_sum *ret)
{
	float max = sampler->ops->max(logits, sampler->vocab);

	if (!(fabsf(max) < INFINITY))
		return -EDOM;
	sampler->ops->exp(logits, max, sampler->weight, sampler->vocab);
	breathe(sampler);
	*ret =
	    (struct log_sum){.max = max, .log = contract_log((float)mass(sampler->weight, sampler->vocab))};
	breathe(sampler);
	return 0;
}

void sampler_top(const struct sampler *sampler, const float *logits, const struct log_sum *sum, uint32_t n,
		 struct wire_scored *ret)
{
	uint32_t held = 0;

	for (uint32_t id = 0; id < sampler->vocab && n; id++) {
		uint32_t at;

		if (held == n)
			id = sampler->ops->above(logits, id, sampler->vocab, ret[n - 1].value);
		if (id == sampler->vocab)
			break;
		at = held < n ? held++ : n - 1;
		for (; at > 0 && logits[id] > ret[at - 1].value; at--)
			ret[at] = ret[at - 1];
		ret[at] = (struct wire_scored){.id = id, .value = logits[id]};
	}
	for (uint32_t i = 0; i < held; i++)
		ret[i].value = log_probability(ret[i].value, sum);
}
