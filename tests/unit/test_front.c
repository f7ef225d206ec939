/* The front and the control thread with real clients over a real socket, and an engine that makes tokens up.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "libclient/include/tokenring/tokenring.h"
#include "tests/harness/daemon.h"

static struct test_daemon served;

static struct tr_client *open_client(void)
{
	struct tr_client *client = NULL;

	assert_int_equal(tr_open(&client, served.path, NULL), 0);
	return client;
}

static uint64_t submit(struct tr_client *client, uint8_t op, uint32_t token, uint16_t max_new)
{
	struct tr_request request = {
	    .size = sizeof request, .op = op, .n_tokens = 1, .max_new = max_new, .tokens = {token}};
	uint64_t id = 0;

	assert_int_equal(tr_submit(client, &request, &id), 0);
	return id;
}

static struct tr_event wait_event(struct tr_client *client)
{
	struct tr_event event = {.size = sizeof event};

	assert_int_equal(tr_wait(client, &event, 1, 2000000000), 1);
	return event;
}

static void test_echo(void **state)
{
	struct tr_client *client;
	struct tr_event event;

	(void)state;
	test_daemon_init(&served);
	test_daemon_start(&served, false);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_echo),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
