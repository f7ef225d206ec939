/* Clients that die at any moment, and clients that write garbage everywhere, beside others that must notice
 * nothing. Afterwards the daemon holds what it held before. Arguments: kills, seconds of garbage. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/include/tokenring/tokenring.h"
#include "tests/harness/daemon.h"
#include "tests/harness/raw_client.h"

static struct test_daemon served;
static unsigned kills = 60, garbage_seconds = 4;

/* ---- the honest one: echo and generate, every answer checked ---- */

struct witness {
	pthread_t thread;
	shared_u32 stop;
	uint64_t rounds, slowest_ns;
	const char *complaint;
};

static uint64_t clock_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static const char *one_round(struct tr_client *client, uint32_t token)
{
	struct tr_request request = {
	    .size = sizeof request, .op = TR_GENERATE, .n_tokens = 1, .max_new = 20, .tokens = {token}};
	struct tr_event event = {.size = sizeof event};
	uint32_t n = 0;
	uint64_t id;

	if (tr_submit(client, &request, &id) < 0)
		return "submit failed";
	while (event.kind != TR_EVENT_FINAL) {
		if (tr_wait(client, &event, 1, 5000000000) != 1)
			return "no answer came";
		if (event.kind == TR_EVENT_REFUSED)
			return event.reason == WIRE_REASON_QUEUE_FULL ? NULL : "refused";
		for (unsigned i = 0; i < event.n_tokens; i++, n++)
			if (event.tokens[i] != (token = fake_next(token)))
				return "a token is wrong";
	}
	return n == 20 ? NULL : "a token is missing";
}

static void *witness_run(void *argument)
{
	struct witness *witness = argument;
	struct tr_client *client;

	if (tr_open(&client, served.path, NULL) < 0) {
		witness->complaint = "cannot connect";
		return NULL;
	}
	while (!witness->complaint && !load_relaxed_u32(&witness->stop)) {
		uint64_t before = clock_now(), took;

		witness->complaint = one_round(client, (uint32_t)witness->rounds++ % FAKE_VOCAB);
		took = clock_now() - before;
		witness->slowest_ns = took > witness->slowest_ns ? took : witness->slowest_ns;
	}
	tr_close(client);
	return NULL;
}

static void witness_start(struct witness *witness)
{
	*witness = (struct witness){0};
	assert_int_equal(pthread_create(&witness->thread, NULL, witness_run, witness), 0);
}

static void witness_stop(struct witness *witness)
{
	store_relaxed_u32(&witness->stop, 1);
	pthread_join(witness->thread, NULL);
	if (witness->complaint)
		fail_msg("the honest client: %s", witness->complaint);
	assert_true(witness->rounds > 10);
	print_message("%llu rounds beside, the slowest took %llu us\n", (unsigned long long)witness->rounds,
		      (unsigned long long)witness->slowest_ns / 1000);
}

/* ---- kills ---- */

static void victim(unsigned seed)
{
	struct tr_event events[16] = {{.size = sizeof events[0]}};
	uint32_t prompt[3000] = {1};
	struct tr_request_extra extra = {
	    .size = sizeof extra, .tokens = prompt, .n_tokens = 3000, .max_new = 500, .logprobs = 1};
	struct tr_request request = {.size = sizeof request, .n_tokens = 1, .max_new = 500};
	struct tr_client *client;
	uint64_t id;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	srand(seed);
	for (;;) {
		if (tr_open(&client, served.path, NULL) < 0)
			continue;
		for (int i = rand() % 200; i >= 0; i--) {
			request.op = rand() % 2 ? TR_ECHO : TR_GENERATE;
			request.extra = request.op == TR_GENERATE && rand() % 3 == 0 ? &extra : NULL;
			tr_submit(client, &request, &id);
			if (rand() % 4 == 0)
				tr_cancel(client, id);
			tr_wait(client, events, 16, rand() % 200000);
		}
		tr_close(client);
	}
}

static void test_kills(void **state)
{
	struct witness witness;
	unsigned descriptors;

	(void)state;
	test_daemon_init(&served);
	test_daemon_start(&served, false);
	descriptors = count_descriptors();
	witness_start(&witness);
	for (unsigned i = 0; i < kills; i++) {
		struct timespec nap = {.tv_nsec = (long)(i * 7919 % 40000) * 1000};
		pid_t child = fork();

		if (child == 0) {
			victim(i);
			_exit(0);
		}
		nanosleep(&nap, NULL);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	witness_stop(&witness);
	wait_for_count(&front_counts(served.front)->channels, 0);
	wait_for_count(&front_counts(served.front)->in_flight, 0);
	for (int i = 0; i < 1000 && count_mappings(); i++)
		pause_ms(1);
	assert_int_equal(count_mappings(), 0);
	/* This process itself is a client that lives: its pidfd stands for the memory of its closed channel.
	 */
	assert_in_range(count_descriptors(), descriptors, descriptors + 1);
	assert_int_equal(load_relaxed_u32(&served.engine.running), 0);
	test_daemon_stop(&served, 0);
}

/* ---- garbage ---- */

static uint32_t noise(void)
{
	static uint64_t seed = 88172645463325252ULL;

	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 16);
}

static void write_noise(unsigned char *at, size_t bytes)
{
	for (size_t i = 0; i + 4 <= bytes; i += 4) {
		uint32_t word = noise();

		memcpy(at + i, &word, 4);
	}
}

/* A block that is right but for a few words, so that the checks deep inside are reached. */
static void write_block(struct raw_client *client, unsigned char *at)
{
	struct wire_block block = {.bytes = 72 + 16 + 400,
				   .version = WIRE_BLOCK_VERSION,
				   .n_tokens = 100,
				   .tokens_off = 88,
				   .max_new = 5,
				   .top_p = 1,
				   .penalty = 1,
				   .reply_off = (uint32_t)(client->layout.arena_off / 64 + 100),
				   .reply_cap = 16 + 5 * 8};
	struct wire_tlv tlv = {.type = WIRE_TLV_STOP_IDS, .bytes = 8};
	uint32_t words[sizeof block / 4];

	memcpy(words, &block, sizeof words);
	for (int i = noise() % 3; i > 0; i--)
		words[noise() % (sizeof words / 4)] = noise() % 2 ? noise() : noise() % 4096;
	memcpy(at, words, sizeof words);
	if (noise() % 4 == 0)
		tlv.type = noise() % 8;
	memcpy(at + 72, &tlv, sizeof tlv);
	memset(at + 80, 0, 408);
}

static void plausible_slots(struct raw_client *client)
{
	for (int i = 0; i < 200; i++) {
		struct wire_submission slot =
		    raw_slot(client, (uint8_t)(1 + noise() % 4), noise() % client->layout.max_inflight);
		unsigned char *arena = client->segment.base + client->layout.arena_off;
		uint32_t unit = noise() % 64;

		if (noise() % 2) {
			write_block(client, arena + unit * 64);
			slot.block = (uint32_t)(client->layout.arena_off / 64 + unit);
			slot.n_tok = 0;
			slot.tok[0] = 0;
		}
		if (noise() % 16 == 0)
			((unsigned char *)&slot)[4 + noise() % 60] = (unsigned char)noise();
		if (ring_room(&client->submissions) == 0)
			client->submissions.limit = client->submissions.index + 1; /* no rule is kept */
		ring_publish(&client->submissions, &slot);
		if (slot.block && noise() % 2)
			write_block(client, arena + unit * 64); /* while it is being read */
		if (noise() % 8 == 0)
			store_release_u64(&segment_header(&client->segment)->cq_consumed,
					  client->completions.index + noise() % 64);
	}
}

/* Ends when the daemon ends the channel, or after some rounds. */
static void torment(struct raw_client *client, uint64_t until_ns)
{
	for (int round = 0; round < 50 && clock_now() < until_ns; round++) {
		unsigned char bytes[64];

		switch (noise() % 4) {
		case 0:
			write_noise(client->segment.base, client->segment.bytes);
			break;
		case 1:
			write_noise(bytes, sizeof bytes);
			if (send(client->fd, bytes, noise() % sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
				return;
			break;
		default:
			plausible_slots(client);
		}
		if (load_relaxed_u32(&segment_header(&client->segment)->state) == WIRE_STATE_ENDED)
			return;
	}
}

static void tormentor(uint64_t until_ns)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (clock_now() < until_ns) {
		struct raw_client client;

		raw_open(&client, served.path);
		torment(&client, until_ns);
		raw_close(&client);
	}
}

static void test_garbage(void **state)
{
	uint64_t until_ns = clock_now() + garbage_seconds * UINT64_C(1000000000);
	struct witness witness;
	pid_t children[2];

	(void)state;
	test_daemon_init(&served);
	served.server_config.arena_bytes = 64 << 10;
	served.server_config.memory_per_uid_bytes = UINT64_C(1) << 40;
	test_daemon_start(&served, false);
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			for (int skip = 0; skip < i * 1000; skip++)
				noise();
			tormentor(until_ns);
			_exit(0);
		}
	}
	witness_start(&witness);
	for (int i = 0; i < 2; i++) {
		int status;

		waitpid(children[i], &status, 0);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	witness_stop(&witness);
	wait_for_count(&front_counts(served.front)->channels, 0);
	wait_for_count(&front_counts(served.front)->in_flight, 0);
	print_message("%u channels ended, %u requests submitted, %u refused\n",
		      (unsigned)load_relaxed_u64(&front_counts(served.front)->channels_ended),
		      (unsigned)load_relaxed_u64(&front_counts(served.front)->submitted),
		      (unsigned)load_relaxed_u64(&front_counts(served.front)->refused));
	assert_true(load_relaxed_u64(&front_counts(served.front)->channels_ended) > 10);
	assert_true(load_relaxed_u64(&front_counts(served.front)->submitted) > 10);
	test_daemon_stop(&served, 0);
	assert_int_equal(count_mappings(), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_kills), cmocka_unit_test(test_garbage)};

	if (argc > 1)
		kills = (unsigned)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		garbage_seconds = (unsigned)strtoul(argv[2], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
