/* What goes over the control socket, and the states before the model is there and when the daemon stops. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/channel.h"
#include "tests/harness/served.h"

/* ---- while the model loads ---- */

static void test_loading(void **state)
{
	struct tr_request late = {.size = sizeof late, .op = TR_GENERATE, .n_tokens = 1, .max_new = 2};
	struct tr_client *client;
	struct tr_event event;
	uint64_t held, cancelled, id;
	uint32_t n;

	(void)state;
	test_daemon_init(&served);
	test_daemon_start(&served, true);
	client = open_client();
	submit(client, TR_ECHO, 123456, 0); /* nobody knows the vocabulary yet */
	event = wait_event(client);
	assert_int_equal(event.kind, TR_EVENT_ECHO);
	cancelled = submit(client, TR_GENERATE, 4, 9);
	assert_int_equal(tr_cancel(client, cancelled), 0);
	assert_int_equal(wait_event(client).id, cancelled);
	assert_int_equal(load_relaxed_u64(&front_counts(served.front)->held), 0);
	held = submit(client, TR_GENERATE, 4, 9);
	cancelled = submit(client, TR_GENERATE, 4, 9);
	assert_int_equal(tr_cancel(client, cancelled), 0);
	event = wait_event(client);
	assert_int_equal(event.id, cancelled);
	assert_int_equal(event.finish, TR_FINISH_CANCELLED);
	assert_int_equal(event.status, -ECANCELED);
	late.deadline_ns = clock_now() + 20000000;
	assert_int_equal(tr_submit(client, &late, &id), 0);
	event = wait_event(client);
	assert_int_equal(event.id, id);
	assert_int_equal(event.reason, WIRE_REASON_DEADLINE);
	assert_true(clock_now() >= late.deadline_ns);
	assert_true(event.since_ns_100 > 100000);
	test_daemon_ready(&served, WIRE_MODEL_READY);
	event = collect(client, held, 4, &n);
	assert_int_equal(n, 9);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

static void test_load_failed(void **state)
{
	struct tr_client *client;
	struct tr_event event;
	uint64_t held;

	(void)state;
	test_daemon_init(&served);
	test_daemon_start(&served, true);
	client = open_client();
	held = submit(client, TR_GENERATE, 4, 9);
	test_daemon_ready(&served, WIRE_MODEL_FAILED);
	event = wait_event(client);
	assert_int_equal(event.id, held);
	assert_int_equal(event.reason, WIRE_REASON_MODEL_FAILED);
	submit(client, TR_GENERATE, 4, 9);
	event = wait_event(client);
	assert_int_equal(event.reason, WIRE_REASON_MODEL_FAILED);
	submit(client, TR_ECHO, 4, 0);
	event = wait_event(client);
	assert_int_equal(event.kind, TR_EVENT_ECHO);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

/* ---- the control socket ---- */

static void test_profiles(void **state)
{
	static const uint32_t stops[] = {8}; /* what follows 1 in the chain */
	struct tr_sampling sampling = {.size = sizeof sampling, .temperature = 1, .top_p = 1, .penalty = 1};
	struct tr_profile profile = {.size = sizeof profile, .max_new = 11, .sampling = &sampling};
	struct tr_request request = {.size = sizeof request, .op = TR_GENERATE, .n_tokens = 1, .tokens = {1}};
	struct tr_client *client;
	struct tr_event event;
	uint8_t number = 0;
	uint32_t n;

	(void)state;
	start();
	client = open_client();
	assert_int_equal(tr_profile(client, &profile, &number), 0);
	assert_int_equal(number, 1);
	request.profile = number;
	event = run_block(client, &request, 1, &n);
	assert_int_equal(n, 11);
	profile.stop_ids = stops;
	profile.n_stop_ids = 1;
	assert_int_equal(tr_profile(client, &profile, &number), 0);
	request.profile = number;
	event = run_block(client, &request, 1, &n);
	assert_int_equal(n, 1);
	assert_int_equal(event.finish, TR_FINISH_STOP);
	sampling.top_p = 2;
	assert_int_equal(tr_profile(client, &profile, &number), -EINVAL);
	sampling.top_p = 1;
	for (int i = 3; i < PROFILE_COUNT; i++)
		assert_int_equal(tr_profile(client, &profile, &number), 0);
	assert_int_equal(number, 255);
	assert_int_equal(tr_profile(client, &profile, &number), -ENOSPC);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

static void test_texts(void **state)
{
	enum { LONG = 1 << 20 };
	char *text = malloc(LONG), *back = malloc(LONG);
	uint32_t *tokens = malloc(LONG * sizeof *tokens);
	struct tr_model_info info = {.size = sizeof info};
	struct tr_client *client;
	size_t n = 0, bytes = 0;

	(void)state;
	test_daemon_init(&served);
	test_daemon_start(&served, true);
	client = open_client();
	assert_int_equal(tr_model_info(client, 0, &info), 0);
	assert_int_equal(info.state, TR_MODEL_LOADING);
	assert_int_equal(tr_tokenize(client, 0, "a", 1, 0, tokens, LONG, &n), -EAGAIN);
	test_daemon_ready(&served, WIRE_MODEL_READY);
	assert_int_equal(tr_model_info(client, 0, &info), 0);
	assert_int_equal(info.vocab, FAKE_VOCAB);
	assert_int_equal(info.n_stop_ids, 2);
	assert_int_equal(info.stop_ids[1], 3);
	assert_string_equal(info.name, "made-up");
	assert_int_equal(tr_model_info(client, 1, &info), -ENOENT);
	for (int i = 0; i < LONG; i++)
		text[i] = (char)(i * 31 + i / 256);
	assert_int_equal(tr_tokenize(client, 0, text, LONG, 0, tokens, LONG, &n), 0);
	assert_int_equal(n, LONG);
	for (int i = 0; i < LONG; i++)
		assert_int_equal(tokens[i], (unsigned char)text[i]);
	assert_int_equal(tr_detokenize(client, 0, tokens, LONG / 4, 0, back, LONG, &bytes), 0);
	assert_int_equal(bytes, LONG / 4);
	assert_memory_equal(back, text, LONG / 4);
	assert_int_equal(tr_tokenize(client, 0, text, 0, 0, tokens, LONG, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(tr_tokenize(client, 2, text, 1, 0, tokens, LONG, &n), -ENOENT);
	assert_int_equal(tr_status(client, back, LONG, &bytes), 0);
	assert_string_equal(back, "{\"channels\": 1}");
	tr_close(client);
	test_daemon_stop(&served, 0);
	free(text);
	free(back);
	free(tokens);
}

/* A text of many messages fills the mailbox again and again, and the front may be asleep when there is room.
 */
static void test_long_texts(void **state)
{
	enum { BYTES = 1 << 18, CALLS = 20, BEAT_NS = 90000000 };
	char *text = malloc(BYTES);
	uint32_t *tokens = malloc(BYTES * sizeof *tokens);
	struct tr_client *client;
	unsigned slow = 0;

	(void)state;
	start();
	client = open_client();
	memset(text, 'a', BYTES);
	for (int i = 0; i < CALLS; i++) {
		uint64_t start_ns = clock_now();
		size_t n = 0;

		assert_int_equal(tr_tokenize(client, 0, text, BYTES, 0, tokens, BYTES, &n), 0);
		assert_int_equal(n, BYTES);
		slow += clock_now() - start_ns > BEAT_NS;
	}
	/* A busy machine may make some of them wait as long as a front that sleeps until its next heartbeat.
	 */
	assert_true(slow <= CALLS / 4);
	tr_close(client);
	test_daemon_stop(&served, 0);
	free(text);
	free(tokens);
}

/* New limits hold for those who come later. */
static void test_reload(void **state)
{
	struct tr_client *first, *second = NULL, *third = NULL;
	int error = 0;

	(void)state;
	start();
	first = open_client();
	served.server_config.max_clients_per_uid = 1;
	assert_int_equal(server_reload(served.server, &served.server_config), 0);
	for (int i = 0; i < 200 && error == 0; i++) {
		error = tr_open(&second, served.path, NULL);
		if (error == 0)
			tr_close(second);
		pause_ms(5);
	}
	assert_int_equal(error, -EUSERS);
	submit(first, TR_ECHO, 1, 0);
	assert_int_equal(wait_event(first).kind, TR_EVENT_ECHO);
	served.server_config.max_clients_per_uid = 2;
	assert_int_equal(server_reload(served.server, &served.server_config), 0);
	for (error = -1; error < 0; pause_ms(5))
		error = tr_open(&third, served.path, NULL);
	tr_close(first);
	tr_close(third);
	test_daemon_stop(&served, 0);
}

/* ---- drain ---- */

static void test_drain(void **state)
{
	struct tr_client *client, *idle;
	struct tr_event event;
	uint64_t first, second;
	uint32_t n;

	(void)state;
	start();
	client = open_client();
	idle = open_client();
	store_relaxed_u32(&served.engine.paused, 1);
	first = submit(client, TR_GENERATE, 1, 5);
	wait_for_count(&front_counts(served.front)->submitted, 1);
	server_close_listener(served.server);
	front_drain(served.front, clock_now() + UINT64_C(10000000000));
	pause_ms(20);
	second = submit(client, TR_GENERATE, 1, 5);
	event = wait_event(client);
	assert_int_equal(event.id, second);
	assert_int_equal(event.reason, WIRE_REASON_SHUTDOWN);
	assert_int_equal(tr_open(&(struct tr_client *){NULL}, served.path, NULL), -ECONNREFUSED);
	store_relaxed_u32(&served.engine.paused, 0);
	event = collect(client, first, 1, &n);
	assert_int_equal(n, 5);
	test_daemon_stop(&served, 10000);
	event.size = sizeof event;
	assert_int_equal(tr_wait(client, &event, 1, 1000000000), -ECONNRESET);
	assert_int_equal(tr_end_reason(client), WIRE_REASON_SHUTDOWN);
	tr_close(client);
	tr_close(idle);
}

static void test_drain_late(void **state)
{
	struct tr_client *client;
	struct tr_event event;
	uint64_t id;

	(void)state;
	start();
	client = open_client();
	store_relaxed_u32(&served.engine.paused, 1);
	id = submit(client, TR_GENERATE, 1, 5);
	wait_for_count(&front_counts(served.front)->submitted, 1);
	test_daemon_stop(&served, 30);
	event = wait_event(client);
	assert_int_equal(event.id, id);
	assert_int_equal(event.finish, TR_FINISH_SHUTDOWN);
	assert_int_equal(event.status, -ESHUTDOWN);
	tr_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_loading),    cmocka_unit_test(test_load_failed),
	    cmocka_unit_test(test_profiles),   cmocka_unit_test(test_texts),
	    cmocka_unit_test(test_long_texts), cmocka_unit_test(test_reload),
	    cmocka_unit_test(test_drain),      cmocka_unit_test(test_drain_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
