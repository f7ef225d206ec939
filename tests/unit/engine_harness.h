/* An engine over the backend made of a hash, and a test that plays the front. */
#ifndef TOKENRING_TESTS_UNIT_ENGINE_HARNESS_H
#define TOKENRING_TESTS_UNIT_ENGINE_HARNESS_H

#include "tests/unit/engine_backend.h"

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
	h->tape = (struct tape){.vocab = VOCAB, .width = WIDTH, .context = CONTEXT, .n_groups = 1};
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

	model.limits = (struct tape_limits){.rows = ROWS,
					    .sequences = SEQUENCES,
					    .outputs = ROWS,
					    .logits = LOGITS,
					    .context = CONTEXT,
					    .blocks = {BLOCKS}};
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

static void check_greedy(const struct harness *h, uint32_t index, uint32_t n)
{
	const struct request *r = &h->requests[index];
	uint32_t tokens[CONTEXT];

	memcpy(tokens, r->tokens, r->n_tokens * sizeof(*tokens));
	continue_greedily(tokens, r->n_tokens, n);
	assert_int_equal(h->n_answer[index], n);
	assert_memory_equal(h->answer[index], tokens + r->n_tokens, n * sizeof(*tokens));
}

#endif
