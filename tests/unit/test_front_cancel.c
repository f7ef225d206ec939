/* Cancels: of requests that wait, that run, and of more than the engine hears of in time. */
#include <errno.h>
#include <unistd.h>

#include "daemon/engine/channel.h"
#include "tests/harness/served.h"

static void test_cancel(void **state)
{
	struct tr_client *client;
	struct tr_event event;
	uint64_t id;

	(void)state;
	start();
	store_relaxed_u32(&served.engine.paused, 1);
	client = open_client();
	id = submit(client, TR_GENERATE, 1, 50);
	assert_int_equal(tr_cancel(client, id + (1 << 16)), 0);
	assert_int_equal(tr_cancel(client, id), 0);
	assert_int_equal(tr_cancel(client, id), 0);
	event = wait_event(client);
	assert_int_equal(event.kind, TR_EVENT_FINAL);
	assert_int_equal(event.id, id);
	assert_int_equal(event.finish, TR_FINISH_CANCELLED);
	assert_int_equal(event.reason, WIRE_REASON_CANCELLED);
	store_relaxed_u32(&served.engine.paused, 0);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

/* While a step runs a cancel is answered at once; the request stays the engine's until it comes back. */
static void test_cancel_in_step(void **state)
{
	const struct front_counts *counts;
	struct tr_client *client;
	struct tr_event event;
	uint32_t n;

	(void)state;
	start();
	counts = front_counts(served.front);
	client = open_client();
	store_relaxed_u32(&served.engine.stuck, 1);
	for (int i = 0; i < 50; i++) { /* more than max_inflight: indices are free again */
		uint64_t id = submit(client, TR_GENERATE, 1, 50);

		assert_int_equal(tr_cancel(client, id), 0);
		event = wait_event(client);
		assert_int_equal(event.kind, TR_EVENT_FINAL);
		assert_int_equal(event.id, id);
		assert_int_equal(event.finish, TR_FINISH_CANCELLED);
		assert_int_equal(event.reason, WIRE_REASON_CANCELLED);
		assert_int_equal(event.n_tokens, 0);
		assert_int_equal(load_relaxed_u64(&counts->in_flight), i + 1);
	}
	store_relaxed_u32(&served.engine.stuck, 0);
	assert_int_equal(collect(client, submit(client, TR_GENERATE, 7, 90), 7, &n).finish, TR_FINISH_LENGTH);
	assert_int_equal(n, 90);
	wait_for_count(&counts->in_flight, 0);
	/* A channel that ends meanwhile is not given back before the engine has let go of its requests. */
	store_relaxed_u32(&served.engine.stuck, 1);
	tr_cancel(client, submit(client, TR_GENERATE, 1, 50));
	assert_int_equal(wait_event(client).finish, TR_FINISH_CANCELLED);
	tr_close(client);
	wait_for_count(&counts->channels_ended, 1);
	assert_int_equal(load_relaxed_u64(&counts->channels), 1);
	store_relaxed_u32(&served.engine.stuck, 0);
	wait_for_count(&counts->channels, 0);
	assert_int_equal(load_relaxed_u64(&counts->in_flight), 0);
	test_daemon_stop(&served, 0);
}

/* With its answer a cancelled request's block is the client's again, however long the step still takes. */
static void test_cancelled_blocks(void **state)
{
	static uint32_t tokens[40000];
	struct tr_request_extra extra = {
	    .size = sizeof extra, .tokens = tokens, .n_tokens = 40000, .max_new = 5};
	struct tr_request request = {.size = sizeof request, .op = TR_GENERATE, .extra = &extra};
	struct tr_client *client;
	uint64_t id;
	uint32_t n;

	(void)state;
	start();
	client = open_client();
	store_relaxed_u32(&served.engine.stuck, 1);
	for (int i = 0; i < 20; i++) { /* together three times the arena */
		assert_int_equal(tr_submit(client, &request, &id), 0);
		assert_int_equal(tr_cancel(client, id), 0);
		assert_int_equal(wait_event(client).reason, WIRE_REASON_CANCELLED);
	}
	store_relaxed_u32(&served.engine.stuck, 0);
	assert_int_equal(run_block(client, &request, 0, &n).finish, TR_FINISH_LENGTH);
	assert_int_equal(n, 5);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

/* The ring may have no slot to spare until the daemon has looked. */
static void cancel_when_there_is_room(struct tr_client *client, uint64_t id)
{
	int error;

	while ((error = tr_cancel(client, id)) == -EAGAIN)
		usleep(100);
	assert_int_equal(error, 0);
}

/* An engine that is far behind: commands that its queue has no room for are refused, or sent later. */
static void test_engine_behind(void **state)
{
	struct tr_client *client;
	struct tr_event event;
	uint64_t ids[24];
	unsigned cancelled = 0;

	(void)state;
	test_daemon_init(&served);
	served.command_slots = 16;
	test_daemon_start(&served, false);
	store_relaxed_u32(&served.engine.paused, 1);
	client = open_client();
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 24; i++)
			ids[i] = submit(client, TR_GENERATE, 1, 50);
		for (int i = 0; i < 24; i++)
			cancel_when_there_is_room(client, ids[i]);
		for (int i = 0; i < 24; i++) {
			event = wait_event(client);
			if (event.kind == TR_EVENT_REFUSED)
				assert_int_equal(event.reason, WIRE_REASON_QUEUE_FULL);
			else
				assert_int_equal(event.finish, TR_FINISH_CANCELLED);
			cancelled += event.kind == TR_EVENT_FINAL;
		}
	}
	assert_true(cancelled > 100);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_cancel),
	    cmocka_unit_test(test_cancel_in_step),
	    cmocka_unit_test(test_cancelled_blocks),
	    cmocka_unit_test(test_engine_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
