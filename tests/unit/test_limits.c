/* Who may connect, and how much of what all share one user or one tenant may take. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/raw_block.h"
#include "tests/harness/stranger.h"

/* ---- who may connect ---- */

static int connect_with(enum server_access access, const struct config_uids *uids,
			const struct config_uids *gids)
{
	served.server_config.access = access;
	served.server_config.allowed_uids = *uids;
	served.server_config.allowed_gids = *gids;
	assert_int_equal(server_reload(served.server, &served.server_config), 0);
	return as_stranger(stranger_connect, NULL);
}

static void test_access(void **state)
{
	static const struct config_uids none = {0}, me = {2, {77, STRANGER}}, first = {1, {STRANGER_GROUP}},
					second = {2, {99, STRANGER_OTHER_GROUP}};

	(void)state;
	need_two_users();
	test_daemon_init(&served);
	start();
	let_strangers_in();
	assert_int_equal(connect_with(SERVER_ACCESS_LISTED, &none, &none), WIRE_REASON_USER_DENIED);
	assert_int_equal(connect_with(SERVER_ACCESS_LISTED, &me, &none), 0);
	assert_int_equal(connect_with(SERVER_ACCESS_LISTED, &none, &first), 0);
	assert_int_equal(connect_with(SERVER_ACCESS_LISTED, &none, &second), 0);
	/* A user's number is no group's, and the other way round. */
	assert_int_equal(connect_with(SERVER_ACCESS_LISTED, &first, &me), WIRE_REASON_USER_DENIED);
	assert_int_equal(connect_with(SERVER_ACCESS_GROUP, &none, &none), WIRE_REASON_USER_DENIED);
	assert_int_equal(chown(served.path, (uid_t)-1, STRANGER_OTHER_GROUP), 0);
	assert_int_equal(connect_with(SERVER_ACCESS_GROUP, &none, &none), 0);
	assert_int_equal(connect_with(SERVER_ACCESS_LISTED, &none, &none), WIRE_REASON_USER_DENIED);
	assert_int_equal(connect_with(SERVER_ACCESS_EVERYONE, &none, &none), 0);
	assert_int_equal(load_relaxed_u64(&server_refused_for(served.server)[WIRE_REASON_USER_DENIED]), 4);
	stop();
}

/* ---- the queue ---- */

static struct wire_completion refused_after(struct raw_client *client, uint32_t accepted)
{
	for (uint32_t i = 0; i < accepted; i++) {
		struct wire_submission slot = raw_slot(client, WIRE_OP_GENERATE, i);

		raw_submit(client, &slot);
	}
	struct wire_submission slot = raw_slot(client, WIRE_OP_GENERATE, accepted);

	raw_submit(client, &slot);
	return raw_completion(client);
}

/* What the child reads of the daemon's counters is its own copy: it asks by a pipe instead. */
static int fill_and_stay(void *pipes)
{
	int *ends = pipes;
	struct raw_client client;
	char byte = 0;

	raw_open(&client, served.path);
	byte = (char)refused_after(&client, 6).aux;
	if (write(ends[1], &byte, 1) != 1 || read(ends[2], &byte, 1) < 0)
		return 1;
	return 0;
}

/* From two channels; the refusal carries the figures. */
static void test_queue_of_user(void **state)
{
	struct wire_completion answer;
	struct raw_client clients[2];

	(void)state;
	test_daemon_init(&served);
	served.front_config.shares.queue_per_uid = 12;
	start();
	store_relaxed_u32(&served.engine.paused, 1);
	for (int i = 0; i < 2; i++)
		raw_open(&clients[i], served.path);
	for (uint32_t i = 0; i < 5; i++) {
		struct wire_submission slot = raw_slot(&clients[0], WIRE_OP_GENERATE, i);

		raw_submit(&clients[0], &slot);
	}
	wait_for_count(&front_counts(served.front)->in_flight, 5);
	answer = refused_after(&clients[1], 7);
	assert_int_equal(answer.kind, WIRE_KIND_REFUSED);
	assert_int_equal(answer.aux, WIRE_REASON_USER_QUEUE);
	assert_int_equal(answer.tok[4], 13);
	assert_int_equal(answer.tok[5], 12);
	assert_true(answer.tok[2] > 0); /* when to try again */
	/* Echoes take no place in the queue. */
	witness_echo();
	assert_int_equal(load_relaxed_u64(&front_counts(served.front)->refused_for[WIRE_REASON_USER_QUEUE]),
			 1);
	for (int i = 0; i < 2; i++)
		raw_close(&clients[i]);
	stop();
}

/* Another user has filled its share of a small queue: the witness is served all the same, and so is the other
 * user again once its channels are gone. */
static void test_users_apart(void **state)
{
	int ends[4], status;
	char byte = 0;

	(void)state;
	need_two_users();
	test_daemon_init(&served);
	served.n_requests = 8;
	served.front_config.shares.queue_per_uid = 0; /* three quarters */
	served.server_config.access = SERVER_ACCESS_EVERYONE;
	start();
	let_strangers_in();
	store_relaxed_u32(&served.engine.paused, 1);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(pipe(ends), 0);
		assert_int_equal(pipe(ends + 2), 0);
		pid_t child = fork();

		if (child == 0) {
			close(ends[3]);
			_exit(setgid(STRANGER_GROUP) < 0 || setuid(STRANGER) < 0 ? 1 : fill_and_stay(ends));
		}
		assert_int_equal(read(ends[0], &byte, 1), 1);
		assert_int_equal(byte, WIRE_REASON_USER_QUEUE);
		wait_for_count(&front_counts(served.front)->in_flight, 6);
		struct tr_request request = {
		    .size = sizeof request, .op = TR_GENERATE, .n_tokens = 1, .max_new = 3, .tokens = {5}};
		uint64_t id;

		assert_int_equal(tr_submit(witness, &request, &id), 0);
		wait_for_count(&front_counts(served.front)->in_flight, 7);
		tr_cancel(witness, id);
		struct tr_event event = {.size = sizeof event};

		assert_int_equal(tr_wait(witness, &event, 1, 3000000000), 1);
		assert_int_equal(event.reason, WIRE_REASON_CANCELLED);
		for (int i = 0; i < 4; i++)
			close(ends[i]);
		waitpid(child, &status, 0);
		assert_int_equal(WEXITSTATUS(status), 0);
		wait_for_count(&front_counts(served.front)->in_flight, 0);
	}
	stop();
}

/* ---- memory for blocks ---- */

static void test_blocks_of_user(void **state)
{
	struct wire_block block = raw_block(600000, 4);
	struct wire_submission slot;
	struct wire_completion answer;
	struct raw_client client;

	(void)state;
	test_daemon_init(&served);
	served.front_config.shares.queue_per_uid = 64; /* a quarter of 256: 4 of 16 MiB */
	served.server_config.arena_bytes = 8 << 20;
	test_daemon_start(&served, true); /* so that they wait, whatever they ask */
	raw_open(&client, served.path);
	for (uint32_t i = 0; i < 2; i++) {
		slot = raw_slot_with(&client, i, i * 40000, &block);
		raw_submit(&client, &slot);
	}
	answer = raw_completion(&client);
	assert_int_equal(answer.kind, WIRE_KIND_REFUSED);
	assert_int_equal(answer.aux, WIRE_REASON_USER_BLOCKS);
	assert_int_equal(answer.tok[4], 2 * block.bytes);
	assert_int_equal(answer.tok[5], 4 << 20);
	raw_close(&client);
	wait_for_count(&front_counts(served.front)->channels, 0);
	/* All of it came back. */
	raw_open(&client, served.path);
	slot = raw_slot_with(&client, 0, 0, &block);
	raw_submit(&client, &slot);
	wait_for_count(&front_counts(served.front)->held, 1);
	raw_close(&client);
	test_daemon_stop(&served, 0);
}

/* ---- tenants ---- */

static void ask_for(struct raw_client *client, uint32_t index, uint32_t tenant)
{
	struct wire_block block = raw_block(2, 50);
	struct wire_submission slot;

	block.tenant = tenant;
	slot = raw_slot_with(client, index, index * 2, &block);
	raw_submit(client, &slot);
}

static void test_tenants(void **state)
{
	struct wire_submission cancel = {.op = WIRE_OP_CANCEL};
	struct wire_completion answer;
	struct raw_client client;

	(void)state;
	test_daemon_init(&served);
	served.front_config.shares.queue_per_tenant = 2;
	served.server_config.tenant_uids = (struct config_uids){2, {4000000000u, getuid()}};
	start();
	store_relaxed_u32(&served.engine.paused, 1);
	raw_open(&client, served.path);
	for (uint32_t i = 0; i < 6; i++)
		ask_for(&client, i, 5 + i / 2);
	wait_for_count(&front_counts(served.front)->in_flight, 6);
	ask_for(&client, 6, 6);
	answer = raw_completion(&client);
	assert_int_equal(answer.aux, WIRE_REASON_TENANT_QUEUE);
	assert_int_equal(answer.tok[4], 3);
	assert_int_equal(answer.tok[5], 2);
	/* The user's own requests are no tenant's. */
	for (uint32_t i = 6; i < 9; i++)
		ask_for(&client, i, i % 2 ? getuid() : 0);
	wait_for_count(&front_counts(served.front)->in_flight, 9);
	/* The end of one makes room for another: the ids rise from order 1. */
	cancel.tok[0] = 3U << 16 | 2;
	raw_submit(&client, &cancel);
	assert_int_equal(raw_completion(&client).aux, WIRE_REASON_CANCELLED);
	ask_for(&client, 2, 6);
	wait_for_count(&front_counts(served.front)->in_flight, 9);
	raw_close(&client);
	stop();
}

static void ask_much_for(struct raw_client *client, uint32_t index, uint32_t tenant)
{
	struct wire_block block = raw_block(600000, 4);
	struct wire_submission slot;

	block.tenant = tenant;
	slot = raw_slot_with(client, index, index * 40000, &block);
	raw_submit(client, &slot);
}

static void test_blocks_of_tenant(void **state)
{
	uint32_t bytes = raw_block(600000, 4).bytes;
	struct wire_submission cancel = {.op = WIRE_OP_CANCEL};
	struct wire_completion answer;
	struct raw_client client;

	(void)state;
	test_daemon_init(&served);
	served.front_config.shares.queue_per_tenant = 64; /* a quarter of 256: 4 of 16 MiB */
	served.server_config.tenant_uids = (struct config_uids){1, {getuid()}};
	served.server_config.arena_bytes = 16 << 20;
	test_daemon_start(&served, true);
	raw_open(&client, served.path);
	ask_much_for(&client, 0, 5);
	ask_much_for(&client, 1, 6); /* another's is no hindrance */
	wait_for_count(&front_counts(served.front)->held, 2);
	ask_much_for(&client, 2, 5);
	answer = raw_completion(&client);
	assert_int_equal(answer.kind, WIRE_KIND_REFUSED);
	assert_int_equal(answer.aux, WIRE_REASON_TENANT_BLOCKS);
	assert_int_equal(answer.tok[4], 2 * bytes);
	assert_int_equal(answer.tok[5], 4 << 20);
	/* The refused one's memory counts no more, and the end of the first gives back what it held. */
	cancel.tok[0] = 1U << 16;
	raw_submit(&client, &cancel);
	assert_int_equal(raw_completion(&client).aux, WIRE_REASON_CANCELLED);
	ask_much_for(&client, 2, 5);
	wait_for_count(&front_counts(served.front)->held, 2);
	raw_close(&client);
	test_daemon_stop(&served, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_access),      cmocka_unit_test(test_queue_of_user),
	    cmocka_unit_test(test_users_apart), cmocka_unit_test(test_blocks_of_user),
	    cmocka_unit_test(test_tenants),     cmocka_unit_test(test_blocks_of_tenant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
