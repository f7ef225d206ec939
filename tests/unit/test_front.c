/* The front and the control thread with real clients over a real socket, and an engine that makes tokens up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/channel.h"
#include "tests/harness/allocation.h"
#include "tests/harness/served.h"

static void test_echo(void **state)
{
	struct tr_client *client;
	struct tr_event event;

	(void)state;
	start();
	client = open_client();
	for (uint32_t i = 0; i < 1000; i++) {
		uint64_t id = submit(client, TR_ECHO, i % FAKE_VOCAB, 0);

		event = wait_event(client);
		assert_int_equal(event.kind, TR_EVENT_ECHO);
		assert_int_equal(event.id, id);
		assert_int_equal(event.n_tokens, 1);
		assert_int_equal(event.tokens[0], i % FAKE_VOCAB);
		assert_int_equal(event.since_ns_100, 0);
	}
	tr_close(client);
	test_daemon_stop(&served, 0);
}

static void test_generate(void **state)
{
	struct tr_client *client;
	struct tr_event event;
	uint32_t n;

	(void)state;
	start();
	client = open_client();
	for (uint16_t max_new = 1; max_new < 200; max_new += 7) {
		event = collect(client, submit(client, TR_GENERATE, max_new, max_new), max_new, &n);
		assert_int_equal(event.finish, TR_FINISH_LENGTH);
		assert_int_equal(event.status, 0);
		assert_int_equal(n, max_new);
	}
	/* The greedy profile's own length. */
	event = collect(client, submit(client, TR_GENERATE, 5, 0), 5, &n);
	assert_int_equal(n, PROFILE_GREEDY_MAX_NEW);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

/* ---- request blocks ---- */

/* 160 KB of tokens: copied over several turns. */
static void test_long_prompt(void **state)
{
	static uint32_t tokens[50001];
	struct tr_request_extra extra = {.size = sizeof extra, .tokens = tokens, .max_new = 30};
	struct tr_request request = {.size = sizeof request, .op = TR_GENERATE, .extra = &extra};
	struct tr_client *client;
	struct tr_event event;
	uint32_t n;

	(void)state;
	start();
	client = open_client();
	for (uint32_t i = 0; i < 50001; i++)
		tokens[i] = i % FAKE_VOCAB;
	for (extra.n_tokens = 1; extra.n_tokens <= 40000; extra.n_tokens = extra.n_tokens * 3 + 1) {
		event = run_block(client, &request, (extra.n_tokens - 1) % FAKE_VOCAB, &n);
		assert_int_equal(event.finish, TR_FINISH_LENGTH);
		assert_int_equal(n, 30);
	}
	extra.n_tokens = 50001;
	event = run_block(client, &request, 0, &n);
	assert_int_equal(event.reason, WIRE_REASON_PROMPT_TOO_LONG);
	assert_int_equal(event.asked, 50001);
	assert_int_equal(event.limit, FAKE_MAX_PROMPT);
	extra.n_tokens = 50000;
	extra.max_new = 15537;
	event = run_block(client, &request, 0, &n);
	assert_int_equal(event.reason, WIRE_REASON_CONTEXT);
	assert_int_equal(event.asked, 65537);
	extra.max_new = 5001;
	event = run_block(client, &request, 0, &n);
	assert_int_equal(event.reason, WIRE_REASON_KV_NEVER_FITS);
	assert_int_equal(event.limit, FAKE_KV_TOKENS);
	tokens[49000] = FAKE_VOCAB;
	extra.max_new = 1;
	event = run_block(client, &request, 0, &n);
	assert_int_equal(event.reason, WIRE_REASON_BAD_TOKEN);
	tr_close(client);
	assert_int_equal(served.front == NULL, 0);
	test_daemon_stop(&served, 0);
}

static void test_score(void **state)
{
	static const uint32_t prompt[] = {1, 2, 3}, candidates[] = {7, 900, 7};
	struct tr_request_extra extra = {.size = sizeof extra,
					 .tokens = prompt,
					 .n_tokens = 3,
					 .candidates = candidates,
					 .n_candidates = 3};
	struct tr_request request = {.size = sizeof request, .op = TR_SCORE, .extra = &extra};
	struct tr_client *client;
	struct tr_event event;
	uint64_t id;

	(void)state;
	start();
	client = open_client();
	assert_int_equal(tr_submit(client, &request, &id), 0);
	event = wait_event(client);
	assert_int_equal(event.kind, TR_EVENT_FINAL);
	assert_int_equal(event.finish, TR_FINISH_DONE);
	assert_int_equal(event.n_scored, 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(event.scored[i].id, candidates[i]);
		assert_true(event.scored[i].value == fake_score(candidates[i]));
	}
	tr_close(client);
	test_daemon_stop(&served, 0);
}

static void test_embed(void **state)
{
	static const uint32_t prompt[] = {1, 2, 3};
	struct tr_request_extra extra = {.size = sizeof extra, .tokens = prompt, .n_tokens = 3};
	struct tr_request request = {.size = sizeof request, .op = TR_EMBED, .extra = &extra};
	struct tr_client *client;
	struct tr_event event;
	uint64_t id;

	(void)state;
	start();
	client = open_client();
	for (uint32_t pool = TR_POOL_LAST; pool <= TR_POOL_MEAN; pool++) {
		extra.pool = pool;
		extra.n_embedding = FAKE_WIDTH + pool; /* more room than is needed does not matter */
		assert_int_equal(tr_submit(client, &request, &id), 0);
		event = wait_event(client);
		assert_int_equal(event.kind, TR_EVENT_FINAL);
		assert_int_equal(event.finish, TR_FINISH_DONE);
		assert_int_equal(event.n_scored, 0);
		assert_int_equal(event.n_embedding, FAKE_WIDTH);
		for (uint32_t i = 0; i < FAKE_WIDTH; i++)
			assert_true(event.embedding[i] == fake_embedding(pool, i));
	}
	extra.n_embedding = FAKE_WIDTH - 1;
	assert_int_equal(tr_submit(client, &request, &id), 0);
	event = wait_event(client);
	assert_int_equal(event.kind, TR_EVENT_REFUSED);
	assert_int_equal(event.reason, WIRE_REASON_BAD_REPLY);
	assert_int_equal(event.asked, 16 + (FAKE_WIDTH - 1) * 4);
	assert_int_equal(event.limit, 16 + FAKE_WIDTH * 4);
	assert_null(event.embedding);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

/* ---- refusals ---- */

static void refused(struct tr_client *client, const struct tr_request *request, uint32_t reason)
{
	struct tr_event event;
	uint64_t id;

	assert_int_equal(tr_submit(client, request, &id), 0);
	event = wait_event(client);
	assert_int_equal(event.kind, TR_EVENT_REFUSED);
	assert_int_equal(event.id, id);
	assert_int_equal(event.reason, reason);
	assert_int_equal(event.status, channel_status(reason));
}

static void test_refusals(void **state)
{
	static const uint32_t prompt[] = {1};
	struct tr_request plain = {
	    .size = sizeof plain, .op = TR_GENERATE, .n_tokens = 1, .max_new = 1, .tokens = {1}};
	struct tr_request_extra extra = {.size = sizeof extra, .tokens = prompt, .n_tokens = 1, .max_new = 1};
	struct tr_request request;
	struct tr_client *client;

	(void)state;
	start();
	client = open_client();
#define REFUSED(change, expected)                                  \
	do {                                                       \
		request = plain;                                   \
		change;                                            \
		refused(client, &request, WIRE_REASON_##expected); \
	} while (0)
	REFUSED(request.profile = 1, BAD_PROFILE);
	REFUSED(request.model = 1, BAD_MODEL);
	REFUSED(request.tokens[0] = FAKE_VOCAB, BAD_TOKEN);
	REFUSED(request.tokens[0] = UINT32_MAX, BAD_TOKEN);
	REFUSED(request.deadline_ns = 1, DEADLINE);
	REFUSED(request.n_tokens = 0, NO_TOKENS);
	REFUSED(request.op = TR_EMBED, BAD_BLOCK);
	REFUSED((request.op = TR_ECHO, request.model = 3), BAD_MODEL);
	REFUSED((request.op = TR_ECHO, request.deadline_ns = 1), DEADLINE);
	REFUSED((request.op = TR_ECHO, request.tokens[0] = FAKE_VOCAB), BAD_TOKEN);
	REFUSED((request.op = TR_ECHO, request.n_tokens = 0), NO_TOKENS);
	REFUSED((request.extra = &extra, extra.tenant = 77), TENANT);
	extra.tenant = 0;
	REFUSED((request.extra = &extra, extra.session = 1), NOT_SUPPORTED);
	extra.session = 0;
#undef REFUSED
	assert_int_equal(load_relaxed_u64(&front_counts(served.front)->channels), 1);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

static void test_queue_full(void **state)
{
	struct tr_client *client;
	struct tr_event event;
	uint32_t refused_n = 0, n;
	uint64_t ids[20];

	(void)state;
	test_daemon_init(&served);
	served.n_requests = 16;
	test_daemon_start(&served, false);
	store_relaxed_u32(&served.engine.paused, 1);
	client = open_client();
	for (int i = 0; i < 20; i++)
		ids[i] = submit(client, TR_GENERATE, 1, 1);
	for (; refused_n < 4; refused_n++) {
		event = wait_event(client);
		assert_int_equal(event.kind, TR_EVENT_REFUSED);
		assert_int_equal(event.reason, WIRE_REASON_QUEUE_FULL);
		assert_int_equal(event.status, -EAGAIN);
		assert_int_equal(event.limit, 16);
		assert_true(event.retry_ns >= 1000000);
		assert_int_equal(event.id, ids[16 + refused_n]);
	}
	store_relaxed_u32(&served.engine.paused, 0);
	for (int i = 0; i < 16; i++) {
		event = wait_event(client);
		assert_int_equal(event.kind, TR_EVENT_FINAL);
	}
	collect(client, submit(client, TR_GENERATE, 1, 3), 1, &n);
	assert_int_equal(n, 3);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

/* ---- stall ---- */

/* A client that does not poll: the ring fills, the engine pauses at 64 undelivered tokens, the request ends
 * with STALL after the time allowed, and another client sees nothing of it. */
static void test_stall(void **state)
{
	struct tr_client *client, *other;
	struct tr_event events[256] = {{.size = sizeof events[0]}}, event = {0};
	uint32_t n;

	(void)state;
	start();
	client = open_client();
	other = open_client();
	store_relaxed_u32(&served.engine.paused, 1);
	for (int i = 0; i < 8; i++)
		submit(client, TR_GENERATE, 1, 20000);
	/* Before tokens fill the ring: nothing more is picked up then. */
	wait_for_count(&front_counts(served.front)->submitted, 8);
	store_relaxed_u32(&served.engine.paused, 0);
	for (int i = 0; i < 40; i++) {
		collect(other, submit(other, TR_GENERATE, 3, 50), 3, &n);
		assert_int_equal(n, 50);
		pause_ms(10);
	}
	assert_int_equal(load_relaxed_u32(&served.engine.most_undelivered), REQUEST_UNDELIVERED_MAX);
	assert_int_equal(load_relaxed_u32(&served.engine.running), 0);
	for (int ended = 0; ended < 8;) {
		int got = tr_wait(client, events, 256, 1000000000);

		assert_true(got > 0);
		for (int i = 0; i < got; i++) {
			event = events[i];
			if (event.kind != TR_EVENT_FINAL)
				continue;
			assert_int_equal(event.finish, TR_FINISH_STALL);
			assert_int_equal(event.status, -ENOBUFS);
			ended++;
		}
	}
	tr_close(client);
	tr_close(other);
	test_daemon_stop(&served, 0);
}

/* A slow reader gets every token all the same. */
static void test_slow_reader(void **state)
{
	struct tr_client *client;
	struct tr_event event = {.size = sizeof event};
	uint32_t token = 1, n = 0;

	(void)state;
	test_daemon_init(&served);
	served.server_config.sq_slots = served.server_config.cq_slots = 8;
	served.server_config.max_inflight = 4;
	served.front_config.client_stall_ns = UINT64_C(5000000000);
	test_daemon_start(&served, false);
	client = open_client();
	submit(client, TR_GENERATE, token, 1000);
	do {
		pause_ms(1);
		if (tr_poll(client, &event, 1) != 1)
			continue;
		assert_int_equal(event.first, n);
		for (unsigned i = 0; i < event.n_tokens; i++, n++)
			assert_int_equal(event.tokens[i], token = fake_next(token));
	} while (event.kind != TR_EVENT_FINAL);
	assert_int_equal(n, 1000);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

/* ---- full rings, wraps, many channels ---- */

/* Everything that fits is in flight all the time; first indices put the wraps of 32 and 64 bits in the run.
 */
static void run_full(uint64_t first_index)
{
	struct tr_request request = {.size = sizeof request, .op = TR_ECHO, .n_tokens = 2};
	struct tr_event events[64] = {{.size = sizeof events[0]}};
	struct tr_client *client;
	uint32_t sent = 0, got = 0, full = 0;

	test_daemon_init(&served);
	served.server_config.first_index = first_index;
	served.server_config.sq_slots = 8;
	served.server_config.cq_slots = 64;
	served.server_config.max_inflight = 32;
	test_daemon_start(&served, false);
	client = open_client();
	while (got < 5000) {
		uint64_t id;
		int n;

		request.op = sent % 8 == 7 ? TR_GENERATE : TR_ECHO;
		request.max_new = request.op == TR_GENERATE;
		request.tokens[0] = sent % FAKE_VOCAB;
		n = sent < 5000 ? tr_submit(client, &request, &id) : -EAGAIN;
		assert_true(n == 0 || n == -EAGAIN);
		sent += n == 0;
		full += n != 0;
		n = n ? tr_wait(client, events, 64, 1000000000) : tr_poll(client, events, 64);
		assert_true(n >= 0);
		for (int i = 0; i < n; i++)
			assert_true(events[i].kind == TR_EVENT_ECHO || events[i].kind == TR_EVENT_FINAL);
		got += (uint32_t)n;
	}
	assert_true(full > 0);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

static void test_full_rings(void **state)
{
	(void)state;
	run_full(0);
	run_full(UINT32_MAX - 20);
	run_full(UINT64_MAX - 20);
	run_full((UINT64_C(1) << 31) - 3);
}

enum { MANY = 256 };

static void test_many_channels(void **state)
{
	static struct tr_client *clients[MANY];
	uint32_t n;

	(void)state;
	start();
	for (int i = 0; i < MANY; i++)
		clients[i] = open_client();
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < MANY; i++)
			submit(clients[i], TR_ECHO, (uint32_t)i, 0);
		for (int i = 0; i < MANY; i++)
			assert_int_equal(wait_event(clients[i]).tokens[0], i);
		for (int i = 0; i < MANY; i++)
			collect(clients[i], submit(clients[i], TR_GENERATE, (uint32_t)i, 3), (uint32_t)i, &n);
		pause_ms(20); /* all are parked, and the daemon sleeps */
	}
	for (int i = 0; i < MANY; i++)
		tr_close(clients[i]);
	wait_for_count(&front_counts(served.front)->channels, 0);
	test_daemon_stop(&served, 0);
	assert_int_equal(count_mappings(), 0);
}

/* One channel is busy, the others are parked: each is still served while it goes on. */
static void test_parked(void **state)
{
	static struct tr_client *clients[64];
	struct tr_event event = {.size = sizeof event};

	(void)state;
	start();
	for (int i = 0; i < 64; i++)
		clients[i] = open_client();
	for (int i = 1; i < 64; i++) {
		int others = 0;

		for (int j = 0; j < 200; j++) {
			submit(clients[0], TR_ECHO, 1, 0);
			wait_event(clients[0]);
		}
		submit(clients[i], TR_ECHO, 2, 0);
		while (tr_poll(clients[i], &event, 1) == 0 && others < 1000000) {
			submit(clients[0], TR_ECHO, 1, 0);
			wait_event(clients[0]);
			others++;
		}
		assert_int_equal(event.kind, TR_EVENT_ECHO);
		event.kind = 0;
	}
	for (int i = 0; i < 64; i++)
		tr_close(clients[i]);
	test_daemon_stop(&served, 0);
}

/* Pauses of all lengths around the spins of both ends: no wake-up is lost. */
static void test_sleep_wake(void **state)
{
	struct tr_open_options options = {.size = sizeof options, .spin_ns = 1000};
	struct tr_client *client;
	uint32_t n;

	(void)state;
	test_daemon_init(&served);
	served.front_config.spin_ns = 1000;
	test_daemon_start(&served, false);
	assert_int_equal(tr_open(&client, served.path, &options), 0);
	for (int i = 0; i < 1500; i++) {
		struct timespec nap = {.tv_nsec = i % 97 * 1000};
		uint64_t before = clock_now();

		nanosleep(&nap, NULL);
		if (i % 3)
			submit(client, TR_ECHO, 1, 0), wait_event(client);
		else
			collect(client, submit(client, TR_GENERATE, 1, 9), 1, &n);
		/* A lost wake-up would cost 100 ms here, 250 ms at the client. */
		if (clock_now() - before > 90000000)
			print_message("round %d took %llu us\n", i,
				      (unsigned long long)(clock_now() - before) / 1000);
	}
	assert_true(load_relaxed_u64(&front_counts(served.front)->sleeps) > 100);
	assert_true(load_relaxed_u64(&front_counts(served.front)->wakes) > 100);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

/* ---- the front's thread allocates nothing ---- */

static void test_no_allocation(void **state)
{
	struct tr_client *client;
	uint32_t n;

	(void)state;
	if (!allocation_checked())
		skip();
	test_daemon_init(&served);
	served.no_allocation = true;
	test_daemon_start(&served, false);
	for (int round = 0; round < 20; round++) {
		uint8_t number;
		struct tr_profile profile = {.size = sizeof profile, .max_new = 11};

		client = open_client();
		assert_int_equal(tr_profile(client, &profile, &number), 0);
		for (int i = 0; i < 50; i++) {
			submit(client, TR_ECHO, 1, 0);
			wait_event(client);
			collect(client, submit(client, TR_GENERATE, 1, 100), 1, &n);
		}
		submit(client, TR_GENERATE, 1, 60000);
		tr_close(client);
	}
	test_daemon_stop(&served, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_echo),          cmocka_unit_test(test_generate),
	    cmocka_unit_test(test_long_prompt),   cmocka_unit_test(test_score),
	    cmocka_unit_test(test_embed),         cmocka_unit_test(test_refusals),
	    cmocka_unit_test(test_queue_full),    cmocka_unit_test(test_stall),
	    cmocka_unit_test(test_slow_reader),   cmocka_unit_test(test_full_rings),
	    cmocka_unit_test(test_many_channels), cmocka_unit_test(test_parked),
	    cmocka_unit_test(test_sleep_wake),    cmocka_unit_test(test_no_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
