/* Every reason of shm/wire.h: a client that provokes it, through the real socket and the real front, and sees
 * it counted. A reason that nobody provokes here must say which end uses it, or the test fails. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/harness/raw_block.h"
#include "tests/harness/stranger.h"

static struct raw_client client;

/* ---- requests ---- */

static void submit_one(const struct wire_submission *slot, uint32_t reason)
{
	struct wire_completion answer;

	raw_open(&client, served.path);
	raw_submit(&client, slot);
	answer = raw_completion(&client);
	assert_int_equal(answer.aux, reason);
	assert_int_equal(answer.status, -tr_reason_errno(reason));
	raw_close(&client);
}

#define SLOT(name, op_, change)                                                 \
	static void slot_##name(uint32_t reason)                                \
	{                                                                       \
		struct raw_client any = {.next_order = 1};                      \
		struct wire_submission slot = raw_slot(&any, WIRE_OP_##op_, 1); \
		change;                                                         \
		submit_one(&slot, reason);                                      \
	}

SLOT(op, ECHO, slot.op = 77)
SLOT(flag, ECHO, slot.flags = 8)
SLOT(padding, ECHO, slot.tok[7] = 1)
SLOT(profile, GENERATE, slot.profile = 3)
SLOT(model, GENERATE, slot.model = 2)
SLOT(token, ECHO, slot.tok[0] = FAKE_VOCAB)
SLOT(no_tokens, GENERATE, (slot.n_tok = 0, slot.tok[0] = 0))
SLOT(kv, GENERATE, slot.max_new = FAKE_KV_TOKENS)
SLOT(deadline, GENERATE, slot.deadline_ns = 1)
SLOT(fork, SESSION_FORK, )
SLOT(any, GENERATE, )
SLOT(outside, GENERATE, (slot.block = 1, slot.n_tok = 0, slot.tok[0] = 0))

static void with_block(const struct wire_block *block, uint32_t reason)
{
	struct wire_submission slot;
	struct wire_completion answer;

	raw_open(&client, served.path);
	slot = raw_slot_with(&client, 0, 0, block);
	raw_submit(&client, &slot);
	answer = raw_completion(&client);
	assert_int_equal(answer.kind, WIRE_KIND_REFUSED);
	assert_int_equal(answer.aux, reason);
	raw_close(&client);
}

#define BLOCK(name, n_tokens_, max_new_, change)                          \
	static void block_##name(uint32_t reason)                         \
	{                                                                 \
		struct wire_block block = raw_block(n_tokens_, max_new_); \
		change;                                                   \
		with_block(&block, reason);                               \
	}

BLOCK(max_new, 1, 0, )
BLOCK(parameter, 1, 1, block.temperature = NAN)
BLOCK(option, 1, 1, (block.tokens_off += 8, block.bytes += 8)) /* eight zeros: an option of type 0 */
BLOCK(reply, 1, 1, (block.reply_off = 1, block.reply_cap = 4096))
BLOCK(long_prompt, FAKE_MAX_PROMPT + 1, 1, )
BLOCK(context_too_long, 100, FAKE_CONTEXT, )
BLOCK(tenant, 1, 1, block.tenant = 12345)

/* As many as `accepted` wait; the next one is refused. */
static void refused_behind(uint32_t accepted, const struct wire_block *block, uint32_t reason)
{
	struct wire_completion answer;

	store_relaxed_u32(&served.engine.paused, 1);
	raw_open(&client, served.path);
	for (uint32_t i = 0; i <= accepted; i++) {
		struct wire_submission slot = raw_slot_with(&client, i, i * (block->bytes / 64 + 1), block);

		raw_submit(&client, &slot);
	}
	answer = raw_completion(&client);
	assert_int_equal(answer.kind, WIRE_KIND_REFUSED);
	assert_int_equal(answer.aux, reason);
	assert_true(answer.tok[4] > 0 && answer.tok[5] > 0 && answer.tok[2] > 0);
	raw_close(&client);
}

static void queue_config(void)
{
	served.n_requests = 4;
}

static void user_config(void)
{
	served.front_config.shares.queue_per_uid = 2;
}

static void tenant_config(void)
{
	served.front_config.shares.queue_per_tenant = 3;
	served.server_config.tenant_uids = (struct config_uids){1, {getuid()}};
}

static void full_queue(uint32_t reason)
{
	struct wire_block block = raw_block(2, 4);

	refused_behind(4, &block, reason);
}

static void full_share(uint32_t reason)
{
	struct wire_block block = raw_block(2, 4);

	refused_behind(2, &block, reason);
}

static void full_tenant(uint32_t reason)
{
	struct wire_block block = raw_block(2, 4);

	block.tenant = 7;
	refused_behind(3, &block, reason);
}

static void blocks_config(void)
{
	served.front_config.shares.queue_per_uid = 64;
	served.server_config.arena_bytes = 5 << 20;
}

/* Five of 900 KB where four megabytes are the share. */
static void full_blocks(uint32_t reason)
{
	struct wire_block block = raw_block(FAKE_MAX_PROMPT - 100, 4);

	block.bytes = 900000; /* more than its tokens need: the rest is not looked at */
	refused_behind(4, &block, reason);
}

static void tenant_blocks_config(void)
{
	served.front_config.shares.queue_per_tenant = 64;
	served.server_config.tenant_uids = (struct config_uids){1, {getuid()}};
	served.server_config.arena_bytes = 5 << 20;
}

static void full_tenant_blocks(uint32_t reason)
{
	struct wire_block block = raw_block(FAKE_MAX_PROMPT - 100, 4);

	block.bytes = 900000;
	block.tenant = 7;
	refused_behind(4, &block, reason);
}

static void shutdown_refusal(uint32_t reason)
{
	struct wire_submission slot;

	store_relaxed_u32(&served.engine.paused, 1);
	raw_open(&client, served.path);
	slot = raw_slot(&client, WIRE_OP_GENERATE, 0);
	raw_submit(&client, &slot);
	wait_for_count(&front_counts(served.front)->in_flight, 1);
	front_drain(served.front, clock_now() + 5000000000);
	pause_ms(20);
	slot = raw_slot(&client, WIRE_OP_GENERATE, 1);
	raw_submit(&client, &slot);
	assert_int_equal(raw_completion(&client).aux, reason);
	raw_close(&client);
}

static void failed_model(uint32_t reason)
{
	test_daemon_ready(&served, WIRE_MODEL_FAILED);
	slot_any(reason);
}

static void failing_engine(uint32_t reason)
{
	store_relaxed_u32(&served.engine.fails, WIRE_REASON_NUMERIC);
	slot_any(reason);
}

static void impatient_config(void)
{
	served.front_config.client_stall_ns = 10000000;
}

/* 128 slots of a completion ring, 8 tokens each at most, and nobody collects them. */
static void stalled_client(uint32_t reason)
{
	struct wire_submission slot;

	raw_open(&client, served.path);
	slot = raw_slot(&client, WIRE_OP_GENERATE, 0);
	slot.max_new = 20000;
	raw_submit(&client, &slot);
	wait_for_count(&front_counts(served.front)->failed_for[reason], 1);
	raw_close(&client);
}

static void cancelled(uint32_t reason)
{
	struct wire_submission slot, cancel = {.op = WIRE_OP_CANCEL};

	store_relaxed_u32(&served.engine.paused, 1);
	raw_open(&client, served.path);
	slot = raw_slot(&client, WIRE_OP_GENERATE, 0);
	cancel.tok[0] = (uint32_t)slot.id;
	raw_submit(&client, &slot);
	raw_submit(&client, &cancel);
	assert_int_equal(raw_completion(&client).aux, reason);
	raw_close(&client);
}

/* ---- channels ---- */

static void ended_by(uint64_t id, unsigned times, uint32_t reason)
{
	store_relaxed_u32(&served.engine.paused, 1);
	raw_open(&client, served.path);
	for (unsigned i = 0; i < times; i++) {
		struct wire_submission slot = raw_slot(&client, WIRE_OP_GENERATE, 0);

		slot.id = id + ((uint64_t)i << 16);
		raw_submit(&client, &slot);
	}
	assert_int_equal(raw_end_reason(&client), reason);
	raw_close(&client);
}

static void id_in_use(uint32_t reason)
{
	ended_by(1 << 16, 2, reason);
}

static void id_index(uint32_t reason)
{
	ended_by(1 << 16 | 32, 1, reason);
}

static void id_order(uint32_t reason)
{
	ended_by(0, 1, reason);
}

static void bad_consumed(uint32_t reason)
{
	raw_open(&client, served.path);
	store_release_u64(&segment_header(&client.segment)->cq_consumed, 1 << 20);
	for (unsigned i = 0; i < 400; i++) {
		struct wire_submission slot = raw_slot(&client, WIRE_OP_ECHO, 0);

		while (ring_room(&client.submissions) == 0 &&
		       load_relaxed_u32(&segment_header(&client.segment)->state) == WIRE_STATE_LIVE)
			ring_writer_refresh(&client.submissions);
		if (ring_room(&client.submissions) == 0)
			break;
		raw_submit(&client, &slot);
	}
	assert_int_equal(raw_end_reason(&client), reason);
	raw_close(&client);
}

static void bad_control(uint32_t reason)
{
	raw_open(&client, served.path);
	assert_int_equal(send(client.fd, "xx", 2, MSG_NOSIGNAL), 2);
	assert_int_equal(raw_end_reason(&client), reason);
	raw_close(&client);
}

static void vanish(uint32_t reason)
{
	raw_open(&client, served.path);
	raw_close(&client);
	wait_for_count(&front_counts(served.front)->ended_for[reason], 1);
}

/* ---- connections ---- */

static void turned_away(uint32_t reason)
{
	client = (struct raw_client){.fd = raw_connect(served.path), .segment.fd = -1};
	assert_int_equal(raw_end_reason(&client), reason);
	raw_close(&client);
}

static void slow_config(void)
{
	served.server_config.map_timeout_ms = 20;
}

static void late_map(uint32_t reason)
{
	raw_open_half(&client, served.path);
	assert_int_equal(raw_end_reason(&client), reason);
	raw_close(&client);
}

static void small_config(void)
{
	served.server_config.max_clients = 1;
	served.server_config.max_half_open_per_uid = 1;
	served.server_config.memory_per_uid_bytes = 1;
}

static void second_channel(uint32_t reason)
{
	struct raw_client first;

	raw_open(&first, served.path);
	turned_away(reason);
	raw_close(&first);
}

static void half_config(void)
{
	served.server_config.max_half_open_per_uid = 1;
}

static void second_half_open(uint32_t reason)
{
	struct raw_client first;

	raw_open_half(&first, served.path);
	turned_away(reason);
	raw_close(&first);
}

static void memory_config(void)
{
	served.server_config.memory_per_uid_bytes = 1;
}

static void bad_seals(uint32_t reason)
{
	struct raw_message message;
	int memory = -1;

	client = (struct raw_client){.fd = raw_connect(served.path), .segment.fd = -1};
	assert_int_equal(raw_receive(client.fd, &message, &memory), WIRE_CONTROL_OFFER);
	assert_int_equal(fcntl(memory, F_ADD_SEALS, F_SEAL_SEAL), 0);
	raw_send(client.fd, WIRE_CONTROL_MAPPED, 0, NULL, 0);
	assert_int_equal(raw_end_reason(&client), reason);
	close(memory);
	raw_close(&client);
}

/* No file may grow past a page, the channel's memory neither. */
static void no_memory(uint32_t reason)
{
	struct rlimit before, small;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	small = (struct rlimit){4096, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	client = (struct raw_client){.fd = raw_connect(served.path), .segment.fd = -1};
	assert_int_equal(raw_end_reason(&client), reason);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	raw_close(&client);
}

/* The client takes the last one. */
static void no_descriptors(uint32_t reason)
{
	struct rlimit before, small;
	int last = dup(STDIN_FILENO);

	close(last);
	getrlimit(RLIMIT_NOFILE, &before);
	small = (struct rlimit){(rlim_t)last + 1, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
	client = (struct raw_client){.fd = raw_connect(served.path), .segment.fd = -1};
	assert_int_equal(raw_end_reason(&client), reason);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	raw_close(&client);
}

static void denied_user(uint32_t reason)
{
	need_two_users();
	let_strangers_in();
	assert_int_equal(as_stranger(stranger_connect, NULL), reason);
}

/* ---- the table ---- */

struct provoker {
	void (*provoke)(uint32_t reason);
	void (*configure)(void); /* NULL: as it is */
	const char *elsewhere;   /* who uses the reason, if no client can provoke it here */
};

static const struct provoker provokers[WIRE_REASON_LIMIT] = {
    [WIRE_REASON_NONE] = {.elsewhere = "no reason"},
    [WIRE_REASON_BAD_OP] = {.provoke = slot_op},
    [WIRE_REASON_BAD_FLAG] = {.provoke = slot_flag},
    [WIRE_REASON_BAD_PADDING] = {.provoke = slot_padding},
    [WIRE_REASON_BAD_PROFILE] = {.provoke = slot_profile},
    [WIRE_REASON_BAD_MODEL] = {.provoke = slot_model},
    [WIRE_REASON_BAD_TOKEN] = {.provoke = slot_token},
    [WIRE_REASON_BAD_MAX_NEW] = {.provoke = block_max_new},
    [WIRE_REASON_BAD_PARAMETER] = {.provoke = block_parameter},
    [WIRE_REASON_BAD_TLV] = {.provoke = block_option},
    [WIRE_REASON_BAD_BLOCK] = {.provoke = slot_outside},
    [WIRE_REASON_BAD_REPLY] = {.provoke = block_reply},
    [WIRE_REASON_NO_TOKENS] = {.provoke = slot_no_tokens},
    [WIRE_REASON_PROMPT_TOO_LONG] = {.provoke = block_long_prompt},
    [WIRE_REASON_CONTEXT] = {.provoke = block_context_too_long},
    [WIRE_REASON_KV_NEVER_FITS] = {.provoke = slot_kv},
    [WIRE_REASON_QUEUE_FULL] = {.provoke = full_queue, .configure = queue_config},
    [WIRE_REASON_DEADLINE] = {.provoke = slot_deadline},
    [WIRE_REASON_NOT_SUPPORTED] = {.provoke = slot_fork},
    [WIRE_REASON_TENANT] = {.provoke = block_tenant},
    [WIRE_REASON_SHUTDOWN] = {.provoke = shutdown_refusal},
    [WIRE_REASON_MODEL_FAILED] = {.provoke = failed_model},
    [WIRE_REASON_NUMERIC] = {.provoke = failing_engine},
    [WIRE_REASON_CLIENT_STALL] = {.provoke = stalled_client, .configure = impatient_config},
    [WIRE_REASON_CANCELLED] = {.provoke = cancelled},
    [WIRE_REASON_USER_QUEUE] = {.provoke = full_share, .configure = user_config},
    [WIRE_REASON_TENANT_QUEUE] = {.provoke = full_tenant, .configure = tenant_config},
    [WIRE_REASON_USER_BLOCKS] = {.provoke = full_blocks, .configure = blocks_config},
    [WIRE_REASON_TENANT_BLOCKS] = {.provoke = full_tenant_blocks, .configure = tenant_blocks_config},
    [WIRE_REASON_ID_IN_USE] = {.provoke = id_in_use},
    [WIRE_REASON_ID_INDEX] = {.provoke = id_index},
    [WIRE_REASON_ID_ORDER] = {.provoke = id_order},
    [WIRE_REASON_BAD_CONSUMED] = {.provoke = bad_consumed},
    [WIRE_REASON_BAD_CONTROL] = {.provoke = bad_control},
    [WIRE_REASON_MAP_TIMEOUT] = {.provoke = late_map, .configure = slow_config},
    [WIRE_REASON_TOO_MANY_CHANNELS] = {.provoke = second_channel, .configure = small_config},
    [WIRE_REASON_TOO_MANY_HALF_OPEN] = {.provoke = second_half_open, .configure = half_config},
    [WIRE_REASON_BAD_SEALS] = {.provoke = bad_seals},
    [WIRE_REASON_UNMAPPED_UID] = {.elsewhere = "a daemon in a user namespace: test_hostile"},
    [WIRE_REASON_NO_MEMORY] = {.provoke = no_memory},
    [WIRE_REASON_PEER_GONE] = {.provoke = vanish},
    [WIRE_REASON_MEMORY_LIMIT] = {.provoke = second_channel, .configure = memory_config},
    [WIRE_REASON_BAD_COMPLETION] = {.elsewhere = "the client's library: test_client_death"},
    [WIRE_REASON_USER_DENIED] = {.provoke = denied_user},
    [WIRE_REASON_NO_DESCRIPTORS] = {.provoke = no_descriptors},
};

static uint64_t counted(uint32_t reason)
{
	const struct front_counts *counts = front_counts(served.front);

	return load_relaxed_u64(&counts->refused_for[reason]) +
	       load_relaxed_u64(&counts->failed_for[reason]) + load_relaxed_u64(&counts->ended_for[reason]) +
	       load_relaxed_u64(&server_refused_for(served.server)[reason]);
}

static void test_reason(void **state)
{
	uint32_t reason = (uint32_t)(uintptr_t)*state;
	const struct provoker *provoker = &provokers[reason];

	if (!provoker->provoke) {
		if (!provoker->elsewhere)
			fail_msg("nobody provokes reason %u: %s", reason, tr_strreason(reason));
		return;
	}
	test_daemon_init(&served);
	if (provoker->configure)
		provoker->configure();
	test_daemon_start(&served, provoker->provoke == failed_model);
	provoker->provoke(reason);
	assert_int_equal(counted(reason), 1);
	test_daemon_stop(&served, 0);
	assert_int_equal(count_mappings(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define X(number, name, error, sentence) {#name, test_reason, NULL, NULL, (void *)(uintptr_t)(number)},
	    WIRE_REASONS(X)
#undef X
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
