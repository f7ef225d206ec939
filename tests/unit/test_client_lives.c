/* The library and the daemon's front together where a client's life is not straight: forks, threads that end
 * with requests in flight, and indices that pass 2^32 and 2^64. */
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/served.h"

enum { TOKENS = 200, CHILD_RIGHT = 42 };

static void expect_echo(struct tr_client *client, uint32_t token)
{
	uint64_t id = submit(client, TR_ECHO, token, 0);
	struct tr_event event = wait_event(client);

	assert_int_equal(event.kind, TR_EVENT_ECHO);
	assert_int_equal(event.id, id);
	assert_int_equal(event.tokens[0], token);
}

static void expect_whole_stream(struct tr_client *client, uint64_t id, uint32_t token)
{
	uint32_t n;
	struct tr_event event = collect(client, id, token, &n);

	assert_int_equal(event.kind, TR_EVENT_FINAL);
	assert_int_equal(event.finish, TR_FINISH_LENGTH);
	assert_int_equal(n, TOKENS);
}

/* ---- forks ---- */

static bool is_refused_everything(struct tr_client *client)
{
	struct tr_request request = {.size = sizeof request, .op = TR_ECHO, .n_tokens = 1};
	struct tr_event event = {.size = sizeof event};
	struct tr_model_info info = {.size = sizeof info};
	char json[64];
	uint64_t id = 0;
	size_t n = 0;

	return tr_submit(client, &request, &id) == -ESTALE &&
	       tr_submit_many(client, &request, 1, &id) == -ESTALE && tr_poll(client, &event, 1) == -ESTALE &&
	       tr_wait(client, &event, 1, -1) == -ESTALE && tr_cancel(client, 1 << 16) == -ESTALE &&
	       tr_flush(client) == -ESTALE && tr_arm(client) == -ESTALE && tr_fd(client) == -ESTALE &&
	       tr_reconnect(client) == -ESTALE && tr_model_info(client, 0, &info) == -ESTALE &&
	       tr_status(client, json, sizeof json, &n) == -ESTALE && id == 0 && n == 0;
}

/* In the child: nothing is asserted, the exit status tells. */
static bool has_channel_of_its_own(void)
{
	struct tr_request request = {.size = sizeof request, .op = TR_ECHO, .n_tokens = 1, .tokens = {5}};
	struct tr_event event = {.size = sizeof event};
	struct tr_client *client;
	uint64_t id;
	bool right;

	if (tr_open(&client, served.path, NULL) < 0)
		return false;
	right = tr_submit(client, &request, &id) == 0 && tr_wait(client, &event, 1, 5000000000) == 1 &&
		event.id == id && event.tokens[0] == 5;
	tr_close(client);
	return right;
}

static void fork_and_expect_right(struct tr_client *client, bool closes)
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		bool right = is_refused_everything(client);

		if (closes)
			tr_close(client);
		_exit(right && has_channel_of_its_own() ? CHILD_RIGHT : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == CHILD_RIGHT);
}

static void a_fork_takes_nothing_from_the_parent(void **state)
{
	struct tr_client *client;

	(void)state;
	start();
	client = open_client();
	for (int round = 0; round < 4; round++) {
		uint64_t id;

		store_relaxed_u32(&served.engine.paused, 1);
		id = submit(client, TR_GENERATE, 7, TOKENS);
		fork_and_expect_right(client, round % 2);
		store_relaxed_u32(&served.engine.paused, 0);
		expect_whole_stream(client, id, 7);
	}
	wait_for_count(&front_counts(served.front)->channels, 1);
	tr_close(client);
	wait_for_count(&front_counts(served.front)->channels, 0);
	test_daemon_stop(&served, 0);
}

/* ---- threads ---- */

struct leaver {
	struct tr_client *client;
	uint64_t id;
};

static void *submit_and_leave(void *argument)
{
	struct leaver *leaver = argument;

	leaver->client = open_client();
	leaver->id = submit(leaver->client, TR_GENERATE, 3, TOKENS);
	return NULL;
}

static void a_thread_leaves_its_requests_to_the_next(void **state)
{
	struct leaver leaver;
	pthread_t thread;

	(void)state;
	start();
	assert_int_equal(pthread_create(&thread, NULL, submit_and_leave, &leaver), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	expect_whole_stream(leaver.client, leaver.id, 3);
	/* And one that nobody takes over: closing ends it. */
	store_relaxed_u32(&served.engine.paused, 1);
	submit(leaver.client, TR_GENERATE, 3, TOKENS);
	wait_for_count(&front_counts(served.front)->in_flight, 1);
	tr_close(leaver.client);
	wait_for_count(&front_counts(served.front)->in_flight, 0);
	test_daemon_stop(&served, 0);
}

static void *wait_for_ever(void *client)
{
	struct tr_event event = {.size = sizeof event};

	tr_wait(client, &event, 1, -1);
	return NULL;
}

/* A thread that is cancelled in its sleep leaves a sleep word that says asleep. */
static void a_thread_is_cancelled_in_its_sleep(void **state)
{
	struct tr_client *client;

	(void)state;
	start();
	client = open_client();
	for (int round = 0; round < 5; round++) {
		pthread_t thread;
		void *result = NULL;
		uint64_t id;

		assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, client), 0);
		pause_ms(5);
		assert_int_equal(pthread_cancel(thread), 0);
		assert_int_equal(pthread_join(thread, &result), 0);
		assert_ptr_equal(result, PTHREAD_CANCELED);
		expect_echo(client, 11);
		id = submit(client, TR_GENERATE, 4, TOKENS);
		expect_whole_stream(client, id, 4);
	}
	tr_close(client);
	test_daemon_stop(&served, 0);
}

/* ---- indices ---- */

/* Batches, blocks, streams and cancellations, all of them across the wrap. */
static void mix(struct tr_client *client)
{
	struct tr_request requests[6];
	struct tr_request_extra extra = {.size = sizeof extra, .max_new = TOKENS};
	uint64_t ids[6];

	for (uint32_t i = 0; i < 6; i++)
		requests[i] = (struct tr_request){
		    .size = sizeof requests[i], .op = TR_ECHO, .n_tokens = 1, .tokens = {i}};
	assert_int_equal(tr_submit_many(client, requests, 6, ids), 6);
	for (uint32_t i = 0; i < 6; i++) {
		struct tr_event event = wait_event(client);

		assert_int_equal(event.id, ids[i]);
		assert_int_equal(event.tokens[0], i);
	}
	requests[0].op = TR_GENERATE;
	requests[0].extra = &extra;
	assert_int_equal(tr_submit(client, &requests[0], &ids[0]), 0);
	expect_whole_stream(client, ids[0], 0);
	store_relaxed_u32(&served.engine.paused, 1);
	ids[0] = submit(client, TR_GENERATE, 1, TOKENS);
	assert_int_equal(tr_cancel(client, ids[0]), 0);
	assert_int_equal(wait_event(client).finish, TR_FINISH_CANCELLED);
	store_relaxed_u32(&served.engine.paused, 0);
}

static void indices_pass_their_ends(void **state)
{
	const uint64_t ends[] = {UINT64_C(1) << 31, UINT64_C(1) << 32, UINT64_C(1) << 48, 0};

	(void)state;
	for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++) {
		struct tr_client *client;

		test_daemon_init(&served);
		served.server_config.first_index = ends[k] - 50;
		served.server_config.sq_slots = 16;
		served.server_config.max_inflight = 8;
		served.server_config.cq_slots = 16;
		test_daemon_start(&served, false);
		client = open_client();
		for (int round = 0; round < 20; round++)
			mix(client);
		tr_close(client);
		test_daemon_stop(&served, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_fork_takes_nothing_from_the_parent),
	    cmocka_unit_test(a_thread_leaves_its_requests_to_the_next),
	    cmocka_unit_test(a_thread_is_cancelled_in_its_sleep),
	    cmocka_unit_test(indices_pass_their_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
