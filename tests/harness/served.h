/* What tests with honest clients share: a daemon of the harness, and streams whose every token is checked. */
#ifndef TOKENRING_TESTS_HARNESS_SERVED_H
#define TOKENRING_TESTS_HARNESS_SERVED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "libclient/include/tokenring/tokenring.h"
#include "tests/harness/daemon.h"

static struct test_daemon served;

static inline struct tr_client *open_client(void)
{
	struct tr_client *client = NULL;

	assert_int_equal(tr_open(&client, served.path, NULL), 0);
	return client;
}

static inline uint64_t submit(struct tr_client *client, uint8_t op, uint32_t token, uint16_t max_new)
{
	struct tr_request request = {
	    .size = sizeof request, .op = op, .n_tokens = 1, .max_new = max_new, .tokens = {token}};
	uint64_t id = 0;

	assert_int_equal(tr_submit(client, &request, &id), 0);
	return id;
}

static inline struct tr_event wait_event(struct tr_client *client)
{
	struct tr_event event = {.size = sizeof event};

	assert_int_equal(tr_wait(client, &event, 1, 2000000000), 1);
	return event;
}

static inline void start(void)
{
	test_daemon_init(&served);
	test_daemon_start(&served, false);
}

/* Collects a whole stream and checks that it is the chain that `token` begins. Returns its terminal event;
 * its tokens are counted in *ret_n. */
static inline struct tr_event collect(struct tr_client *client, uint64_t id, uint32_t token, uint32_t *ret_n)
{
	*ret_n = 0;
	for (;;) {
		struct tr_event event = wait_event(client);

		assert_int_equal(event.id, id);
		if (event.kind == TR_EVENT_REFUSED)
			return event;
		assert_int_equal(event.first, *ret_n);
		for (unsigned i = 0; i < event.n_tokens; i++) {
			token = fake_next(token);
			assert_int_equal(event.tokens[i], token);
		}
		*ret_n += event.n_tokens;
		if (event.kind == TR_EVENT_FINAL)
			return event;
		assert_int_equal(event.kind, TR_EVENT_TOKENS);
	}
}

static inline struct tr_event run_block(struct tr_client *client, struct tr_request *request, uint32_t last,
					uint32_t *ret_n)
{
	uint64_t id;

	assert_int_equal(tr_submit(client, request, &id), 0);
	return collect(client, id, last, ret_n);
}

static inline uint64_t clock_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#endif
