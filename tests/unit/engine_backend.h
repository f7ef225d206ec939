/* A backend made of a hash, for tests of what stands above backends.
 *
 * The logits of a row depend on every token that its KV blocks hold up to its position, so that a wrong block
 * table, a wrong position or a neighbour's token changes the answer. Included by one source file of a
 * program. */
#ifndef TOKENRING_TESTS_UNIT_ENGINE_BACKEND_H
#define TOKENRING_TESTS_UNIT_ENGINE_BACKEND_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <math.h>
#include <cmocka.h>

#include "daemon/engine/engine.h"

enum {
	VOCAB = 61,
	CONTEXT = 256,
	BLOCKS = 41,
	ROWS = 24,
	SEQUENCES = 6,
	LOGITS = 9,
	WIDTH = 13,
	HIDDEN_STRIDE = 16,
	REQUESTS = 24,
	EOS = 7
};

struct program {
	uint32_t key[BLOCKS * TAPE_KV_BLOCK];
	float logits[LOGITS * VOCAB];
	struct output_best best[ROWS];
	float hidden[ROWS][HIDDEN_STRIDE];
	uint32_t wanted[OUTPUT_HIDDEN + 1]; /* outputs by what they wanted */
	uint8_t faults[ROWS];
	uint32_t poison;                                     /* a token whose row is faulty; 0: none */
	uint32_t path_rows, path_keys;                       /* what program_paths says; 0: every number */
	uint32_t largest_batch, steps, most_rows, most_keys; /* seen by program_step */
	void (*poll)(void *poll_data);                       /* called for each row; may be NULL */
	void *poll_data;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9E3779B97F4A7C15u;
	return h ^ h >> 29;
}

static void logits_of(const uint32_t *tokens, uint32_t n, float *ret)
{
	uint64_t h = 1;

	for (uint32_t i = 0; i < n; i++)
		h = mix(h, tokens[i] + 1);
	for (uint32_t i = 0; i < VOCAB; i++)
		ret[i] = (float)(mix(h, i + 1) >> 40) / (float)(1 << 21);
}

static void hidden_of(const uint32_t *tokens, uint32_t n, float *ret)
{
	uint64_t h = 3;

	for (uint32_t i = 0; i < n; i++)
		h = mix(h, tokens[i] + 1);
	for (uint32_t i = 0; i < WIDTH; i++)
		ret[i] = (float)(mix(h, i + 1) >> 40) / (float)(1 << 21) - 4;
}

static struct output_best best_of(const float *logits)
{
	struct output_best best = {0, logits[0]};

	for (uint32_t id = 1; id < VOCAB; id++)
		if (logits[id] > best.value)
			best = (struct output_best){id, logits[id]};
	return best;
}

/* Only what is wanted is written: the rest is NaN. */
static float *answer_output(struct program *p, const struct batch *batch, uint32_t o, const uint32_t *tokens,
			    uint32_t n, float *next)
{
	float logits[VOCAB];

	p->wanted[batch_want(batch, o)]++;
	p->best[o] = (struct output_best){UINT32_MAX, NAN};
	for (uint32_t i = 0; i < HIDDEN_STRIDE; i++)
		p->hidden[o][i] = NAN;
	if (batch_want(batch, o) == OUTPUT_HIDDEN)
		hidden_of(tokens, n, p->hidden[o]);
	logits_of(tokens, n, logits);
	if (batch_want(batch, o) == OUTPUT_BEST)
		p->best[o] = best_of(logits);
	if (!batch_wants_logits(batch, o))
		return next;
	if (next + VOCAB > p->logits + LOGITS * VOCAB)
		abort();
	for (uint32_t i = 0; i < VOCAB; i++)
		next[i] = batch_want(batch, o) == OUTPUT_LOGITS ? logits[i] : NAN;
	for (uint32_t i = 0; batch_want(batch, o) == OUTPUT_CHOSEN && i < batch->output[o].n_chosen; i++)
		next[batch->output[o].chosen[i]] = logits[batch->output[o].chosen[i]];
	return next + VOCAB;
}

int program_step(struct program *p, const struct batch *batch)
{
	uint32_t context[CONTEXT];
	float *next = p->logits;

	if (batch->rows > ROWS || batch->sequences > SEQUENCES || batch->outputs > ROWS)
		abort();
	p->largest_batch = batch->sequences > p->largest_batch ? batch->sequences : p->largest_batch;
	p->steps++;
	p->most_rows = batch->rows > p->most_rows ? batch->rows : p->most_rows;
	for (uint32_t s = 0; s < batch->sequences; s++)
		p->most_keys = batch->seq[s].kv_len > p->most_keys ? batch->seq[s].kv_len : p->most_keys;
	for (uint32_t r = 0; r < batch->rows; r++) {
		const uint32_t *table = batch->table[0] + batch->sequence[r] * batch->table_stride;
		uint32_t position = batch->position[r];

		p->key[table[position / 32] * 32 + position % 32] = batch->token[r];
		if (p->poll)
			p->poll(p->poll_data);
		p->faults[r] = p->poison && batch->token[r] == p->poison;
	}
	for (uint32_t o = 0; o < batch->outputs; o++) {
		uint32_t row = batch->output_row[o];
		const uint32_t *table = batch->table[0] + batch->sequence[row] * batch->table_stride;

		for (uint32_t i = 0; i <= batch->position[row]; i++)
			context[i] = p->key[table[i / 32] * 32 + i % 32];
		next = answer_output(p, batch, o, context, batch->position[row] + 1, next);
	}
	return STEP_DONE;
}

void program_paths(const struct program *p, struct program_paths *ret)
{
	*ret = (struct program_paths){p->path_rows ? p->path_rows : UINT32_MAX,
				      p->path_keys ? p->path_keys : UINT32_MAX};
}

const float *program_logits(const struct program *p)
{
	return p->logits;
}

const struct output_best *program_best(const struct program *p)
{
	return p->best;
}

const float *program_hidden(const struct program *p, size_t *ret_stride)
{
	*ret_stride = HIDDEN_STRIDE;
	return p->hidden[0];
}

const uint8_t *program_faults(const struct program *p)
{
	return p->faults;
}

/* The greedy continuation by definition: tokens holds n and room for max_new more. */
static void continue_greedily(uint32_t *tokens, uint32_t n, uint32_t max_new)
{
	float logits[VOCAB];

	for (uint32_t i = 0; i < max_new; i++) {
		uint32_t best = 0;

		logits_of(tokens, n + i, logits);
		for (uint32_t id = 1; id < VOCAB; id++)
			if (logits[id] > logits[best])
				best = id;
		tokens[n + i] = best;
	}
}

#endif
