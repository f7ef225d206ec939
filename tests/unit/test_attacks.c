/* The attacks on the channel that docs/channel.md names, each with a client that carries it out. Each prints
 * what the attack costs where nothing is done against it, measured on the bare system call, and what it costs
 * here. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/witness.h"

/* ---- the attacks that docs/channel.md names ---- */

/* A TCP socket whose close waits: data that the peer does not take, and SO_LINGER. */
static int lingering_socket(int *ret_peer, int seconds)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger linger = {.l_onoff = 1, .l_linger = seconds};
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

/* How long a plain receive takes that gets such a socket with a byte and does not take it. */
static uint64_t receive_undefended(void)
{
	int ends[2], peer, passed = lingering_socket(&peer, 1);
	uint64_t before;
	char byte;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	assert_true(pass_descriptor(ends[0], passed, "", 1) > 0);
	shutdown(passed, SHUT_RD);
	close(passed);
	before = clock_now();
	assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
	before = clock_now() - before;
	close(ends[0]);
	close(ends[1]);
	close(peer);
	return before;
}

static void test_attack_descriptor_refused(void **state)
{
	struct raw_client client;
	int passed, peer;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	passed = lingering_socket(&peer, 3);
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
		int peer, passed = lingering_socket(&peer, 3);

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
	print_message(
	    "a socket that lingers 1 s, passed: a receive takes %.1f ms; one of 3 s here: slowest echo of "
	    "another client %.3f ms\n",
	    (double)receive_undefended() / 1e6, (double)slowest / 1e6);
	assert_true(slowest < 1000000000);
	stop();
}

enum { EPOLLS = 24, ENTRIES = 800 };

static void add_entries(int fd, int *epolls)
{
	struct epoll_event event = {.events = EPOLLIN};

	for (int i = 0; i < EPOLLS; i++) {
		epolls[i] = epoll_create1(EPOLL_CLOEXEC);
		for (int j = 0; j < ENTRIES; j++) {
			/* The entry outlives its number, because the file is open under another. */
			int copy = fcntl(fd, F_DUPFD_CLOEXEC, 100 + j);

			epoll_ctl(epolls[i], EPOLL_CTL_ADD, copy, &event);
			close(copy);
		}
	}
}

/* The mean of waking the owner of such a socket by a byte. */
static uint64_t wake_undefended(void)
{
	enum { WAKES = 20 };
	int ends[2], epolls[EPOLLS];
	uint64_t before;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	add_entries(ends[0], epolls);
	before = clock_now();
	for (int i = 0; i < WAKES; i++)
		assert_int_equal(send(ends[1], "", 1, MSG_DONTWAIT), 1);
	before = clock_now() - before;
	for (int i = 0; i < EPOLLS; i++)
		close(epolls[i]);
	close(ends[0]);
	close(ends[1]);
	return before / WAKES;
}

/* Thousands of epoll entries on the client's own socket make each wake walk them all. */
static void test_attack_epoll(void **state)
{
	uint64_t took, slowest = 0, sum = 0;
	struct raw_client client;
	int epolls[EPOLLS];
	uint32_t value = 1;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	add_entries(client.fd, epolls);
	for (int i = 0; i < 60; i++, value += 2) {
		struct wire_submission slot = raw_slot(&client, WIRE_OP_ECHO, 0);
		char buffer[16];

		store_release_u32(&segment_header(&client.segment)->client_sleep, value);
		raw_submit(&client, &slot);
		assert_int_equal(raw_completion(&client).kind, WIRE_KIND_ECHO);
		while (recv(client.fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0)
			;
		took = witness_echo();
		sum += took;
		slowest = took > slowest ? took : slowest;
	}
	assert_true(slowest < 1000000000);
	assert_true(load_relaxed_u64(&front_counts(served.front)->slow_wakes) >= 50);
	print_message("%d epoll entries on a socket: a wake takes %.3f ms; here the control thread did %u of "
		      "60, echoes of "
		      "another client took %.3f ms, at most %.3f\n",
		      EPOLLS * ENTRIES, (double)wake_undefended() / 1e6,
		      (unsigned)load_relaxed_u64(&front_counts(served.front)->slow_wakes), (double)sum / 60e6,
		      (double)slowest / 1e6);
	for (int i = 0; i < EPOLLS; i++)
		close(epolls[i]);
	raw_close(&client);
	stop();
}

/* A child's channels, opened and closed again and again, keep their memory until the child is gone. Adds up
 * the memory that it keeps. */
static int hoard(shared_u64 *kept)
{
	unsigned opened = 0;

	for (; opened < 200; opened++) {
		struct stat status;
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
		if (fstat(memory, &status) == 0)
			add_relaxed_u64(kept, (uint64_t)status.st_blocks * 512);
	}
	return (int)opened;
}

/* How many channels a child can have kept, and their memory, with this limit. */
static int hoard_in_child(uint64_t limit_bytes, uint64_t *ret_kept)
{
	shared_u64 *kept =
	    mmap(NULL, sizeof *kept, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = 0;
	pid_t child;

	served.server_config.memory_per_uid_bytes = limit_bytes;
	assert_int_equal(server_reload(served.server, &served.server_config), 0);
	child = fork();
	if (child == 0)
		_exit(hoard(kept));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	*ret_kept = load_relaxed_u64(kept);
	munmap(kept, sizeof *kept);
	return WEXITSTATUS(status);
}

static void test_attack_memory(void **state)
{
	struct raw_client client;
	uint64_t kept;
	int opened;

	(void)state;
	test_daemon_init(&served);
	start();
	opened = hoard_in_child(UINT64_MAX, &kept);
	print_message("%d channels opened and closed, their memory kept: %llu MiB without a limit", opened,
		      (unsigned long long)kept >> 20);
	assert_int_equal(opened, 200);
	for (int round = 0; round < 2; round++) {
		opened = hoard_in_child(10 << 20, &kept);
		print_message(", %llu MiB of %d with one of 10", (unsigned long long)kept >> 20, opened);
		/* 1.1 MiB each, and the witness has one. */
		assert_in_range(opened, 6, 9);
		pause_ms(50);
		raw_open(&client, served.path);
		raw_close(&client);
	}
	print_message("\n");
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_attack_descriptor_refused),
	    cmocka_unit_test(test_attack_descriptor),
	    cmocka_unit_test(test_attack_epoll),
	    cmocka_unit_test(test_attack_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
