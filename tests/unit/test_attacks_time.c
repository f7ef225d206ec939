/* More attacks on the channel: on the daemon's descriptors, on its sleep, on its pages. Each prints what it
 * cost. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/witness.h"

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

/* Whether a hang-up comes within 200 ms, when the process that held the other end is gone and a child of it
 * still has it. */
static bool hang_up_undefended(void)
{
	struct pollfd ready = {.events = POLLIN};
	int ends[2], status;
	pid_t holder, child;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	ready.fd = ends[0];
	child = fork();
	if (child == 0) {
		close(ends[0]);
		holder = fork();
		if (holder == 0) {
			pause_ms(1000);
			_exit(0);
		}
		_exit(holder < 0);
	}
	close(ends[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	status = poll(&ready, 1, 200);
	close(ends[0]);
	return status > 0;
}

/* A forked child keeps the socket open: no hang-up comes, but the process that connected is gone. */
static void test_attack_fork(void **state)
{
	int ready[2], status;
	pid_t child, grandchild = 0;
	uint64_t gone;

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
	gone = clock_now();
	wait_for_count(&front_counts(served.front)->channels, 1);
	print_message(
	    "a child keeps the socket of a process that is gone: %s hang-up within 200 ms; here the channel "
	    "ended within %.1f ms\n",
	    hang_up_undefended() ? "a" : "no", (double)(clock_now() - gone) / 1e6);
	kill(grandchild, SIGKILL);
	close(ready[0]);
	close(ready[1]);
	stop();
}

enum { ECHOES = 20000 };

/* The mean time of an echo, with or without a sleep word that is odd and new each time. */
static uint64_t echo_ns(struct raw_client *client, bool fresh)
{
	uint64_t before = clock_now();

	for (uint32_t i = 0; i < ECHOES; i++) {
		struct wire_submission slot = raw_slot(client, WIRE_OP_ECHO, 0);
		struct wire_completion answer;
		char bytes[64];

		if (fresh)
			store_release_u32(&segment_header(&client->segment)->client_sleep, 2 * i + 1);
		raw_submit(client, &slot);
		while (!ring_read(&client->completions, &answer))
			;
		ring_reader_publish(&client->completions);
		while (fresh && i % 64 == 0 && recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
			;
	}
	store_release_u32(&segment_header(&client->segment)->client_sleep, 0);
	return (clock_now() - before) / ECHOES;
}

static void test_attack_sleep_word(void **state)
{
	struct raw_client client;
	uint64_t plain, fresh, wakes;

	(void)state;
	test_daemon_init(&served);
	start();
	raw_open(&client, served.path);
	plain = echo_ns(&client, false);
	wakes = load_relaxed_u64(&front_counts(served.front)->wakes);
	fresh = echo_ns(&client, true);
	wakes = load_relaxed_u64(&front_counts(served.front)->wakes) - wakes;
	print_message(
	    "a new odd sleep word for each echo: %llu ns an echo instead of %llu, %llu wake-ups for %d "
	    "words\n",
	    (unsigned long long)fresh, (unsigned long long)plain, (unsigned long long)wakes, ECHOES);
	assert_in_range(wakes, 1, ECHOES); /* a word is worth one byte at most, whatever it does */
	raw_close(&client);
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
	print_message("%u wake-ups for nothing in 200 ms: the daemon slept %u times meanwhile\n", sent,
		      (unsigned)(load_relaxed_u64(&front_counts(served.front)->sleeps) - sleeps));
	assert_true(load_relaxed_u64(&front_counts(served.front)->sleeps) > sleeps + 20);
	raw_close(&client);
	stop();
}

/* ---- paging ---- */

/* Asks the kernel to take its channel's pages away, again and again. If it did, the front would take a fault,
 * and wait for the page, at each look at the channel; it spares pages that another process has mapped. */
static void page_out(struct raw_client *client, uint64_t until_ns)
{
	while (clock_now() < until_ns)
		if (madvise(client->segment.base, client->segment.bytes, MADV_PAGEOUT) < 0)
			return;
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

/* Echoes for 100 ms; how many faults this process took meanwhile. */
static long faults_in_echoes(uint64_t *ret_echoes, uint64_t *ret_slowest_ns)
{
	uint64_t until_ns = clock_now() + 100000000;
	long before = faults();

	*ret_echoes = *ret_slowest_ns = 0;
	for (; clock_now() < until_ns; ++*ret_echoes) {
		uint64_t took = witness_echo();

		*ret_slowest_ns = took > *ret_slowest_ns ? took : *ret_slowest_ns;
	}
	return faults() - before;
}

static void page_out_when_told(int told)
{
	struct raw_client client;
	char byte;

	raw_open(&client, served.path);
	if (read(told, &byte, 1) == 1)
		page_out(&client, clock_now() + 150000000);
	_exit(0);
}

/* After a fork this process takes faults of its own for a while, so that only the difference says something.
 */
static void test_attack_paging(void **state)
{
	uint64_t echoes, slowest_ns;
	long idle, attacked;
	int tell[2], status;
	pid_t child;

	(void)state;
	test_daemon_init(&served);
	start();
	assert_int_equal(pipe(tell), 0);
	child = fork();
	if (child == 0)
		page_out_when_told(tell[0]);
	wait_for_count(&front_counts(served.front)->channels, 2);
	idle = faults_in_echoes(&echoes, &slowest_ns);
	assert_int_equal(write(tell[1], "", 1), 1);
	attacked = faults_in_echoes(&echoes, &slowest_ns);
	print_message("pages of a channel paged out in a loop: %ld faults of the daemon in %llu echoes, %ld "
		      "without, the "
		      "slowest %llu us\n",
		      attacked, (unsigned long long)echoes, idle, (unsigned long long)slowest_ns / 1000);
	assert_true(attacked < idle + 100 + (long)echoes / 2);
	assert_int_equal(waitpid(child, &status, 0), child);
	close(tell[0]);
	close(tell[1]);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_attack_descriptors), cmocka_unit_test(test_attack_fork),
	    cmocka_unit_test(test_attack_sleep_word),  cmocka_unit_test(test_attack_wakes),
	    cmocka_unit_test(test_attack_paging),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
