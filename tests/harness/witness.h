/* What tests of hostile clients share: a daemon of the harness and an honest client beside them. */
#ifndef TOKENRING_TESTS_HARNESS_WITNESS_H
#define TOKENRING_TESTS_HARNESS_WITNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "libclient/include/tokenring/tokenring.h"
#include "tests/harness/daemon.h"
#include "tests/harness/raw_client.h"

static struct test_daemon served;
static struct tr_client *witness; /* an honest client beside every hostile one */

static inline uint64_t clock_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void start(void)
{
	test_daemon_start(&served, false);
	assert_int_equal(tr_open(&witness, served.path, NULL), 0);
}

/* Returns how long an echo took. */
static inline uint64_t witness_echo(void)
{
	struct tr_request request = {.size = sizeof request, .op = TR_ECHO, .n_tokens = 1, .tokens = {77}};
	struct tr_event event = {.size = sizeof event};
	uint64_t id, before = clock_now();

	assert_int_equal(tr_submit(witness, &request, &id), 0);
	assert_int_equal(tr_wait(witness, &event, 1, 3000000000), 1);
	assert_int_equal(event.id, id);
	assert_int_equal(event.tokens[0], 77);
	return clock_now() - before;
}

/* Nothing of the hostile clients is left. */
static inline void stop(void)
{
	witness_echo();
	wait_for_count(&front_counts(served.front)->channels, 1);
	wait_for_count(&front_counts(served.front)->in_flight, 0);
	tr_close(witness);
	test_daemon_stop(&served, 0);
	assert_int_equal(count_mappings(), 0);
}

static inline void assert_ended(struct raw_client *client, uint32_t reason)
{
	assert_int_equal(raw_end_reason(client), reason);
	assert_int_equal(load_acquire_u32(&segment_header(&client->segment)->state), WIRE_STATE_ENDED);
	assert_int_equal(load_relaxed_u32(&segment_header(&client->segment)->reason), reason);
	raw_close(client);
	witness_echo();
}

#endif
