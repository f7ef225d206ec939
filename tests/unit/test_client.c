/* The client library against a daemon's end that behaves: requests of every kind, blocks, limits, sleeping.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/client_fixture.h"

static void an_echo_returns_its_tokens(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	uint64_t last = 0;

	for (uint8_t n = 1; n <= TR_INLINE_TOKENS; n++) {
		struct tr_request request = request_of(TR_ECHO, n, 100 * n);
		uint64_t id = submit_ok(client, &request);
		struct tr_event event = wait_one(client);

		assert_true(id >> 16 > last >> 16);
		assert_true((id & 0xffff) < tr_max_inflight(client));
		last = id;
		assert_int_equal(event.size, sizeof event);
		assert_int_equal(event.kind, TR_EVENT_ECHO);
		assert_int_equal(event.id, id);
		assert_int_equal(event.n_tokens, n);
		for (uint32_t i = 0; i < TR_INLINE_TOKENS; i++)
			assert_int_equal(event.tokens[i], i < n ? 100 * n + i : 0);
	}
	tr_close(client);
	fake_stop(&fake);
}

static void expect_stream(struct tr_client *client, uint64_t id, uint32_t last, uint32_t n)
{
	struct tr_event event = {.kind = TR_EVENT_TOKENS};
	uint32_t seen = 0;

	while (event.kind == TR_EVENT_TOKENS) {
		event = wait_one(client);
		assert_int_equal(event.id, id);
		assert_int_equal(event.first, seen);
		for (uint32_t i = 0; i < event.n_tokens; i++)
			assert_int_equal(event.tokens[i], last + 1 + seen + i);
		seen += event.n_tokens;
	}
	assert_int_equal(seen, n);
	assert_int_equal(event.kind, TR_EVENT_FINAL);
	assert_int_equal(event.finish, TR_FINISH_LENGTH);
}

static void a_stream_arrives_whole(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_GENERATE, 8, 10);

	request.max_new = 1000;
	expect_stream(client, submit_ok(client, &request), 17, 1000);
	tr_close(client);
	fake_stop(&fake);
}

static void a_long_prompt_travels_in_a_block(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_GENERATE, 0, 0);
	uint32_t prompt[700], stop[] = {5, 6, 7};
	struct tr_bias bias[] = {{1, -1.5f}};
	struct tr_sampling sampling = {.size = sizeof sampling, .top_p = 1, .penalty = 1, .ignore_eos = 1};
	struct tr_request_extra extra = {.size = sizeof extra,
					 .n_tokens = 700,
					 .tokens = prompt,
					 .sampling = &sampling,
					 .stop_ids = stop,
					 .n_stop_ids = 3,
					 .bias = bias,
					 .n_bias = 1};

	for (uint32_t i = 0; i < 700; i++)
		prompt[i] = 3 * i;
	request.extra = &extra;
	for (uint32_t round = 1; round < 100; round++) {
		extra.n_tokens = 7 * round;
		extra.max_new = round;
		expect_stream(client, submit_ok(client, &request), 3 * (extra.n_tokens - 1), round);
	}
	assert_true(client->n_ended == 1);
	tr_poll(client, &(struct tr_event){.size = sizeof(struct tr_event)}, 1);
	assert_int_equal(arena_longest(&client->arena), client->arena.n_units);
	tr_close(client);
	fake_stop(&fake);
}

static void scores_lie_in_the_reply(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_SCORE, 3, 1);
	uint32_t candidates[] = {9, 4, 77};
	struct tr_request_extra extra = {.size = sizeof extra, .candidates = candidates, .n_candidates = 3};
	struct tr_event event;
	uint64_t id;

	request.extra = &extra;
	id = submit_ok(client, &request);
	event = wait_one(client);
	assert_int_equal(event.id, id);
	assert_int_equal(event.kind, TR_EVENT_FINAL);
	assert_int_equal(event.finish, TR_FINISH_DONE);
	assert_int_equal(event.n_scored, 3);
	assert_int_equal(event.scored_stride, 1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(event.scored[i].id, candidates[i]);
		assert_true(event.scored[i].value == (float)candidates[i] / 2);
	}
	tr_close(client);
	fake_stop(&fake);
}

static void an_embedding_lies_in_the_reply(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_EMBED, 3, 1);
	struct tr_request_extra extra = {.size = sizeof extra, .n_embedding = 576};
	struct tr_event event;

	request.extra = &extra;
	for (extra.pool = TR_POOL_LAST; extra.pool <= TR_POOL_MEAN; extra.pool++) {
		submit_ok(client, &request);
		event = wait_one(client);
		assert_int_equal(event.kind, TR_EVENT_FINAL);
		assert_int_equal(event.finish, TR_FINISH_DONE);
		assert_null(event.scored);
		assert_int_equal(event.n_embedding, 576);
		for (uint32_t i = 0; i < 576; i++)
			assert_true(event.embedding[i] ==
				    (float)i / 2 + (extra.pool == TR_POOL_MEAN ? 0.25f : 0));
	}
	extra.n_embedding = UINT32_MAX;
	extra.pool = TR_POOL_LAST;
	assert_int_equal(tr_submit(client, &request, &(uint64_t){0}), -E2BIG);
	tr_close(client);
	fake_stop(&fake);
}

static void log_probabilities_stream_with_their_tokens(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_GENERATE, 1, 10);
	struct tr_request_extra extra = {.size = sizeof extra, .max_new = 20, .n_logprobs = 2};
	struct tr_event event = {.kind = TR_EVENT_TOKENS};

	request.extra = &extra;
	submit_ok(client, &request);
	while (event.kind == TR_EVENT_TOKENS) {
		uint32_t first;

		event = wait_one(client);
		first = event.kind == TR_EVENT_TOKENS ? event.first : 0;
		assert_int_equal(event.scored_stride, 3);
		assert_int_equal(event.n_scored, event.kind == TR_EVENT_TOKENS ? 3u * event.n_tokens : 60);
		for (uint32_t i = 0; i < event.n_scored; i++) {
			assert_int_equal(event.scored[i].id, 11 + first + i / 3 + 1000 * (i % 3));
			assert_true(event.scored[i].value == -(float)(3 * first + i));
		}
	}
	tr_close(client);
	fake_stop(&fake);
}

static void a_refusal_carries_its_numbers(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_GENERATE, 1, 666);
	struct tr_event event;

	submit_ok(client, &request);
	event = wait_one(client);
	assert_int_equal(event.kind, TR_EVENT_REFUSED);
	assert_int_equal(event.n_tokens, 0);
	assert_int_equal(event.status, -EMSGSIZE);
	assert_int_equal(tr_reason_errno(event.reason), EMSGSIZE);
	assert_string_equal(tr_strreason(event.reason), "the prompt is longer than max_prompt_tokens");
	assert_int_equal(event.predicted_ns, 5000000000);
	assert_int_equal(event.retry_ns, 77);
	assert_int_equal(event.asked, 666);
	assert_int_equal(event.limit, 100);
	tr_close(client);
	fake_stop(&fake);
}

/* Returns when the daemon takes nothing more, also not what it was about to take. */
static void stop_consuming(struct fake_daemon *fake)
{
	uint64_t slept = load_relaxed_u64(&fake->sleeps);

	fake_set(fake, FAKE_NO_CONSUME);
	while (load_relaxed_u64(&fake->sleeps) == slept)
		usleep(200);
}

/* Submits until the library says no more: how many went. */
static uint32_t submit_all(struct tr_client *client, uint64_t *ids, uint32_t n_most)
{
	struct tr_request request = request_of(TR_ECHO, 1, 0);
	uint32_t n = 0;
	int error = 0;

	while (n < n_most && (error = tr_submit(client, &request, &ids[n])) == 0)
		request.tokens[0] = ++n;
	assert_int_equal(error, -EAGAIN);
	return n;
}

static void expect_echoes(struct tr_client *client, const uint64_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct tr_event event = wait_one(client);

		assert_int_equal(event.id, ids[i]);
		assert_int_equal(event.tokens[0], i);
	}
}

static void a_full_channel_says_so_and_loses_nothing(void **state)
{
	/* Of table entries and slots, less one for a cancel, what there are fewer of is the limit. */
	const uint32_t sizes[][3] = {{16, 32, 15}, {16, 16, 15}, {64, 32, 32}};

	for (int k = 0; k < 3; k++) {
		struct fake_daemon fake = {
		    .sq_slots = sizes[k][0], .max_inflight = sizes[k][1], .cq_slots = 64};
		struct tr_client *client = open_client(&fake);
		uint64_t ids[64];

		assert_int_equal(tr_max_inflight(client), sizes[k][2]);
		for (int round = 0; round < 3; round++) {
			stop_consuming(&fake);
			assert_int_equal(submit_all(client, ids, 64), sizes[k][2]);
			fake_clear(&fake, FAKE_NO_CONSUME);
			expect_echoes(client, ids, sizes[k][2]);
		}
		tr_close(client);
		fake_stop(&fake);
	}
}

static void cancellations_leave_a_slot_to_each_free_entry(void **state)
{
	struct fake_daemon fake = {.sq_slots = 16, .max_inflight = 8};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_ECHO, 1, 0);
	uint64_t ids[8];

	for (uint32_t n = 1; n <= 8; n++) {
		uint32_t n_cancelled = 0;
		int error;

		stop_consuming(&fake);
		for (uint32_t i = 0; i < n; i++, request.tokens[0] = i)
			ids[i] = submit_ok(client, &request);
		while ((error = tr_cancel(client, ids[n_cancelled % n])) == 0)
			n_cancelled++;
		assert_int_equal(error, -EAGAIN);
		assert_int_equal(n_cancelled, 8);
		for (uint32_t i = n; i < 8; i++, request.tokens[0] = i)
			ids[i] = submit_ok(client, &request);
		assert_int_equal(tr_submit(client, &request, &ids[0]), -EAGAIN);
		assert_int_equal(client->submissions.index - fake.submissions.index, 16);
		request.tokens[0] = 0;
		fake_clear(&fake, FAKE_NO_CONSUME);
		expect_echoes(client, ids, 8);
	}
	tr_close(client);
	fake_stop(&fake);
}

static void the_arena_is_a_limit_too(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_ECHO, 0, 0);
	uint32_t *prompt = calloc(1 << 21, 4);
	struct tr_request_extra extra = {.size = sizeof extra, .n_tokens = 8000, .tokens = prompt};
	uint64_t id = 0;

	request.extra = &extra;
	fake_set(&fake, FAKE_NO_CONSUME);
	/* Two blocks of 32,072 bytes fit 64 KiB, a third does not. */
	submit_ok(client, &request);
	submit_ok(client, &request);
	assert_int_equal(tr_submit(client, &request, &id), -EAGAIN);
	extra.n_tokens = 40000;
	assert_int_equal(tr_submit(client, &request, &id), -E2BIG);
	extra.n_tokens = 1 << 21;
	assert_int_equal(tr_submit(client, &request, &id), -E2BIG);
	assert_int_equal(id, 0);
	free(prompt);
	tr_close(client);
	fake_stop(&fake);
}

static void many_are_submitted_at_once(void **state)
{
	struct fake_daemon fake = {.sq_slots = 16};
	struct tr_client *client = open_client(&fake);
	struct tr_request requests[20];
	struct tr_event events[20] = {{.size = sizeof events[0]}};
	uint64_t ids[20];
	int got = 0;

	for (uint32_t i = 0; i < 20; i++)
		requests[i] = request_of(TR_ECHO, 2, i);
	requests[10].op = 0;
	assert_int_equal(tr_submit_many(client, &requests[10], 1, ids), -EINVAL);
	assert_int_equal(tr_submit_many(client, requests, 20, ids), 10);
	while (got < 10)
		got += tr_wait(client, events + got, 20, SECOND_NS), events[got].size = sizeof events[0];
	for (uint32_t i = 0; i < 10; i++) {
		assert_int_equal(events[i].id, ids[i]);
		assert_int_equal(events[i].tokens[1], i + 1);
	}
	tr_close(client);
	fake_stop(&fake);
}

static void cancel_reaches_the_daemon(struct fake_daemon *fake, const struct wire_submission *submission)
{
	static uint64_t target;

	if (submission->op == WIRE_OP_CANCEL) {
		struct wire_completion answer = {.kind = WIRE_KIND_FINAL,
						 .finish = WIRE_FINISH_CANCELLED,
						 .status = -ECANCELED,
						 .aux = WIRE_REASON_CANCELLED};

		memcpy(&answer.id, submission->tok, 8);
		if (submission->id != 0 || answer.id != target)
			abort();
		fake_publish(fake, &answer);
	}
	target = submission->id;
}

static void a_cancelled_request_ends_with_its_own_event(void **state)
{
	struct fake_daemon fake = {.on_submission = cancel_reaches_the_daemon};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_GENERATE, 1, 1);
	uint64_t id = submit_ok(client, &request);
	struct tr_event event;

	assert_int_equal(tr_cancel(client, id + (1 << 16)), 0);
	assert_int_equal(tr_cancel(client, 0), 0);
	assert_int_equal(tr_cancel(client, id), 0);
	event = wait_one(client);
	assert_int_equal(event.id, id);
	assert_int_equal(event.finish, TR_FINISH_CANCELLED);
	assert_int_equal(event.reason, WIRE_REASON_CANCELLED);
	assert_int_equal(tr_cancel(client, id), 0);
	tr_close(client);
	fake_stop(&fake);
}

static void a_sleeping_daemon_is_woken(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_ECHO, 1, 5);
	int n_prompt = 0;

	for (int i = 0; i < 40; i++) {
		uint64_t slept = load_relaxed_u64(&fake.sleeps), start_ns;

		while (load_relaxed_u64(&fake.sleeps) == slept)
			usleep(500);
		start_ns = clock_now_ns();
		submit_ok(client, &request);
		wait_one(client);
		n_prompt += clock_now_ns() - start_ns < 10 * MS_NS;
	}
	/* The fake sleeps 20 ms at a time: with wake-ups lost, few answers would come in less than half of
	 * that. A busy machine delays some. */
	assert_true(n_prompt >= 30);
	tr_close(client);
	fake_stop(&fake);
}

static void answer_late(struct fake_daemon *fake, const struct wire_submission *submission)
{
	usleep(3000);
	fake_answer(fake, submission);
}

static void an_armed_client_is_woken_through_epoll(void **state)
{
	struct fake_daemon fake = {.on_submission = answer_late};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_ECHO, 1, 5);
	struct epoll_event ready = {.events = EPOLLIN};
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, tr_fd(client), &ready), 0);
	for (int i = 0; i < 20; i++) {
		struct tr_event event = {.size = sizeof event};

		submit_ok(client, &request);
		assert_int_equal(tr_arm(client), 0);
		/* A look in between does not disarm, even after the 2 ms that make it look at the socket. */
		if (i % 2)
			assert_int_equal(tr_poll(client, &event, 1), 0);
		assert_int_equal(epoll_wait(epoll, &ready, 1, 1000), 1);
		assert_int_equal(tr_poll(client, &event, 1), 1);
		assert_int_equal(tr_arm(client), 0);
		assert_int_equal(epoll_wait(epoll, &ready, 1, 0), 0);
	}
	/* Events that are there already: armed or not, the caller is told at once. */
	submit_ok(client, &request);
	usleep(20000);
	assert_int_equal(tr_arm(client), 1);
	wait_one(client);
	close(epoll);
	tr_close(client);
	fake_stop(&fake);
}

static void waiting_ends_at_its_timeout(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_event event = {.size = sizeof event};
	const int64_t timeouts_ns[] = {0, 1, 20000, 3 * MS_NS, 30 * MS_NS};

	for (size_t i = 0; i < sizeof timeouts_ns / sizeof timeouts_ns[0]; i++) {
		uint64_t start_ns = clock_now_ns(), took_ns;

		assert_int_equal(tr_wait(client, &event, 1, timeouts_ns[i]), 0);
		took_ns = clock_now_ns() - start_ns;
		assert_true((int64_t)took_ns >= timeouts_ns[i]);
		assert_true((int64_t)took_ns < timeouts_ns[i] + 500 * MS_NS);
	}
	tr_close(client);
	fake_stop(&fake);
}

static void structs_of_other_versions_are_understood(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct {
		struct tr_request request;
		uint64_t later;
	} newer = {.request = request_of(TR_ECHO, 2, 7)};
	struct {
		struct tr_event event;
		uint64_t later;
	} events[2];
	struct tr_event older = {.size = offsetof(struct tr_event, scored)};
	uint64_t id = 0;

	newer.request.size = sizeof newer;
	memset(events, 0xff, sizeof events);
	events[0].event.size = sizeof events[0];
	submit_ok(client, &newer.request);
	assert_int_equal(tr_wait(client, &events[0].event, 1, SECOND_NS), 1);
	assert_int_equal(events[0].event.tokens[1], 8);
	assert_int_equal(events[0].later, 0);
	newer.later = 1;
	assert_int_equal(tr_submit(client, &newer.request, &id), -EINVAL);
	newer.later = 0;
	submit_ok(client, &newer.request);
	older.scored = (void *)1;
	assert_int_equal(tr_wait(client, &older, 1, SECOND_NS), 1);
	assert_int_equal(older.tokens[0], 7);
	assert_ptr_equal(older.scored, (void *)1);
	newer.request.size = sizeof newer.request - 8;
	assert_int_equal(tr_submit(client, &newer.request, &id), -EINVAL);
	older.size = 16;
	assert_int_equal(tr_poll(client, &older, 1), -EINVAL);
	assert_int_equal(id, 0);
	tr_close(client);
	fake_stop(&fake);
}

static void bad_arguments_are_refused_before_the_ring(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	uint32_t ids[] = {1, 2};
	uint64_t id = 0;

#define REFUSED(change)                                                      \
	do {                                                                 \
		struct tr_request_extra extra = {.size = sizeof extra};      \
		struct tr_sampling sampling = {.size = sizeof sampling};     \
		struct tr_request request = request_of(TR_GENERATE, 1, 1);   \
		change;                                                      \
		(void)extra;                                                 \
		(void)sampling;                                              \
		assert_int_equal(tr_submit(client, &request, &id), -EINVAL); \
	} while (0)
	REFUSED(request.op = 0);
	REFUSED(request.op = 5);
	REFUSED(request.op = 8);
	REFUSED(request.n_tokens = 9);
	REFUSED(request.n_tokens = 16);
	REFUSED(request.priority = 8);
	REFUSED(request.reserved = 1);
	REFUSED(request.extra = &extra; extra.size = 8);
	REFUSED(request.extra = &extra; extra.n_tokens = 1);
	REFUSED(request.extra = &extra; extra.n_stop_ids = 1);
	REFUSED(request.extra = &extra; extra.stop_ids = ids; extra.n_stop_ids = 5000);
	REFUSED(request.extra = &extra; extra.n_logprobs = 33);
	REFUSED(request.extra = &extra; extra.logprobs = 2);
	REFUSED(request.extra = &extra; extra.reserved = 1);
	REFUSED(request.extra = &extra; request.profile = 3);
	REFUSED(request.extra = &extra; extra.sampling = &sampling; sampling.ignore_eos = 2);
	REFUSED(request.extra = &extra; request.max_new = 0);
	REFUSED(request.extra = &extra; request.op = TR_SCORE; extra.candidates = extra.continuations = ids;
		extra.continuation_lengths = ids; extra.n_candidates = extra.n_continuations = 1);
	REFUSED(request.extra = &extra; extra.pool = 1);
	REFUSED(request.extra = &extra; extra.n_embedding = 1);
	REFUSED(request.extra = &extra; request.op = TR_EMBED);
	REFUSED(request.extra = &extra; request.op = TR_EMBED; extra.n_embedding = 8; extra.pool = 2);
	REFUSED(request.extra = &extra; request.op = TR_EMBED; extra.n_embedding = 8; extra.stop_ids = ids;
		extra.n_stop_ids = 1);
	REFUSED(request.extra = &extra; request.op = TR_EMBED; extra.n_embedding = 8;
		extra.sampling = &sampling);
#undef REFUSED
	assert_int_equal(id, 0);
	assert_int_equal(client->gate.n_free, tr_max_inflight(client));
	assert_int_equal(arena_longest(&client->arena), client->arena.n_units);
	tr_close(client);
	fake_stop(&fake);
}

static void rings_wrap(void **state)
{
	const uint64_t firsts[] = {UINT32_MAX - 40, UINT64_MAX - 40};

	for (int k = 0; k < 2; k++) {
		struct fake_daemon fake = {.first_index = firsts[k]};
		struct tr_client *client = open_client(&fake);

		for (uint32_t i = 0; i < 200; i++) {
			struct tr_request request = request_of(TR_ECHO, 1, i);

			submit_ok(client, &request);
			assert_int_equal(wait_one(client).tokens[0], i);
		}
		tr_close(client);
		fake_stop(&fake);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_echo_returns_its_tokens),
	    cmocka_unit_test(a_stream_arrives_whole),
	    cmocka_unit_test(a_long_prompt_travels_in_a_block),
	    cmocka_unit_test(scores_lie_in_the_reply),
	    cmocka_unit_test(an_embedding_lies_in_the_reply),
	    cmocka_unit_test(log_probabilities_stream_with_their_tokens),
	    cmocka_unit_test(a_refusal_carries_its_numbers),
	    cmocka_unit_test(a_full_channel_says_so_and_loses_nothing),
	    cmocka_unit_test(cancellations_leave_a_slot_to_each_free_entry),
	    cmocka_unit_test(the_arena_is_a_limit_too),
	    cmocka_unit_test(many_are_submitted_at_once),
	    cmocka_unit_test(a_cancelled_request_ends_with_its_own_event),
	    cmocka_unit_test(a_sleeping_daemon_is_woken),
	    cmocka_unit_test(an_armed_client_is_woken_through_epoll),
	    cmocka_unit_test(waiting_ends_at_its_timeout),
	    cmocka_unit_test(structs_of_other_versions_are_understood),
	    cmocka_unit_test(bad_arguments_are_refused_before_the_ring),
	    cmocka_unit_test(rings_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
