/* An engine over a backend made of a hash, and a test that plays the front.
 *
 * The logits of a row depend on every token that its KV blocks hold up to its position, so that a wrong block
 * table, a wrong position or a neighbour's token changes the answer. Included by one test program each. */
#ifndef TOKENRING_TESTS_UNIT_ENGINE_HARNESS_H
#define TOKENRING_TESTS_UNIT_ENGINE_HARNESS_H

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
	OUTPUTS = 9,
	REQUESTS = 24,
	EOS = 7
};

/* ---- the backend ---- */

struct program {
	uint32_t key[BLOCKS * TAPE_KV_BLOCK];
	float logits[OUTPUTS * VOCAB];
	uint8_t faults[ROWS];
	uint32_t poison; /* a token whose row is faulty; 0: none */
	uint32_t largest_batch, steps;
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

int program_step(struct program *p, const struct batch *batch)
{
	uint32_t context[CONTEXT];

	assert_true(batch->rows <= ROWS && batch->sequences <= SEQUENCES && batch->outputs <= OUTPUTS);
	p->largest_batch = batch->sequences > p->largest_batch ? batch->sequences : p->largest_batch;
	p->steps++;
	for (uint32_t r = 0; r < batch->rows; r++) {
		const uint32_t *table = batch->table[0] + batch->sequence[r] * batch->table_stride;
		uint32_t position = batch->position[r];

		p->key[table[position / 32] * 32 + position % 32] = batch->token[r];
		p->faults[r] = p->poison && batch->token[r] == p->poison;
	}
	for (uint32_t o = 0; o < batch->outputs; o++) {
		uint32_t row = batch->output_row[o];
		const uint32_t *table = batch->table[0] + batch->sequence[row] * batch->table_stride;

		for (uint32_t i = 0; i <= batch->position[row]; i++)
			context[i] = p->key[table[i / 32] * 32 + i % 32];
		logits_of(context, batch->position[row] + 1, p->logits + o * VOCAB);
	}
	return STEP_DONE;
}

const float *program_logits(const struct program *p)
{
	return p->logits;
}

const uint8_t *program_faults(const struct program *p)
{
	return p->faults;
}

/* ---- the harness: the test plays the front ---- */

static uint64_t now_ns = 1000;

static uint64_t test_clock(void)
{
	return now_ns;
}

struct harness {
	struct engine_link link;
	struct engine *engine;
	struct program program;
	struct tape tape;
	struct request requests[REQUESTS];
	uint32_t answer[REQUESTS][CONTEXT], n_answer[REQUESTS];
	struct engine_event last[REQUESTS]; /* the terminal event; kind 0: none yet */
	bool deliver;
};

static void begin(struct harness *h)
{
	struct engine_config config = {.link = &h->link, .clock = test_clock};

	memset(h, 0, sizeof(*h));
	h->deliver = true;
	h->tape = (struct tape){.vocab = VOCAB, .context = CONTEXT, .n_groups = 1};
	h->link.requests = h->requests;
	h->link.n_requests = REQUESTS;
	assert_int_equal(queue_init(&h->link.commands, 64, sizeof(struct engine_command)), 0);
	assert_int_equal(queue_init(&h->link.events, 2048, sizeof(struct engine_event)), 0);
	assert_int_equal(engine_create(&h->engine, &config), 0);
	for (uint32_t i = 0; i < REQUESTS; i++)
		h->requests[i].index = i;
}

static void set_model(struct harness *h)
{
	struct engine_model model = {
	    .program = &h->program, .tape = &h->tape, .max_prompt = 200, .n_eos = 1, .eos = {EOS}};
	char why[200];

	model.limits = (struct tape_limits){
	    .rows = ROWS, .sequences = SEQUENCES, .outputs = OUTPUTS, .context = CONTEXT, .blocks = {BLOCKS}};
	assert_int_equal(engine_set_model(h->engine, &model, why, sizeof(why)), 0);
	while (load_acquire_u32(&h->link.limits.state) != WIRE_MODEL_READY)
		assert_true(engine_turn(h->engine) > 0);
}

static void end_all(struct harness *h)
{
	assert_int_equal(load_relaxed_u64(&engine_counts(h->engine)->kv_blocks_used), 0);
	assert_int_equal(load_relaxed_u64(&engine_counts(h->engine)->running), 0);
	engine_free(h->engine);
	queue_free(&h->link.commands);
	queue_free(&h->link.events);
}

static struct request *fill(struct harness *h, uint32_t index, const uint32_t *tokens, uint32_t n,
			    uint32_t max_new)
{
	struct request *r = &h->requests[index];

	*r = (struct request){.index = index,
			      .op = WIRE_OP_GENERATE,
			      .tokens = tokens,
			      .n_tokens = n,
			      .max_new = max_new,
			      .arrival_ns = now_ns,
			      .sampling = {.top_p = 1, .penalty = 1, .ignore_eos = 1}};
	h->n_answer[index] = 0;
	h->last[index].kind = 0;
	return r;
}

static void command(struct harness *h, uint8_t kind, uint32_t index)
{
	struct engine_command c = {
	    .kind = kind, .request = index, .finish = WIRE_FINISH_CANCELLED, .reason = WIRE_REASON_CANCELLED};

	assert_true(queue_push(&h->link.commands, &c));
}

static void collect(struct harness *h)
{
	struct engine_event e;

	while (queue_pop(&h->link.events, &e)) {
		assert_int_equal(h->last[e.request].kind, 0); /* nothing after a terminal event */
		if (e.kind == EVENT_TOKEN || e.has_token) {
			h->answer[e.request][h->n_answer[e.request]++] = e.token;
			if (h->deliver)
				store_relaxed_u32(&h->requests[e.request].delivered, h->n_answer[e.request]);
		}
		if (e.kind != EVENT_TOKEN)
			h->last[e.request] = e;
	}
}

static void run(struct harness *h)
{
	while (engine_turn(h->engine))
		collect(h);
}

static const struct engine_event *run_one(struct harness *h, uint32_t index)
{
	command(h, COMMAND_SUBMIT, index);
	run(h);
	assert_int_not_equal(h->last[index].kind, 0);
	return &h->last[index];
}

/* The greedy answer by definition. */
static void check_greedy(const struct harness *h, uint32_t index, uint32_t n)
{
	const struct request *r = &h->requests[index];
	uint32_t tokens[CONTEXT];
	float logits[VOCAB];

	memcpy(tokens, r->tokens, r->n_tokens * sizeof(*tokens));
	assert_int_equal(h->n_answer[index], n);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t best = 0;

		logits_of(tokens, r->n_tokens + i, logits);
		for (uint32_t id = 1; id < VOCAB; id++)
			if (logits[id] > logits[best])
				best = id;
		assert_int_equal(h->answer[index][i], best);
		tokens[r->n_tokens + i] = best;
	}
}

#endif
