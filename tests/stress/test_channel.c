/* Both ends of a channel in one process over one mapping, so that ThreadSanitizer sees every access of
 * either: echoes, streams, blocks with replies, and sleeping on both sides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/client_fixture.h"

enum { ECHOES = 20000, STREAMS = 300, SCORES = 3000 };

static void close_both(struct fake_daemon *fake, struct tr_client *client)
{
	fake_stop(fake);
	tr_close(client);
}

static void echoes_in_flight(void **state)
{
	struct fake_daemon fake = {.first_index = UINT32_MAX - 1000};
	struct tr_client *client = fake_start_shared(&fake, NULL);
	struct tr_event events[16];
	uint32_t sent = 0, received = 0;

	while (received < ECHOES) {
		struct tr_request request = request_of(TR_ECHO, 1, sent);
		uint64_t id;
		int n;

		while (sent < ECHOES && tr_submit(client, &request, &id) == 0)
			request.tokens[0] = ++sent;
		events[0].size = sizeof events[0];
		n = tr_wait(client, events, 16, SECOND_NS);
		assert_true(n > 0);
		for (int i = 0; i < n; i++)
			assert_int_equal(events[i].tokens[0], received++);
	}
	close_both(&fake, client);
}

static void streams_with_long_prompts(void **state)
{
	struct fake_daemon fake = {.cq_slots = 64};
	struct tr_open_options options = {.size = sizeof options, .spin_ns = 1};
	struct tr_client *client = fake_start_shared(&fake, &options);
	uint32_t prompt[300];

	for (uint32_t k = 0; k < STREAMS; k++) {
		struct tr_request request = request_of(TR_GENERATE, 0, 0);
		struct tr_request_extra extra = {
		    .size = sizeof extra, .tokens = prompt, .n_tokens = 1 + k, .max_new = 200};
		struct tr_event event = {.kind = TR_EVENT_TOKENS};
		uint32_t seen = 0;

		for (uint32_t i = 0; i <= k; i++)
			prompt[i] = 1000 + i;
		request.extra = &extra;
		submit_ok(client, &request);
		for (; event.kind == TR_EVENT_TOKENS; seen += event.n_tokens) {
			event = wait_one(client);
			assert_int_equal(event.first, seen);
			assert_int_equal(event.tokens[0], 1000 + k + 1 + seen);
		}
		assert_int_equal(seen, 200);
	}
	close_both(&fake, client);
}

static void replies_are_read_before_their_block_is_reused(void **state)
{
	struct fake_daemon fake = {.arena_bytes = 4096};
	struct tr_client *client = fake_start_shared(&fake, NULL);
	uint32_t received = 0, sent = 0;

	while (received < SCORES) {
		struct tr_request request = request_of(TR_SCORE, 1, 1);
		uint32_t candidates[8];
		struct tr_request_extra extra = {.size = sizeof extra, .candidates = candidates};
		struct tr_event event = {.size = sizeof event};
		uint64_t id;

		request.extra = &extra;
		do {
			extra.n_candidates = 1 + sent % 8;
			for (uint32_t i = 0; i < 8; i++)
				candidates[i] = 2 * sent + i;
		} while (sent < SCORES && tr_submit(client, &request, &id) == 0 && ++sent);
		event = wait_one(client);
		assert_int_equal(event.n_scored, 1 + received % 8);
		for (uint32_t i = 0; i < event.n_scored; i++) {
			assert_int_equal(event.scored[i].id, 2 * received + i);
			assert_true(event.scored[i].value == (float)(2 * received + i) / 2);
		}
		received++;
	}
	close_both(&fake, client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(echoes_in_flight),
	    cmocka_unit_test(streams_with_long_prompts),
	    cmocka_unit_test(replies_are_read_before_their_block_is_reused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
