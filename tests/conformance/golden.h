/* Reads the files that tests/golden/make_model_golden.py writes, whose head describes the format. */
#ifndef TOKENRING_TESTS_CONFORMANCE_GOLDEN_H
#define TOKENRING_TESTS_CONFORMANCE_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

enum { GOLDEN_PROMPTS_MAX = 32 };

struct golden_prompt {
	uint32_t n, whole; /* positions; the one whose logits are all there (n: none) */
	const uint32_t *ids;
	const double *log_sum;         /* (n) */
	const uint16_t *top;           /* (n, top) ids, best first */
	const float *top_logits;       /* (n, top) */
	const float *fixed_logits;     /* (n, fixed) */
	const float *bucket_sums;      /* (n, buckets) */
	const float *llama_divergence; /* (n): KL of llama.cpp against Hugging Face */
	const int16_t *whole_logits;   /* (vocab) in 1/1024 */
	uint32_t greedy;
	const uint32_t *greedy_ids; /* (greedy): llama.cpp's own continuation */
	const float *greedy_gaps;   /* (greedy): nats between its two best */
};

struct golden {
	void *data;
	uint32_t prompts, vocab, top, fixed, buckets;
	double llama_divergence; /* mean over all positions */
	const uint32_t *fixed_ids;
	struct golden_prompt prompt[GOLDEN_PROMPTS_MAX];
};

/* Fails the test if the file is absent or broken. */
void golden_open(struct golden *, const char *path);
void golden_close(struct golden *);

#endif
