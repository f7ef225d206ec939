/* The sampler: from a row of logits to a token, the same for the same inputs on every machine.
 *
 * Order: repetition penalty over the whole context (a positive logit is divided by it, another multiplied,
 * once an id), bias, allowed set; with temperature 0 the largest, ties to the lowest id; else division by the
 * temperature, top-k, top-p, min-p, and inverse CDF in id order with philox_uniform(seed, position). Weights
 * are exp(x - max) in f32 (the contract's exp), all sums are f64 in id order (top-p: by
 * buckets of like values, then in rank order). top-k and top-p rank by value,
 * ties to the lowest id; top-p keeps the shortest prefix that holds top_p of the mass left by top-k; min-p
 * keeps what is at least min_p times as likely as the best. Log-probabilities are those of the raw logits: (x
 * - max) - log(sum of exp(x - max)).
 *
 * Thread rule: one thread a sampler; the calling thread is in the contract's floating-point mode
 * (contract_enter). No allocation after sampler_init. Source: docs/numerics.md. */
#ifndef TOKENRING_DAEMON_ENGINE_SAMPLER_H
#define TOKENRING_DAEMON_ENGINE_SAMPLER_H

#include <stdbool.h>

#include "daemon/engine/logits.h"
#include "daemon/engine/request.h"

enum { SAMPLER_BUCKETS = 4096 /* sign, exponent and four bits of mantissa */ };

struct sampler {
	uint32_t vocab;
	const struct logits_ops *ops;
	void (*poll)(void *poll_data); /* called every 100 us or so; may be NULL */
	void *poll_data;
	float *x;               /* (vocab) adjusted logits */
	float *weight;          /* (vocab) exp of them; 0: dropped */
	uint32_t *rank;         /* (vocab) a heap of ids */
	uint32_t *bucket_count; /* (SAMPLER_BUCKETS) ids by their distance from the maximum */
	double *bucket_mass;    /* (SAMPLER_BUCKETS) their weights */
	uint32_t *seen;         /* (vocab) the last draw whose context held the id */
	uint32_t draw;          /* number of this draw, never 0 */
};

/* Normalisation of one row of logits. */
struct log_sum {
	float max, log; /* log-probability of x: (x - max) - log */
};

/* -ENOMEM. */
int sampler_init(struct sampler *, uint32_t vocab, void (*poll)(void *), void *poll_data);
void sampler_free(struct sampler *);

/* Whether the token that sampler_draw would give is that of the largest logit as it is, ties to the lowest
 * id.
 */
bool sampler_takes_best(const struct request *);

/* Draws the token at position n_context. logits: (vocab); context: (n_context), all below vocab. Uses
 * sampling, bias and allowed of the request; with an allowed set no other logit is looked at. -EDOM: no
 * finite logit is left, or one is NaN. */
int sampler_draw(struct sampler *, const struct request *, const float *logits, const uint32_t *context,
		 uint32_t n_context, uint32_t *ret_token);

/* -EDOM as above. */
int sampler_log_sum(struct sampler *, const float *logits, struct log_sum *ret);

static inline float log_probability(float logit, const struct log_sum *sum)
{
	return (logit - sum->max) - sum->log;
}

/* The `n` largest logits in descending order, ties to the lowest id, with their log-probabilities. */
void sampler_top(const struct sampler *, const float *logits, const struct log_sum *, uint32_t n,
		 struct wire_scored *ret);

#endif
