/* Threads that submit, or are cancelled while they wait: the client is whole, and another thread goes on. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/client_fixture.h"

enum { ROUNDS = 20, IN_FLIGHT = 8 };

static const struct tr_request echo = {.size = sizeof echo, .op = TR_ECHO, .n_tokens = 1, .tokens = {1}};

static void *submit_and_end(void *argument)
{
	uint64_t id;

	for (int i = 0; i < IN_FLIGHT; i++)
		if (tr_submit(argument, &echo, &id) < 0)
			return argument;
	return NULL;
}

/* Each answer comes once: more would end the channel, fewer would time out. */
static void collect(struct tr_client *client, unsigned n)
{
	struct tr_event event = {.size = sizeof event};

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(wait_one(client).kind, TR_EVENT_ECHO);
	assert_int_equal(tr_poll(client, &event, 1), 0);
}

static void what_a_thread_left_pending_another_collects(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);

	for (int i = 0; i < ROUNDS; i++) {
		pthread_t thread;
		void *failed;

		assert_int_equal(pthread_create(&thread, NULL, submit_and_end, client), 0);
		pthread_join(thread, &failed);
		assert_null(failed);
		collect(client, IN_FLIGHT);
	}
	tr_close(client);
	fake_stop(&fake);
}

static void *wait_for_ever(void *argument)
{
	struct tr_event event = {.size = sizeof event};

	for (;;)
		tr_wait(argument, &event, 1, -1);
	return NULL;
}

/* Nothing is in flight, so that no event can be lost with the thread. */
static void a_thread_cancelled_in_a_wait_leaves_a_whole_client(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);

	for (int i = 0; i < ROUNDS; i++) {
		pthread_t thread;
		void *how;

		assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, client), 0);
		usleep(1000 * (unsigned)(i % 4)); /* spinning at first, then asleep */
		pthread_cancel(thread);
		pthread_join(thread, &how);
		assert_ptr_equal(how, PTHREAD_CANCELED);
		for (int k = 0; k < IN_FLIGHT; k++)
			submit_ok(client, &echo);
		collect(client, IN_FLIGHT);
	}
	tr_close(client);
	fake_stop(&fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_a_thread_left_pending_another_collects),
	    cmocka_unit_test(a_thread_cancelled_in_a_wait_leaves_a_whole_client),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
