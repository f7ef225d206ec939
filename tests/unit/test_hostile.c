/* Clients that keep no rules: each loses its own channel, with the reason, and nobody else notices. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/include/tokenring/tokenring.h"
#include "daemon/control/listener.h"
#include "tests/harness/daemon.h"
#include "tests/harness/raw_client.h"

static struct test_daemon served;
static struct tr_client *witness; /* an honest client beside every hostile one */

static uint64_t clock_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void start(void)
{
	test_daemon_start(&served, false);
	assert_int_equal(tr_open(&witness, served.path, NULL), 0);
}

/* Returns how long an echo took. */
static uint64_t witness_echo(void)
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
static void stop(void)
{
	witness_echo();
	wait_for_count(&front_counts(served.front)->channels, 1);
	wait_for_count(&front_counts(served.front)->in_flight, 0);
	tr_close(witness);
	test_daemon_stop(&served, 0);
	assert_int_equal(count_mappings(), 0);
}

static void assert_ended(struct raw_client *client, uint32_t reason)
{
	assert_int_equal(raw_end_reason(client), reason);
	assert_int_equal(load_acquire_u32(&segment_header(&client->segment)->state), WIRE_STATE_ENDED);
	assert_int_equal(load_relaxed_u32(&segment_header(&client->segment)->reason), reason);
	raw_close(client);
	witness_echo();
}

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
	    {.type = 10},
	    {.type = 65535},
	    {.type = WIRE_CONTROL_OFFER},
	    {.type = WIRE_CONTROL_MAPPED},
	    {.type = WIRE_CONTROL_LIVE},
	    {.type = WIRE_CONTROL_END},
	    {.type = WIRE_CONTROL_STATUS, .bytes = 1},
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

/* ---- the attacks that docs/channel.md names ---- */

/* A TCP socket whose close waits: data that the peer does not take, and SO_LINGER. */
static int lingering_socket(int *ret_peer)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger linger = {.l_onoff = 1, .l_linger = 3};
	socklen_t bytes = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, small = 4096;
	static char data[1 << 16];

	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(listener, 1), 0);
	getsockname(listener, (struct sockaddr *)&address, &bytes);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	*ret_peer = accept(listener, NULL, NULL);
	close(listener);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (write(fd, data, sizeof data) > 0)
		;
	fcntl(fd, F_SETFL, 0);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	return fd;
}

static ssize_t pass_descriptor(int fd, int passed, const void *bytes, size_t n)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {
	    .head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct iovec part = {(void *)bytes, n};
	struct msghdr message = {
	    .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};

	memcpy(CMSG_DATA(&control.head), &passed, sizeof passed);
	return sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void test_attack_descriptor_refused(void **state)
{
	struct raw_client client;
	int passed, peer;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	passed = lingering_socket(&peer);
	if (!served.server || pass_descriptor(client.fd, passed, "", 1) >= 0) {
		print_message("this kernel (before 6.16) does not know SO_PASSRIGHTS\n");
		raw_close(&client);
	} else {
		assert_int_equal(errno, EPERM);
		raw_close(&client);
	}
	close(peer);
	close(passed);
	stop();
}

/* As on an older kernel: in the handshake, to a live channel, and left in the queue of one that closes. */
static void test_attack_descriptor(void **state)
{
	struct wire_control mapped = {.type = WIRE_CONTROL_MAPPED};
	uint64_t slowest = 0;

	(void)state;
	test_daemon_init(&served);
	served.server_config.allow_descriptors = true;
	start();
	for (int round = 0; round < 4; round++) {
		struct raw_client client;
		int peer, passed = lingering_socket(&peer);

		if (round == 0)
			raw_open_half(&client, served.path);
		else
			raw_open(&client, served.path);
		if (round == 0)
			assert_true(pass_descriptor(client.fd, passed, &mapped, sizeof mapped) > 0);
		else
			assert_true(pass_descriptor(client.fd, passed, "", 1) > 0);
		/* Ours goes first: the copy in the queue is then the last, and its close the one that waits.
		 */
		shutdown(passed, SHUT_RD);
		if (round == 3)
			raw_close(&client);
		close(passed);
		for (int i = 0; i < 100; i++) {
			uint64_t took = witness_echo();

			slowest = took > slowest ? took : slowest;
			pause_ms(1);
		}
		if (round != 3) {
			assert_int_equal(raw_end_reason(&client), WIRE_REASON_BAD_CONTROL);
			raw_close(&client);
		}
		/* A new client is served at once too: the control thread does not wait either. */
		raw_open(&client, served.path);
		raw_close(&client);
		close(peer);
	}
	assert_true(slowest < 1000000000);
	stop();
}

/* Thousands of epoll entries on the client's own socket make each wake walk them all. */
static void test_attack_epoll(void **state)
{
	enum { EPOLLS = 24, ENTRIES = 800 };
	struct raw_client client;
	struct epoll_event event = {.events = EPOLLIN};
	int epolls[EPOLLS];
	uint32_t value = 1;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	for (int i = 0; i < EPOLLS; i++) {
		epolls[i] = epoll_create1(EPOLL_CLOEXEC);
		for (int j = 0; j < ENTRIES; j++) {
			/* The entry outlives its number, because the file is open under another. */
			int copy = fcntl(client.fd, F_DUPFD_CLOEXEC, 100 + j);

			epoll_ctl(epolls[i], EPOLL_CTL_ADD, copy, &event);
			close(copy);
		}
	}
	for (int i = 0; i < 60; i++, value += 2) {
		struct wire_submission slot = raw_slot(&client, WIRE_OP_ECHO, 0);
		char buffer[16];

		store_release_u32(&segment_header(&client.segment)->client_sleep, value);
		raw_submit(&client, &slot);
		assert_int_equal(raw_completion(&client).kind, WIRE_KIND_ECHO);
		while (recv(client.fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0)
			;
		assert_true(witness_echo() < 1000000000);
	}
	assert_true(load_relaxed_u64(&front_counts(served.front)->slow_wakes) >= 50);
	for (int i = 0; i < EPOLLS; i++)
		close(epolls[i]);
	raw_close(&client);
	stop();
}

/* A child's channels, opened and closed again and again, keep their memory until the child is gone. */
static int hoard(void)
{
	unsigned opened = 0;

	for (; opened < 200; opened++) {
		struct raw_client client = {.segment.fd = -1};
		struct raw_message message;
		int memory = -1;

		client.fd = raw_connect(served.path);
		if (raw_receive(client.fd, &message, &memory) != WIRE_CONTROL_OFFER)
			break;
		raw_send(client.fd, WIRE_CONTROL_MAPPED, 0, NULL, 0);
		if (raw_receive(client.fd, &message, NULL) != WIRE_CONTROL_LIVE)
			break;
		close(client.fd); /* keeps the descriptor: the memory stays */
	}
	return (int)opened;
}

static void test_attack_memory(void **state)
{
	struct raw_client client;
	int status = 0, opened = 0;

	(void)state;
	test_daemon_init(&served);
	served.server_config.memory_per_uid_bytes = 10 << 20;
	start();
	for (int round = 0; round < 2; round++) {
		pid_t child = fork();

		if (child == 0)
			_exit(hoard());
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		opened = WEXITSTATUS(status);
		/* 1.1 MiB each, and the witness has one. */
		assert_in_range(opened, 6, 9);
		pause_ms(50);
		raw_open(&client, served.path);
		raw_close(&client);
		served.notice[sizeof served.notice - 1] = 0;
	}
	stop();
}

/* A forked child keeps the socket open: no hang-up comes, but the process that connected is gone. */
static void test_attack_fork(void **state)
{
	int ready[2], status;
	pid_t child, grandchild = 0;

	(void)state;
	test_daemon_init(&served);
	start();
	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		struct raw_client client;

		raw_open(&client, served.path);
		grandchild = fork();
		if (grandchild == 0) {
			pause();
			_exit(0);
		}
		if (write(ready[1], &grandchild, sizeof grandchild) < 0)
			_exit(1);
		_exit(0);
	}
	assert_int_equal(read(ready[0], &grandchild, sizeof grandchild), sizeof grandchild);
	assert_int_equal(waitpid(child, &status, 0), child);
	wait_for_count(&front_counts(served.front)->channels, 1);
	kill(grandchild, SIGKILL);
	close(ready[0]);
	close(ready[1]);
	stop();
}

/* A wake-up byte without a request must not keep the daemon from sleeping. */
static void test_attack_wakes(void **state)
{
	struct raw_client client;
	uint64_t sleeps, until;
	unsigned sent = 0;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	pause_ms(20);
	sleeps = load_relaxed_u64(&front_counts(served.front)->sleeps);
	for (until = clock_now() + 200000000; clock_now() < until; sent++)
		if (send(client.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			pause_ms(1);
	assert_true(sent > 100);
	assert_true(load_relaxed_u64(&front_counts(served.front)->sleeps) > sleeps + 20);
	raw_close(&client);
	stop();
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
	char path[] = "/tmp/tokenring-test-XXXXXX", socket_path[64], why[256];
	int status;
	pid_t child;

	(void)state;
	assert_non_null(mkdtemp(path));
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
	    cmocka_unit_test(test_seals),
	    cmocka_unit_test(test_limits),
	    cmocka_unit_test(test_attack_descriptor_refused),
	    cmocka_unit_test(test_attack_descriptor),
	    cmocka_unit_test(test_attack_epoll),
	    cmocka_unit_test(test_attack_memory),
	    cmocka_unit_test(test_attack_fork),
	    cmocka_unit_test(test_attack_wakes),
	    cmocka_unit_test(test_second_daemon),
	    cmocka_unit_test(test_stale_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
