/* The front falling asleep and waking, at the moments and with the counters that chance rarely meets, and
 * what a client does asleep: armed, cancelling, as its daemon ends. Both ends use one mapping, so that
 * ThreadSanitizer sees every access of either. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/engine/front_internal.h"
#include "tests/harness/one_mapping.h"
#include "tests/harness/raw_client.h"
#include "tests/harness/served.h"
#include "tests/harness/client_counters.h"

/* ---- room that is made just before the daemon falls asleep ---- */

static struct raw_client last_minute;
static shared_u32 last_minute_step; /* 0 not yet, 1 wanted, 2 submitted, 3 looked at */
static uint64_t last_minute_sleeps;

/* On the front's thread, after the turn before it may sleep: as seen by the daemon there is no room, and
 * nobody sleeps, so that a client that makes room and submits sends no byte. */
static void submit_at_the_last_minute(void)
{
	struct raw_client *client = &last_minute;
	struct wire_submission slot;
	struct wire_completion answer;

	if (load_acquire_u32(&last_minute_step) == 2) {
		last_minute_sleeps =
		    load_relaxed_u64(&front_counts(served.front)->sleeps) - last_minute_sleeps;
		store_release_u32(&last_minute_step, 3);
	}
	if (load_acquire_u32(&last_minute_step) != 1 || served.front->turns_to_clock != 1)
		return;
	while (ring_read(&client->completions, &answer))
		;
	ring_reader_publish(&client->completions);
	slot = raw_slot(client, WIRE_OP_ECHO, 0);
	ring_publish(&client->submissions, &slot);
	last_minute_sleeps = load_relaxed_u64(&front_counts(served.front)->sleeps);
	store_release_u32(&last_minute_step, 2);
}

static void test_room_made_at_the_last_minute(void **state)
{
	(void)state;
	test_daemon_init(&served);
	served.server_config.sq_slots = served.server_config.cq_slots = 8;
	served.server_config.max_inflight = 4;
	served.front_config.spin_ns = 0;
	served.between_turns = submit_at_the_last_minute;
	test_daemon_start(&served, false);
	raw_open(&last_minute, served.path);
	/* Nothing is consumed: the completion ring is full, as far as the daemon knows. */
	for (int i = 0; i < 8; i++) {
		struct wire_submission slot = raw_slot(&last_minute, WIRE_OP_ECHO, 0);

		raw_submit(&last_minute, &slot);
		wait_for_count(&front_counts(served.front)->echoes, (uint64_t)i + 1);
	}
	store_release_u32(&last_minute_step, 1);
	wait_for_count(&front_counts(served.front)->echoes, 9);
	for (int i = 0; i < 2000 && load_acquire_u32(&last_minute_step) != 3; i++)
		pause_ms(1);
	assert_int_equal(load_acquire_u32(&last_minute_step), 3);
	/* It looked again before it slept, and did not. */
	assert_int_equal(last_minute_sleeps, 0);
	raw_close(&last_minute);
	test_daemon_stop(&served, 0);
}

/* ---- a client that sleeps again at once ---- */

enum { ANSWERS = 20 };

static struct raw_client drowsy;
static shared_u32 drowsy_state; /* 0 nobody, 1 open, 2 closing: 0 again once the front has seen it */
static shared_u32 drowsy_bytes;

/* On the front's thread, between two turns: who was woken has seen the answer and sleeps again. */
static void sleep_again(void)
{
	uint32_t state = load_acquire_u32(&drowsy_state);
	char byte[8];

	if (state == 2)
		store_release_u32(&drowsy_state, 0);
	if (state != 1 || recv(drowsy.fd, byte, sizeof byte, MSG_DONTWAIT) <= 0)
		return;
	uint32_t bytes = load_relaxed_u32(&drowsy_bytes) + 1;
	store_relaxed_u32(&segment_header(&drowsy.segment)->client_sleep, 2 * bytes + 1);
	store_release_u32(&drowsy_bytes, bytes);
}

/* An answer wakes once: each byte more would cost both ends tens of microseconds, in a step of the engine. */
static void test_woken_once_an_answer(void **state)
{
	struct wire_completion answer;

	(void)state;
	test_daemon_init(&served);
	served.front_config.spin_ns = 0;
	served.between_turns = sleep_again;
	test_daemon_start(&served, false);
	raw_open(&drowsy, served.path);
	store_relaxed_u32(&segment_header(&drowsy.segment)->client_sleep, 1);
	store_release_u32(&drowsy_state, 1);
	for (uint32_t i = 1; i <= ANSWERS; i++) {
		struct wire_submission slot = raw_slot(&drowsy, WIRE_OP_ECHO, 0);

		raw_submit(&drowsy, &slot);
		for (int wait = 0; wait < 2000 && load_acquire_u32(&drowsy_bytes) < i; wait++)
			pause_ms(1);
		while (ring_read(&drowsy.completions, &answer))
			;
		ring_reader_publish(&drowsy.completions);
		pause_ms(3); /* turns that have nothing to do */
		assert_int_equal(load_acquire_u32(&drowsy_bytes), i);
	}
	assert_int_equal(load_relaxed_u64(&front_counts(served.front)->wakes), ANSWERS);
	store_release_u32(&drowsy_state, 2);
	while (load_acquire_u32(&drowsy_state))
		pause_ms(1);
	raw_close(&drowsy);
	test_daemon_stop(&served, 0);
}

/* ---- how long a client spins ---- */

static void test_spins_less_after_long_waits(void **state)
{
	enum { SPIN_NS = 20000000, LONG_NS = 25000000 };
	struct tr_open_options options = {.size = sizeof options, .spin_ns = SPIN_NS};
	struct tr_client *client;
	struct tr_event event = {.size = sizeof event};

	(void)state;
	test_daemon_init(&served);
	test_daemon_start(&served, false);
	assert_int_equal(tr_open(&client, served.path, &options), 0);
	for (uint32_t half = 1; half <= 3; half++) {
		assert_int_equal(tr_wait(client, &event, 1, LONG_NS), 0);
		assert_int_equal(client_spin_ns(client), SPIN_NS >> half);
	}
	/* A short wait for nothing says nothing. */
	assert_int_equal(tr_wait(client, &event, 1, 1000), 0);
	assert_int_equal(client_spin_ns(client), SPIN_NS >> 3);
	/* An answer that all of it would have met; a busy machine may need a few. */
	for (int i = 0; i < 100 && client_spin_ns(client) != SPIN_NS; i++) {
		submit(client, TR_ECHO, 1, 0);
		wait_event(client);
	}
	assert_int_equal(client_spin_ns(client), SPIN_NS);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

/* ---- counters and indices that wrap ---- */

enum { ROUNDS = 20, BEFORE_WRAP = 11 };

static shared_u32 front_value_set;

/* On the front's thread: its counter is even, a few sleeps before it wraps. */
static void set_front_value(void)
{
	if (load_relaxed_u32(&front_value_set))
		return;
	served.front->sleeper.value = UINT32_MAX - BEFORE_WRAP;
	store_release_u32(&front_value_set, 1);
}

/* Both ends sleep before each message: their words go through the wrap of 32 bits while both indices go
 * through that of 32 or 64. */
static void run_wrap(uint64_t first_index)
{
	struct tr_open_options options = {.size = sizeof options, .spin_ns = 1};
	struct tr_client *client;
	uint64_t slept;

	store_relaxed_u32(&front_value_set, 0);
	test_daemon_init(&served);
	served.server_config.first_index = first_index;
	served.server_config.sq_slots = served.server_config.cq_slots = 8;
	served.server_config.max_inflight = 4;
	served.front_config.spin_ns = 0;
	served.between_turns = set_front_value;
	test_daemon_start(&served, false);
	while (!load_acquire_u32(&front_value_set))
		pause_ms(1);
	assert_int_equal(tr_open(&client, served.path, &options), 0);
	client_set_sleep_value(client, UINT32_MAX - BEFORE_WRAP);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		slept = load_relaxed_u64(&front_counts(served.front)->sleeps);
		for (int wait = 0;
		     wait < 2000 && load_relaxed_u64(&front_counts(served.front)->sleeps) == slept; wait++)
			pause_ms(1);
		submit(client, TR_ECHO, i % FAKE_VOCAB, 0);
		assert_int_equal(wait_event(client).tokens[0], i % FAKE_VOCAB);
	}
	assert_true(client_completion_index(client) == first_index + ROUNDS);
	/* Around once, and awake now. */
	assert_in_range(client_sleep_value(client), 0, 4 * ROUNDS);
	assert_int_equal(client_sleep_value(client) % 2, 0);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

static void test_wraps(void **state)
{
	(void)state;
	run_wrap(UINT32_MAX - 10);
	run_wrap(UINT64_MAX - 10);
}

/* ---- armed, cancelling, and alone ---- */

/* The events of a client that sleeps in an epoll of its own, by poll: FINAL of a stream of which half are
 * cancelled. */
static void test_armed_and_cancelled(void **state)
{
	struct tr_client *client;
	unsigned cancelled = 0;

	(void)state;
	test_daemon_init(&served);
	served.front_config.spin_ns = 0;
	test_daemon_start(&served, false);
	client = open_client();
	for (int i = 0; i < 100; i++) {
		struct pollfd socket = {.fd = tr_fd(client), .events = POLLIN};
		struct tr_event event = {.size = sizeof event};
		uint64_t id = submit(client, TR_GENERATE, 1, i % 2 ? 20000 : 3);

		if (i % 2)
			assert_int_equal(tr_cancel(client, id), 0);
		while (event.kind != TR_EVENT_FINAL) {
			if (tr_arm(client) == 0)
				assert_int_equal(poll(&socket, 1, 5000), 1);
			assert_true(tr_poll(client, &event, 1) >= 0);
		}
		assert_int_equal(event.id, id);
		cancelled += event.finish == TR_FINISH_CANCELLED;
	}
	assert_int_equal(cancelled, 50);
	tr_close(client);
	test_daemon_stop(&served, 0);
}

static void *stop_soon(void *argument)
{
	(void)argument;
	pause_ms(20);
	test_daemon_stop(&served, 0);
	return NULL;
}

/* An answer that was published before the end is read after it, once; then the error. */
static void test_daemon_ends_under_a_sleeper(void **state)
{
	struct tr_event event = {.size = sizeof event};
	struct tr_client *sleeper, *reader;
	pthread_t thread;

	(void)state;
	start();
	sleeper = open_client();
	reader = open_client();
	submit(reader, TR_ECHO, 7, 0);
	assert_int_equal(tr_flush(reader), 0);
	wait_for_count(&front_counts(served.front)->echoes, 1);
	assert_int_equal(pthread_create(&thread, NULL, stop_soon, NULL), 0);
	assert_int_equal(tr_wait(sleeper, &event, 1, 10000000000), -ECONNRESET);
	pthread_join(thread, NULL);
	assert_int_equal(tr_poll(reader, &event, 1), 1);
	assert_int_equal(event.tokens[0], 7);
	assert_true(tr_wait(reader, &event, 1, 1000000000) < 0);
	tr_close(sleeper);
	tr_close(reader);
	assert_true(one_mapping_shared() >= 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_room_made_at_the_last_minute),
	    cmocka_unit_test(test_woken_once_an_answer),
	    cmocka_unit_test(test_spins_less_after_long_waits),
	    cmocka_unit_test(test_wraps),
	    cmocka_unit_test(test_armed_and_cancelled),
	    cmocka_unit_test(test_daemon_ends_under_a_sleeper),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
