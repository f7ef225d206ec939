/* Clients that keep no rules: each loses its own channel, with the reason, and nobody else notices. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/control/listener.h"
#include "tests/harness/witness.h"
#include "tests/harness/scratch.h"

/* ---- ids and indices ---- */

static void test_ids(void **state)
{
	static const uint64_t bad_ids[][2] = {
	    {1ULL << 16 | 32, WIRE_REASON_ID_INDEX},
	    {1ULL << 16 | 65535, WIRE_REASON_ID_INDEX},
	    {UINT64_MAX, WIRE_REASON_ID_INDEX},
	    {0, WIRE_REASON_ID_ORDER},
	    {5, WIRE_REASON_ID_ORDER},
	};
	struct raw_client client;
	struct wire_submission slot;

	(void)state;
	test_daemon_init(&served);
	start();
	for (size_t i = 0; i < sizeof bad_ids / sizeof bad_ids[0]; i++) {
		raw_open(&client, served.path);
		slot = raw_slot(&client, WIRE_OP_ECHO, 0);
		slot.id = bad_ids[i][0];
		raw_submit(&client, &slot);
		assert_ended(&client, (uint32_t)bad_ids[i][1]);
	}
	/* The same and a lower order, after one that was good. */
	for (uint64_t order = 6; order <= 7; order++) {
		raw_open(&client, served.path);
		slot = raw_slot(&client, WIRE_OP_ECHO, 0);
		slot.id = 7ULL << 16;
		raw_submit(&client, &slot);
		assert_int_equal(raw_completion(&client).kind, WIRE_KIND_ECHO);
		slot.id = order << 16 | 1;
		raw_submit(&client, &slot);
		assert_ended(&client, WIRE_REASON_ID_ORDER);
	}
	store_relaxed_u32(&served.engine.paused, 1);
	raw_open(&client, served.path);
	slot = raw_slot(&client, WIRE_OP_GENERATE, 3);
	raw_submit(&client, &slot);
	slot = raw_slot(&client, WIRE_OP_ECHO, 3);
	raw_submit(&client, &slot);
	assert_ended(&client, WIRE_REASON_ID_IN_USE);
	stop();
}

static void test_slots(void **state)
{
	struct raw_client client;
	struct wire_completion answer;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
#define REFUSED(change, expected)                                                     \
	do {                                                                          \
		struct wire_submission slot = raw_slot(&client, WIRE_OP_GENERATE, 1); \
		change;                                                               \
		raw_submit(&client, &slot);                                           \
		answer = raw_completion(&client);                                     \
		assert_int_equal(answer.kind, WIRE_KIND_REFUSED);                     \
		assert_int_equal(answer.id, slot.id);                                 \
		assert_int_equal(answer.aux, WIRE_REASON_##expected);                 \
	} while (0)
	REFUSED(slot.op = 0, BAD_OP);
	REFUSED(slot.op = 99, BAD_OP);
	REFUSED(slot.op = WIRE_OP_CANCEL, BAD_OP);
	REFUSED(slot.flags = 16, BAD_FLAG);
	REFUSED(slot.tok[3] = 1, BAD_PADDING);
	REFUSED(slot.n_tok = 200, BAD_PADDING);
	REFUSED((slot.block = 1, slot.n_tok = 0, slot.tok[0] = 0), BAD_BLOCK);
	REFUSED((slot.block = UINT32_MAX, slot.n_tok = 0, slot.tok[0] = 0), BAD_BLOCK);
	REFUSED((slot.block = (uint32_t)(client.layout.bytes / 64), slot.n_tok = 0, slot.tok[0] = 0),
		BAD_BLOCK);
	REFUSED((slot.block = (uint32_t)(client.layout.bytes / 64 - 1), slot.n_tok = 0, slot.tok[0] = 0),
		BAD_BLOCK);
#undef REFUSED
	assert_int_equal(load_relaxed_u32(&segment_header(&client.segment)->state), WIRE_STATE_LIVE);
	raw_close(&client);
	stop();
}

/* The daemon looks at cq_consumed when its ring seems full. */
static void test_consumed(void **state)
{
	static const uint64_t bad[] = {1000, UINT64_MAX, 1ULL << 63};
	struct raw_client client;

	(void)state;
	test_daemon_init(&served);
	served.server_config.sq_slots = 64;
	served.server_config.cq_slots = 16;
	served.server_config.max_inflight = 8;
	start();
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		raw_open(&client, served.path);
		for (int n = 0; n < 40; n++) {
			struct wire_submission slot = raw_slot(&client, WIRE_OP_ECHO, 0);

			raw_submit(&client, &slot);
		}
		pause_ms(5);
		store_release_u64(&segment_header(&client.segment)->cq_consumed, bad[i]);
		assert_ended(&client, WIRE_REASON_BAD_CONSUMED);
	}
	stop();
}

/* Cancels that name anything. */
static void test_cancels(void **state)
{
	struct raw_client client;
	struct wire_submission slot;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	srand(5);
	for (int i = 0; i < 2000; i++) {
		slot = (struct wire_submission){.op = WIRE_OP_CANCEL,
						.tok = {(uint32_t)rand() * 65536u + 3u, (uint32_t)rand()}};
		while (ring_room(&client.submissions) == 0)
			ring_writer_refresh(&client.submissions);
		raw_submit(&client, &slot);
	}
	slot = raw_slot(&client, WIRE_OP_ECHO, 0);
	while (ring_room(&client.submissions) == 0)
		ring_writer_refresh(&client.submissions);
	raw_submit(&client, &slot);
	assert_int_equal(raw_completion(&client).kind, WIRE_KIND_ECHO);
	raw_close(&client);
	stop();
}

/* ---- control messages ---- */

static void bad_control(const void *bytes, size_t n)
{
	struct raw_client client;

	raw_open(&client, served.path);
	assert_int_equal(send(client.fd, bytes, n, MSG_NOSIGNAL), n);
	assert_ended(&client, WIRE_REASON_BAD_CONTROL);
}

static void test_malformed_control(void **state)
{
	static unsigned char big[8192];
	const struct wire_control heads[] = {
	    {.type = 0},
	    {.type = WIRE_CONTROL_TOPOLOGY + 1},
	    {.type = 65535},
	    {.type = WIRE_CONTROL_OFFER},
	    {.type = WIRE_CONTROL_MAPPED},
	    {.type = WIRE_CONTROL_LIVE},
	    {.type = WIRE_CONTROL_END},
	    {.type = WIRE_CONTROL_STATUS, .bytes = 1},
	    {.type = WIRE_CONTROL_TOPOLOGY, .bytes = 1},
	    {.type = WIRE_CONTROL_STATUS, .bytes = UINT32_MAX},
	    {.type = WIRE_CONTROL_STATUS, .status = -1},
	    {.type = WIRE_CONTROL_STATUS, .flags = WIRE_CONTROL_REPLY},
	    {.type = WIRE_CONTROL_STATUS, .flags = 4},
	    {.type = WIRE_CONTROL_STATUS, .flags = WIRE_CONTROL_MORE},
	    {.type = WIRE_CONTROL_MODEL},
	    {.type = WIRE_CONTROL_PROFILE},
	    {.type = WIRE_CONTROL_TOKENIZE},
	    {.type = WIRE_CONTROL_DETOKENIZE},
	};

	(void)state;
	test_daemon_init(&served);
	start();
	for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
		bad_control(&heads[i], sizeof heads[i]);
	bad_control(big, 2);
	bad_control(big, 15);
	bad_control(big, 4096);
	bad_control(big, 4097);
	bad_control(big, sizeof big);
	stop();
}

static void send_text_part(const struct raw_client *client, uint16_t flags, uint32_t serial, uint32_t bytes)
{
	struct raw_message message = {
	    .head = {.type = WIRE_CONTROL_TOKENIZE, .flags = flags, .serial = serial, .bytes = bytes}};
	ssize_t sent;

	do
		sent = send(client->fd, &message, sizeof message.head + bytes, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
}

static void test_malformed_parts(void **state)
{
	struct raw_client client;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	send_text_part(&client, WIRE_CONTROL_MORE, 1, 100);
	send_text_part(&client, 0, 2, 100);
	assert_ended(&client, WIRE_REASON_BAD_CONTROL);
	raw_open(&client, served.path);
	send_text_part(&client, WIRE_CONTROL_MORE, 1, 100);
	raw_send(client.fd, WIRE_CONTROL_STATUS, 0, NULL, 0);
	assert_ended(&client, WIRE_REASON_BAD_CONTROL);
	raw_open(&client, served.path);
	for (int i = 0; i < 258; i++)
		send_text_part(&client, WIRE_CONTROL_MORE, 1, 4080);
	assert_ended(&client, WIRE_REASON_BAD_CONTROL);
	stop();
}

/* A client that asks much and reads nothing costs one reply's memory, and nobody waits for it. */
static void test_unread_replies(void **state)
{
	struct raw_client client;
	int flags = 0;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	flags = fcntl(client.fd, F_GETFL);
	fcntl(client.fd, F_SETFL, flags | O_NONBLOCK);
	for (int i = 0; i < 2000; i++)
		send_text_part(&client, 0, (uint32_t)i, 4080);
	assert_true(witness_echo() < 1000000000);
	raw_close(&client);
	stop();
}

/* A message of no bytes is a hang-up; half a connection is none. */
static void test_hang_up(void **state)
{
	struct raw_client client;
	char none;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	assert_int_equal(send(client.fd, &none, 0, MSG_NOSIGNAL), 0);
	wait_for_count(&front_counts(served.front)->channels, 1);
	raw_close(&client);
	raw_open(&client, served.path);
	shutdown(client.fd, SHUT_WR);
	wait_for_count(&front_counts(served.front)->channels, 1);
	raw_close(&client);
	stop();
}

/* ---- the log ---- */

static void count_notice(void *context, const char *sentence)
{
	shared_u64 *notices = context;

	add_relaxed_u64(&notices[strstr(sentence, "left out") ? 1 : 0], 1);
}

static void offend(void)
{
	struct raw_client client;

	raw_open(&client, served.path);
	raw_send(client.fd, WIRE_CONTROL_LIVE, 0, NULL, 0);
	assert_int_equal(raw_end_reason(&client), WIRE_REASON_BAD_CONTROL);
	raw_close(&client);
}

/* Whoever may connect must not be able to fill the disk with lines about himself. */
static void test_notices(void **state)
{
	shared_u64 notices[2] = {0};

	(void)state;
	test_daemon_init(&served);
	served.server_config.notice = count_notice;
	served.server_config.notice_context = notices;
	start();
	for (int i = 0; i < 100; i++)
		offend();
	assert_in_range(load_relaxed_u64(&notices[0]), 20, 80);
	usleep(1100000);
	offend();
	assert_true(load_relaxed_u64(&notices[1]) > 0);
	stop();
}

/* ---- the handshake ---- */

static void test_half_open(void **state)
{
	struct raw_client clients[5];
	struct raw_message message;
	unsigned descriptors;

	(void)state;
	test_daemon_init(&served);
	served.server_config.max_half_open_per_uid = 4;
	served.server_config.map_timeout_ms = 150;
	start();
	descriptors = count_descriptors();
	for (int i = 0; i < 4; i++)
		raw_open_half(&clients[i], served.path);
	clients[4] = (struct raw_client){.fd = raw_connect(served.path), .segment.fd = -1};
	assert_int_equal(raw_end_reason(&clients[4]), WIRE_REASON_TOO_MANY_HALF_OPEN);
	for (int i = 0; i < 4; i++)
		assert_int_equal(raw_end_reason(&clients[i]), WIRE_REASON_MAP_TIMEOUT);
	for (int i = 0; i < 5; i++)
		raw_close(&clients[i]);
	/* Something else instead of MAPPED. */
	raw_open_half(&clients[0], served.path);
	raw_send(clients[0].fd, WIRE_CONTROL_STATUS, 0, NULL, 0);
	assert_int_equal(raw_end_reason(&clients[0]), WIRE_REASON_BAD_CONTROL);
	raw_close(&clients[0]);
	/* Gone before MAPPED. */
	raw_open_half(&clients[0], served.path);
	raw_close(&clients[0]);
	raw_open(&clients[0], served.path);
	raw_close(&clients[0]);
	wait_for_count(&front_counts(served.front)->channels, 1);
	pause_ms(50);
	/* The pidfds of closed channels remain while this process lives; each stands for memory it may hold.
	 */
	assert_in_range(count_descriptors(), descriptors, descriptors + 7);
	(void)message;
	stop();
}

/* More clients at once than may be set up at once: the library waits for its turn, as long as it may. */
static void test_crowd(void **state)
{
	struct raw_client clients[2];
	struct tr_open_options options = {.size = sizeof options, .timeout_ms = 150};
	struct tr_client *client = NULL;

	(void)state;
	test_daemon_init(&served);
	served.server_config.max_half_open_per_uid = 2;
	served.server_config.map_timeout_ms = 300;
	start();
	for (int i = 0; i < 2; i++)
		raw_open_half(&clients[i], served.path);
	assert_int_equal(tr_open(&client, served.path, &options), -EUSERS);
	assert_null(client);
	options.timeout_ms = 5000;
	assert_int_equal(tr_open(&client, served.path, &options), 0);
	tr_close(client);
	for (int i = 0; i < 2; i++)
		raw_close(&clients[i]);
	stop();
}

static void test_seals(void **state)
{
	struct raw_client client = {0};
	struct raw_message message;
	struct wire_offer offer;
	int memory = -1;

	(void)state;
	test_daemon_init(&served);
	start();
	for (int seal = 0; seal < 2; seal++) {
		client.fd = raw_connect(served.path);
		assert_int_equal(raw_receive(client.fd, &message, &memory), WIRE_CONTROL_OFFER);
		memcpy(&offer, message.payload, sizeof offer);
		if (seal == 0) {
			/* The client closes the list of seals before the daemon has sealed. */
			assert_int_equal(fcntl(memory, F_ADD_SEALS, F_SEAL_SEAL), 0);
			raw_send(client.fd, WIRE_CONTROL_MAPPED, 0, NULL, 0);
			assert_int_equal(raw_end_reason(&client), WIRE_REASON_BAD_SEALS);
		} else {
			void *at = mmap(NULL, offer.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);

			assert_true(at != MAP_FAILED);
			raw_send(client.fd, WIRE_CONTROL_MAPPED, 0, NULL, 0);
			assert_int_equal(raw_receive(client.fd, &message, NULL), WIRE_CONTROL_LIVE);
			assert_true(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) <
				    0);
			assert_int_equal(errno, EPERM);
			assert_true(madvise(at, 4096, MADV_REMOVE) < 0);
			assert_true(ftruncate(memory, 0) < 0);
			assert_true(write(memory, "x", 1) < 0);
			assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) ==
				    MAP_FAILED);
			munmap(at, offer.bytes);
		}
		close(memory);
		close(client.fd);
		witness_echo();
	}
	stop();
}

static void test_limits(void **state)
{
	struct raw_client clients[3], refused = {.segment.fd = -1};

	(void)state;
	test_daemon_init(&served);
	served.server_config.max_clients_per_uid = 3;
	start();
	for (int i = 0; i < 2; i++)
		raw_open(&clients[i], served.path);
	refused.fd = raw_connect(served.path);
	assert_int_equal(raw_end_reason(&refused), WIRE_REASON_TOO_MANY_CHANNELS);
	raw_close(&refused);
	raw_close(&clients[0]);
	wait_for_count(&front_counts(served.front)->channels, 2);
	pause_ms(20);
	raw_open(&clients[0], served.path);
	for (int i = 0; i < 2; i++)
		raw_close(&clients[i]);
	stop();
}

/* ---- a user that the daemon's user namespace does not know ---- */

enum { STRANGER = 4321 };

/* The daemon, in a namespace that knows root alone; until the pipe is closed. */
static void serve_in_namespace(int tell, int hold)
{
	int map;
	char byte;

	if (unshare(CLONE_NEWUSER) < 0 || (map = open("/proc/self/uid_map", O_WRONLY)) < 0 ||
	    write(map, "0 0 1", 5) != 5)
		_exit(77);
	close(map);
	test_daemon_init(&served);
	served.server_config.mode = 0666;
	test_daemon_start(&served, false);
	chmod(served.folder, 0711);
	if (write(tell, served.path, sizeof served.path) < 0 || read(hold, &byte, 1) < 0)
		_exit(1);
	test_daemon_stop(&served, 0);
	_exit(0);
}

/* What it is told, as an exit status. */
static void connect_as_stranger(const char *path)
{
	struct raw_client client = {.segment.fd = -1};

	if (setuid(STRANGER) < 0)
		_exit(0);
	client.fd = raw_connect(path);
	_exit(client.fd < 0 ? 1 : (int)raw_end_reason(&client));
}

static void test_unmapped_user(void **state)
{
	char path[sizeof served.path];
	int tell[2], hold[2], status;
	pid_t daemon, client;

	(void)state;
	if (getuid() != 0) {
		print_message("needs root to be two users\n");
		skip();
	}
	assert_int_equal(pipe(tell), 0);
	assert_int_equal(pipe(hold), 0);
	daemon = fork();
	if (daemon == 0) {
		close(hold[1]);
		serve_in_namespace(tell[1], hold[0]);
	}
	close(tell[1]);
	close(hold[0]);
	if (read(tell[0], path, sizeof path) != sizeof path) {
		waitpid(daemon, &status, 0);
		print_message("needs user namespaces\n");
		skip();
	}
	client = fork();
	if (client == 0)
		connect_as_stranger(path);
	waitpid(client, &status, 0);
	assert_int_equal(WEXITSTATUS(status), WIRE_REASON_UNMAPPED_UID);
	close(hold[1]);
	close(tell[0]);
	waitpid(daemon, &status, 0);
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- the listening socket ---- */

static void test_second_daemon(void **state)
{
	struct server *second = NULL;
	char why[256] = "";

	(void)state;
	test_daemon_init(&served);
	start();
	assert_int_equal(server_create(&second, &served.server_config, served.front, why, sizeof why),
			 -EADDRINUSE);
	assert_null(second);
	assert_non_null(strstr(why, served.path));
	/* That it tried has not disturbed the first: its control thread is still told of closed channels. */
	stop();
}

static void test_stale_socket(void **state)
{
	struct listener listener;
	char path[80], socket_path[96], why[256];
	int status;
	pid_t child;

	(void)state;
	assert_non_null(mkdtemp(scratch_path(path, sizeof path, "tokenring-test")));
	snprintf(socket_path, sizeof socket_path, "%s/new/socket", path);
	child = fork();
	if (child == 0) {
		listener_open(&listener, socket_path, 0600, false, why, sizeof why);
		_exit(0); /* dies without cleaning up */
	}
	waitpid(child, &status, 0);
	assert_int_equal(raw_connect(socket_path), -ECONNREFUSED);
	assert_int_equal(listener_open(&listener, socket_path, 0640, false, why, sizeof why), 0);
	assert_true(raw_connect(socket_path) >= 0);
	listener_close(&listener);
	assert_int_equal(raw_connect(socket_path), -ENOENT);
	/* A file that is no socket is left alone. */
	close(open(socket_path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(listener_open(&listener, socket_path, 0600, false, why, sizeof why), -ENOTSOCK);
	assert_int_equal(unlink(socket_path), 0);
	memset(socket_path + strlen(path), 'x', sizeof socket_path - strlen(path) - 1);
	snprintf(socket_path, sizeof socket_path, "%s/new", path);
	assert_int_equal(rmdir(socket_path), 0);
	assert_int_equal(rmdir(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_ids),
	    cmocka_unit_test(test_slots),
	    cmocka_unit_test(test_consumed),
	    cmocka_unit_test(test_cancels),
	    cmocka_unit_test(test_malformed_control),
	    cmocka_unit_test(test_malformed_parts),
	    cmocka_unit_test(test_unread_replies),
	    cmocka_unit_test(test_hang_up),
	    cmocka_unit_test(test_half_open),
	    cmocka_unit_test(test_crowd),
	    cmocka_unit_test(test_notices),
	    cmocka_unit_test(test_seals),
	    cmocka_unit_test(test_limits),
	    cmocka_unit_test(test_unmapped_user),
	    cmocka_unit_test(test_second_daemon),
	    cmocka_unit_test(test_stale_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
