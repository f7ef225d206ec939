/* The attacks on the channel that docs/channel.md names, each with a client that carries it out. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/witness.h"

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

/* One process that opens and closes channels without end must not use up the daemon's descriptors. */
static void test_attack_descriptors(void **state)
{
	struct raw_client client;
	unsigned before;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	raw_close(&client);
	pause_ms(50);
	before = count_descriptors();
	for (int i = 0; i < 50; i++) {
		raw_open(&client, served.path);
		raw_close(&client);
	}
	for (int i = 0; i < 100 && count_descriptors() > before; i++)
		pause_ms(20);
	/* Fewer, where the daemon had not yet let go of the first client when it was counted. */
	assert_true(count_descriptors() <= before);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_attack_descriptor_refused),
	    cmocka_unit_test(test_attack_descriptor),
	    cmocka_unit_test(test_attack_epoll),
	    cmocka_unit_test(test_attack_memory),
	    cmocka_unit_test(test_attack_descriptors),
	    cmocka_unit_test(test_attack_fork),
	    cmocka_unit_test(test_attack_wakes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
