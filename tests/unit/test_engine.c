/* The engine: answers together equal answers alone, and every way in which a request ends. */
#include "tests/unit/engine_harness.h"

static uint32_t prompt[CONTEXT];

static void test_one_request(void **state)
{
	static struct harness h;

	begin(&h);
	set_model(&h);
	assert_int_equal(h.program.largest_batch, SEQUENCES);
	assert_int_equal(h.link.limits.vocab, VOCAB);
	assert_int_equal(h.link.limits.kv_tokens, (BLOCKS - 1) * 32);
	fill(&h, 0, prompt, 100, 40);
	assert_int_equal(run_one(&h, 0)->finish, WIRE_FINISH_LENGTH);
	check_greedy(&h, 0, 40);
	end_all(&h);
}

/* The warm-up runs what the backend calls a path of its own, and twice as many rows for the pace of prefill.
 */
static void test_warm_up(void **state)
{
	static const struct {
		uint32_t rows, keys, steps, most_rows, most_keys;
	} cases[] = {
	    {0, 0, 7, ROWS, CONTEXT}, /* 1, 2, 4, 8, 16, 24; 24 */
	    {8, 70, 5, 16, CONTEXT},  /* 1, 2, 4, 8; 16; a prompt of 4 ends in the second segment of keys */
	    {5, 70, 5, 10, CONTEXT},  /* 1, 2, 4, 5; 10 */
	    {1, 70, 2, 2, 70},        /* 1; 2 */
	};
	static struct harness h;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		begin(&h);
		h.program.path_rows = cases[i].rows;
		h.program.path_keys = cases[i].keys;
		set_model(&h);
		assert_int_equal(h.program.steps, cases[i].steps);
		assert_int_equal(h.program.most_rows, cases[i].most_rows);
		assert_int_equal(h.program.most_keys, cases[i].most_keys);
		assert_int_equal(load_relaxed_u64(&engine_counts(h.engine)->warmed_shapes), cases[i].steps);
		for (int want = OUTPUT_LOGITS; want <= OUTPUT_BEST && cases[i].rows != 1; want++)
			assert_true(h.program.wanted[want]);
		end_all(&h);
	}
}

/* Requests of many lengths and samplers, arriving in the middle of each other: each answer as if alone. */
static void test_together_equals_alone(void **state)
{
	static struct harness h;
	static uint32_t alone[REQUESTS][CONTEXT], n_alone[REQUESTS], order[REQUESTS];

	begin(&h);
	set_model(&h);
	for (int pass = 0; pass < 4; pass++) {
		for (uint32_t i = 0; i < REQUESTS; i++) {
			struct request *r = fill(&h, i, prompt + i, 1 + i * 37 % 120, 1 + i * 13 % 60);

			r->sampling.temperature = (float)(i % 3) * 0.2f;
			r->sampling.seed = i;
			r->sampling.penalty = i % 2 ? 1.0f : 1.5f;
			r->sampling.ignore_eos = i % 4 != 0;
			r->priority = (uint8_t)(pass * i % 8);
			order[i] = pass == 2 ? REQUESTS - 1 - i : i;
		}
		h.program.largest_batch = 0;
		for (uint32_t i = 0; i < REQUESTS; i++) {
			if (pass == 0) {
				run_one(&h, i);
				continue;
			}
			command(&h, COMMAND_SUBMIT, order[i]);
			for (int turns = 0; turns < pass * 2; turns++)
				engine_turn(h.engine);
			collect(&h);
		}
		run(&h);
		for (uint32_t i = 0; i < REQUESTS; i++) {
			if (pass == 0) {
				memcpy(alone[i], h.answer[i], sizeof(alone[i]));
				n_alone[i] = h.n_answer[i];
			}
			assert_int_equal(h.last[i].kind, EVENT_FINISH);
			assert_int_equal(h.n_answer[i], n_alone[i]);
			assert_memory_equal(h.answer[i], alone[i], n_alone[i] * sizeof(uint32_t));
		}
		assert_int_equal(h.program.largest_batch, pass ? SEQUENCES : 1);
	}
	end_all(&h);
}

static void test_stop_ids(void **state)
{
	static struct harness h;
	uint32_t third;
	struct request *r;

	begin(&h);
	set_model(&h);
	fill(&h, 0, prompt, 10, 10);
	run_one(&h, 0);
	third = h.answer[0][2];
	r = fill(&h, 1, prompt, 10, 10);
	r->n_stop = 1;
	r->stop[0] = third;
	assert_int_equal(run_one(&h, 1)->finish, WIRE_FINISH_STOP);
	assert_int_equal(h.answer[1][h.n_answer[1] - 1], third);
	assert_true(h.n_answer[1] <= 3);

	/* Only the end-of-generation id may be drawn. */
	r = fill(&h, 2, prompt, 10, 10);
	r->allowed = (uint32_t[]){EOS};
	r->n_allowed = 1;
	assert_int_equal(run_one(&h, 2)->finish, WIRE_FINISH_LENGTH);
	assert_int_equal(h.n_answer[2], 10);
	r = fill(&h, 3, prompt, 10, 10);
	r->allowed = (uint32_t[]){EOS};
	r->n_allowed = 1;
	r->sampling.ignore_eos = 0;
	assert_int_equal(run_one(&h, 3)->finish, WIRE_FINISH_STOP);
	assert_int_equal(h.n_answer[3], 1);
	assert_int_equal(h.last[3].has_token, 1);
	end_all(&h);
}

static void expect_refusal(struct harness *h, const struct request *r, uint32_t reason, uint32_t asked,
			   uint32_t limit)
{
	const struct engine_event *e = run_one(h, r->index);

	assert_int_equal(e->kind, EVENT_REFUSED);
	assert_int_equal(e->reason, reason);
	assert_int_equal(e->asked, asked);
	assert_int_equal(e->limit, limit);
	assert_int_equal(h->n_answer[r->index], 0);
}

static void test_refusals_carry_the_numbers(void **state)
{
	static struct harness h;
	uint32_t foreign[] = {1, VOCAB};
	struct request *r;

	begin(&h);
	set_model(&h);
	expect_refusal(&h, fill(&h, 0, prompt, 201, 1), WIRE_REASON_PROMPT_TOO_LONG, 201, 200);
	expect_refusal(&h, fill(&h, 0, prompt, 200, 57), WIRE_REASON_CONTEXT, 257, CONTEXT);
	expect_refusal(&h, fill(&h, 0, foreign, 2, 1), WIRE_REASON_BAD_TOKEN, VOCAB, VOCAB);
	r = fill(&h, 0, prompt, 5, 0);
	r->op = WIRE_OP_SCORE;
	r->n_candidates = 3;
	r->reply_cap = 39;
	expect_refusal(&h, r, WIRE_REASON_BAD_REPLY, 16 + 3 * 8, 39);
	h.link.limits.kv_tokens = 100;
	expect_refusal(&h, fill(&h, 0, prompt, 90, 12), WIRE_REASON_KV_NEVER_FITS, 101, 100);
	end_all(&h);
}

static void test_deadlines(void **state)
{
	static struct harness h;
	struct request *r;

	begin(&h);
	set_model(&h);
	r = fill(&h, 0, prompt, 5, 5);
	r->deadline_ns = now_ns;
	expect_refusal(&h, r, WIRE_REASON_DEADLINE, 0, 0);
	r = fill(&h, 1, prompt, 5, 50);
	r->deadline_ns = now_ns + 100;
	command(&h, COMMAND_SUBMIT, 1);
	for (int i = 0; i < 10; i++)
		engine_turn(h.engine);
	now_ns += 100;
	run(&h);
	assert_int_equal(h.last[1].kind, EVENT_FINISH);
	assert_int_equal(h.last[1].finish, WIRE_FINISH_DEADLINE);
	assert_int_equal(h.n_answer[1], 10);
	end_all(&h);
}

static void test_ends(void **state)
{
	static struct harness h;

	begin(&h);
	set_model(&h);
	for (uint32_t i = 0; i < 8; i++) { /* two more than there are slots */
		fill(&h, i, prompt, 5, 50);
		command(&h, COMMAND_SUBMIT, i);
	}
	engine_turn(h.engine);
	command(&h, COMMAND_END, 2);
	command(&h, COMMAND_END, 7);
	command(&h, COMMAND_END, 20); /* was never submitted */
	engine_turn(h.engine);
	collect(&h);
	assert_int_equal(h.last[2].finish, WIRE_FINISH_CANCELLED);
	assert_int_equal(h.last[7].finish, WIRE_FINISH_CANCELLED);
	assert_int_equal(h.n_answer[7], 0);
	run(&h);
	for (uint32_t i = 0; i < 7; i++)
		if (i != 2)
			check_greedy(&h, i, 50);
	end_all(&h);
}

static void test_a_slow_reader_pauses_only_itself(void **state)
{
	static struct harness h;

	begin(&h);
	set_model(&h);
	h.deliver = false;
	fill(&h, 0, prompt, 5, 100);
	fill(&h, 1, prompt, 9, 30);
	command(&h, COMMAND_SUBMIT, 0);
	command(&h, COMMAND_SUBMIT, 1);
	run(&h);
	assert_int_equal(h.n_answer[0], REQUEST_UNDELIVERED_MAX);
	assert_int_equal(h.last[1].finish, WIRE_FINISH_LENGTH);
	assert_int_equal(engine_look_again_ns(h.engine), now_ns + 1000000);
	store_relaxed_u32(&h.requests[0].delivered, 1);
	run(&h);
	assert_int_equal(h.n_answer[0], REQUEST_UNDELIVERED_MAX + 1);
	h.deliver = true;
	store_relaxed_u32(&h.requests[0].delivered, 65);
	run(&h);
	check_greedy(&h, 0, 100);
	end_all(&h);
}

static void test_a_fault_ends_only_its_request(void **state)
{
	static struct harness h;
	uint32_t bad[] = {3, 60, 4};

	begin(&h);
	set_model(&h);
	fill(&h, 0, prompt, 5, 3);
	run_one(&h, 0);
	h.program.poison = 60;
	fill(&h, 0, prompt, 5, 3);
	fill(&h, 1, bad, 3, 20);
	command(&h, COMMAND_SUBMIT, 0);
	command(&h, COMMAND_SUBMIT, 1);
	run(&h);
	assert_int_equal(h.last[1].finish, WIRE_FINISH_ERROR);
	assert_int_equal(h.last[1].reason, WIRE_REASON_NUMERIC);
	check_greedy(&h, 0, 3);
	end_all(&h);
}

static double log_probability_of(const uint32_t *tokens, uint32_t n, uint32_t id)
{
	float logits[VOCAB];
	double sum = 0;

	logits_of(tokens, n, logits);
	for (uint32_t i = 0; i < VOCAB; i++)
		sum += exp(logits[i]);
	return logits[id] - log(sum);
}

static void test_log_probabilities(void **state)
{
	static struct harness h;
	static uint8_t reply[16 + 12 * 3 * 8];
	struct wire_reply header;
	struct wire_scored record;
	uint32_t tokens[CONTEXT];
	struct request *r;

	begin(&h);
	set_model(&h);
	r = fill(&h, 0, prompt, 40, 12);
	r->sampling.temperature = 0.5f;
	r->logprobs = 1;
	r->n_logprobs = 2;
	r->reply = reply;
	r->reply_cap = sizeof(reply);
	assert_int_equal(run_one(&h, 0)->reply_bytes, sizeof(reply));
	memcpy(&header, reply, sizeof(header));
	assert_int_equal(header.kind, WIRE_REPLY_LOGPROBS);
	assert_int_equal(header.count, 36);
	assert_int_equal(header.stride, 8);
	memcpy(tokens, prompt, 40 * sizeof(*tokens));
	for (uint32_t i = 0; i < 12; i++) {
		for (uint32_t j = 0; j < 3; j++) {
			memcpy(&record, reply + 16 + (i * 3 + j) * 8, 8);
			if (j == 0)
				assert_int_equal(record.id, h.answer[0][i]);
			assert_true(fabs(log_probability_of(tokens, 40 + i, record.id) - record.value) <
				    1e-5);
		}
		tokens[40 + i] = h.answer[0][i];
	}
	end_all(&h);
}

static void test_score(void **state)
{
	static struct harness h;
	static uint8_t reply[16 + 64 * 8];
	static const uint32_t lengths[] = {1, 20, 1, 2, 5}, candidates[] = {9, 60, 0};
	static uint32_t continuations[29];
	struct wire_scored record;
	uint32_t tokens[CONTEXT], at = 0;
	float logits[VOCAB];
	struct request *r;

	begin(&h);
	set_model(&h);
	for (uint32_t i = 0; i < 29; i++)
		continuations[i] = i * 17 % VOCAB;
	memcpy(tokens, prompt, sizeof(tokens));
	for (uint32_t i = 0; i < 3;
	     i++) { /* two score continuations at once with a third, beside a generation */
		r = fill(&h, i, prompt, 61, 0);
		r->op = WIRE_OP_SCORE;
		r->n_continuations = 5;
		r->continuation_lengths = lengths;
		r->continuations = continuations;
		r->reply = i ? calloc(1, sizeof(reply)) : reply;
		r->reply_cap = sizeof(reply);
		command(&h, COMMAND_SUBMIT, i);
	}
	fill(&h, 3, prompt, 7, 30);
	command(&h, COMMAND_SUBMIT, 3);
	run(&h);
	check_greedy(&h, 3, 30);
	assert_int_equal(h.last[0].finish, WIRE_FINISH_DONE);
	assert_int_equal(h.last[0].reply_bytes, 16 + 29 * 8);
	for (uint32_t i = 0; i < 5; i++) {
		for (uint32_t j = 0; j < lengths[i]; j++, at++) {
			memcpy(&record, reply + 16 + at * 8, 8);
			assert_int_equal(record.id, continuations[at]);
			assert_true(fabs(log_probability_of(tokens, 61 + j, record.id) - record.value) <
				    1e-5);
			tokens[61 + j] = continuations[at];
		}
	}
	for (uint32_t i = 1; i < 3; i++) {
		assert_memory_equal(h.requests[i].reply, reply, 16 + 29 * 8);
		free(h.requests[i].reply);
	}

	r = fill(&h, 0, prompt, 61, 0);
	r->op = WIRE_OP_SCORE;
	r->n_candidates = 3;
	r->candidates = candidates;
	r->reply = reply;
	r->reply_cap = 16 + 3 * 8;
	assert_int_equal(run_one(&h, 0)->reply_bytes, 16 + 3 * 8);
	logits_of(prompt, 61, logits);
	for (uint32_t i = 0; i < 3; i++) {
		memcpy(&record, reply + 16 + i * 8, 8);
		assert_int_equal(record.id, candidates[i]);
		assert_true(record.value == logits[candidates[i]]);
	}
	end_all(&h);
}

/* ---- embeddings ---- */

static struct request *fill_embed(struct harness *h, uint32_t index, uint32_t n, bool mean, uint8_t *reply)
{
	struct request *r = fill(h, index, prompt + index, n, 0);

	r->op = WIRE_OP_EMBED;
	r->mean = mean;
	r->reply = reply;
	r->reply_cap = 16 + WIDTH * 4;
	return r;
}

/* By definition: of the last token, or the sum of all in their order by their number. */
static void expect_embedding(const struct harness *h, uint32_t index)
{
	const struct request *r = &h->requests[index];
	float sum[WIDTH] = {0}, hidden[WIDTH], got[WIDTH];
	struct wire_reply header;

	for (uint32_t n = r->mean ? 1 : r->n_tokens; n <= r->n_tokens; n++) {
		hidden_of(r->tokens, n, hidden);
		for (uint32_t k = 0; k < WIDTH; k++)
			sum[k] = sum[k] + hidden[k];
	}
	for (uint32_t k = 0; k < WIDTH && r->mean; k++)
		sum[k] = sum[k] / (float)r->n_tokens;
	assert_int_equal(h->last[index].kind, EVENT_FINISH);
	assert_int_equal(h->last[index].finish, WIRE_FINISH_DONE);
	assert_int_equal(h->last[index].reply_bytes, 16 + WIDTH * 4);
	assert_int_equal(h->n_answer[index], 0);
	memcpy(&header, r->reply, sizeof(header));
	assert_int_equal(header.kind, WIRE_REPLY_EMBEDDING);
	assert_int_equal(header.count, WIDTH);
	assert_int_equal(header.stride, 4);
	assert_int_equal(header.bytes, 16 + WIDTH * 4);
	memcpy(got, r->reply + sizeof(header), sizeof(got));
	assert_memory_equal(got, sum, sizeof(got));
}

/* Prompts of one token and of many steps, alone and side by side with each other and with streams. */
static void test_embeddings(void **state)
{
	static const uint32_t lengths[] = {1, 23, 24, 25, 100, 200};
	static uint8_t reply[6][16 + WIDTH * 4];
	static struct harness h;

	begin(&h);
	set_model(&h);
	for (int pass = 0; pass < 4; pass++) {
		for (uint32_t i = 0; i < 6; i++) {
			fill_embed(&h, i, lengths[i], (i + (uint32_t)pass) % 2, reply[i]);
			if (pass < 2)
				run_one(&h, i);
			else
				command(&h, COMMAND_SUBMIT, i);
		}
		fill(&h, 6, prompt, 40, 20);
		command(&h, COMMAND_SUBMIT, 6);
		run(&h);
		check_greedy(&h, 6, 20);
		for (uint32_t i = 0; i < 6; i++)
			expect_embedding(&h, i);
	}
	end_all(&h);
}

static void test_embeddings_that_cannot_be(void **state)
{
	static uint8_t reply[16 + WIDTH * 4];
	static struct harness h;

	begin(&h);
	set_model(&h);
	fill_embed(&h, 0, 30, false, reply)->reply_cap--;
	assert_int_equal(run_one(&h, 0)->kind, EVENT_REFUSED);
	assert_int_equal(h.last[0].reason, WIRE_REASON_BAD_REPLY);
	fill_embed(&h, 0, 0, true, reply);
	assert_int_equal(run_one(&h, 0)->reason, WIRE_REASON_NO_TOKENS);
	fill_embed(&h, 0, 201, true, reply);
	assert_int_equal(run_one(&h, 0)->reason, WIRE_REASON_PROMPT_TOO_LONG);
	h.program.poison = prompt[20];
	fill_embed(&h, 0, 30, true, reply);
	assert_int_equal(run_one(&h, 0)->finish, WIRE_FINISH_ERROR);
	assert_int_equal(h.last[0].reason, WIRE_REASON_NUMERIC);
	assert_int_equal(h.last[0].reply_bytes, 0);
	end_all(&h);
}

/* Outputs of one request that wanted this; the answer is judged by whom it belongs to. */
static uint32_t wanted(struct harness *h, uint32_t index, enum output_want want)
{
	memset(h->program.wanted, 0, sizeof(h->program.wanted));
	assert_int_equal(run_one(h, index)->kind, EVENT_FINISH);
	assert_int_equal(h->last[index].reason, WIRE_REASON_NONE);
	return h->program.wanted[want];
}

/* Each token is the likelier of two, whatever the others are. */
static void check_allowed(const struct harness *h, uint32_t index, uint32_t n)
{
	const struct request *r = &h->requests[index];
	uint32_t tokens[CONTEXT];
	float logits[VOCAB];

	memcpy(tokens, r->tokens, r->n_tokens * sizeof(*tokens));
	assert_int_equal(h->n_answer[index], n);
	for (uint32_t i = 0; i < n; i++) {
		logits_of(tokens, r->n_tokens + i, logits);
		tokens[r->n_tokens + i] = r->allowed[logits[r->allowed[1]] > logits[r->allowed[0]]];
		assert_int_equal(h->answer[index][i], tokens[r->n_tokens + i]);
	}
}

/* A step gives no more than a request reads. */
static void test_only_what_is_read_is_wanted(void **state)
{
	static const struct bias_entry bias[] = {{3, 9.0f}};
	static const uint32_t ids[] = {5, 8};
	static uint8_t reply[16 + WIDTH * 8];
	static struct harness h;

	begin(&h);
	set_model(&h);
	fill(&h, 0, prompt, 30, 6);
	assert_int_equal(wanted(&h, 0, OUTPUT_BEST), 6);
	assert_int_equal(h.program.wanted[OUTPUT_LOGITS], 0);
	check_greedy(&h, 0, 6);
	fill(&h, 0, prompt, 30, 6)->sampling.temperature = 1;
	assert_int_equal(wanted(&h, 0, OUTPUT_LOGITS), 6);
	fill(&h, 0, prompt, 30, 6)->sampling.penalty = 1.5f;
	assert_int_equal(wanted(&h, 0, OUTPUT_LOGITS), 6);
	fill(&h, 0, prompt, 30, 6)->bias = bias;
	h.requests[0].n_bias = 1;
	assert_int_equal(wanted(&h, 0, OUTPUT_LOGITS), 6);
	fill(&h, 0, prompt, 30, 6)->allowed = ids;
	h.requests[0].n_allowed = 2;
	assert_int_equal(wanted(&h, 0, OUTPUT_CHOSEN), 6);
	check_allowed(&h, 0, 6);
	fill(&h, 0, prompt, 30, 6)->allowed = ids;
	h.requests[0].n_allowed = 2;
	h.requests[0].sampling.temperature = 0.7f;
	h.requests[0].sampling.penalty = 1.5f;
	assert_int_equal(wanted(&h, 0, OUTPUT_CHOSEN), 6);
	for (uint32_t i = 0; i < 6; i++)
		assert_true(h.answer[0][i] == ids[0] || h.answer[0][i] == ids[1]);
	fill(&h, 0, prompt, 30, 6)->logprobs = 1;
	h.requests[0].reply = reply;
	h.requests[0].reply_cap = sizeof(reply);
	assert_int_equal(wanted(&h, 0, OUTPUT_LOGITS), 6);
	check_greedy(&h, 0, 6);
	fill(&h, 0, prompt, 30, 0)->op = WIRE_OP_SCORE;
	h.requests[0].candidates = ids;
	h.requests[0].n_candidates = 2;
	h.requests[0].reply = reply;
	h.requests[0].reply_cap = sizeof(reply);
	assert_int_equal(wanted(&h, 0, OUTPUT_CHOSEN), 1);
	assert_int_equal(h.program.wanted[OUTPUT_LOGITS], 0);
	fill_embed(&h, 0, 30, false, reply);
	assert_int_equal(wanted(&h, 0, OUTPUT_HIDDEN), 1);
	fill_embed(&h, 0, 30, true, reply);
	assert_int_equal(wanted(&h, 0, OUTPUT_HIDDEN), 30);
	end_all(&h);
}

static void test_before_and_without_a_model(void **state)
{
	static struct harness h;
	struct request *r;

	begin(&h);
	fill(&h, 0, prompt, 5, 5);
	command(&h, COMMAND_SUBMIT, 0);
	r = fill(&h, 1, prompt, 5, 5);
	r->deadline_ns = now_ns + 10;
	command(&h, COMMAND_SUBMIT, 1);
	assert_int_equal(engine_turn(h.engine), 0);
	assert_int_equal(engine_look_again_ns(h.engine), now_ns + 10);
	now_ns += 10;
	assert_int_equal(engine_turn(h.engine), 1);
	collect(&h);
	assert_int_equal(h.last[1].reason, WIRE_REASON_DEADLINE);
	set_model(&h);
	run(&h);
	check_greedy(&h, 0, 5);
	end_all(&h);

	begin(&h);
	fill(&h, 0, prompt, 5, 5);
	command(&h, COMMAND_SUBMIT, 0);
	engine_turn(h.engine);
	engine_fail_model(h.engine);
	run(&h);
	assert_int_equal(h.last[0].reason, WIRE_REASON_MODEL_FAILED);
	end_all(&h);
}

static int set_up(void **state)
{
	for (uint32_t i = 0; i < CONTEXT; i++)
		prompt[i] = (i * i + 3 * i) % 59;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_one_request),
	    cmocka_unit_test(test_warm_up),
	    cmocka_unit_test(test_together_equals_alone),
	    cmocka_unit_test(test_stop_ids),
	    cmocka_unit_test(test_refusals_carry_the_numbers),
	    cmocka_unit_test(test_deadlines),
	    cmocka_unit_test(test_ends),
	    cmocka_unit_test(test_a_slow_reader_pauses_only_itself),
	    cmocka_unit_test(test_a_fault_ends_only_its_request),
	    cmocka_unit_test(test_log_probabilities),
	    cmocka_unit_test(test_score),
	    cmocka_unit_test(test_only_what_is_read_is_wanted),
	    cmocka_unit_test(test_embeddings),
	    cmocka_unit_test(test_embeddings_that_cannot_be),
	    cmocka_unit_test(test_before_and_without_a_model),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
