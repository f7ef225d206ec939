/* What the tests of the client library share: an opened client, and helpers that submit and collect. */
#ifndef TOKENRING_TESTS_CLIENT_FIXTURE_H
#define TOKENRING_TESTS_CLIENT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/fake_daemon.h"

enum { SECOND_NS = 1000000000, MS_NS = 1000000 };

static inline struct tr_client *open_client(struct fake_daemon *fake)
{
	struct tr_client *client = NULL;
	struct tr_open_options options = {.size = sizeof options, .timeout_ms = 2000};

	fake_start(fake);
	assert_int_equal(tr_open(&client, fake->path, &options), 0);
	assert_non_null(client);
	return client;
}

static inline struct tr_request request_of(uint8_t op, uint8_t n_tokens, uint32_t first)
{
	struct tr_request request = {.size = sizeof request, .op = op, .n_tokens = n_tokens, .max_new = 1};

	for (uint32_t i = 0; i < TR_INLINE_TOKENS; i++)
		request.tokens[i] = i < n_tokens ? first + i : 0xbadbad;
	return request;
}

static inline uint64_t submit_ok(struct tr_client *client, const struct tr_request *request)
{
	uint64_t id = 0;

	assert_int_equal(tr_submit(client, request, &id), 0);
	assert_true(id != 0);
	return id;
}

static inline struct tr_event wait_one(struct tr_client *client)
{
	struct tr_event event = {.size = sizeof event};

	assert_int_equal(tr_wait(client, &event, 1, 5ll * SECOND_NS), 1);
	return event;
}

/* Polls until something other than 0 comes back. */
static inline int poll_until(struct tr_client *client, struct tr_event *event)
{
	uint64_t end_ns = clock_now_ns() + 5ull * SECOND_NS;
	int n = 0;

	event->size = sizeof *event;
	while (n == 0 && clock_now_ns() < end_ns)
		n = tr_poll(client, event, 1);
	return n;
}

#endif
