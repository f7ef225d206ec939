/* The sleep handshake with two threads that sleep as soon as they can: a wake-up that gets lost shows as a
 * sleep that only its timeout ends. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "shm/ring.h"
#include "shm/wake.h"

/* Even; the counters wrap after some sleeps. */
#define FIRST_VALUE (UINT32_MAX - 101)

enum { SLOTS = 8, ROUNDS = 20000, LOST_MS = 2000, DRAINED_MAX = 64, SPINS_SHORT = 300, SPINS_LONG = 100000 };

/* How an end learns that its peer sleeps: a fence for each message, or one only before it would sleep itself
 * (what tr_submit does, whose fence is left to the next empty poll). */
enum fencing { FENCE_EACH, FENCE_BEFORE_SLEEP };

struct end {
	struct ring_writer writer;
	struct ring_reader reader;
	struct waker waker;
	struct sleeper sleeper;
	shared_u32 *word;
	enum fencing fencing;
	unsigned random;
	int socket, n_sleeps, n_wakes, n_lost;
};

struct shared {
	struct wire_slot slots[2][SLOTS];
	_Alignas(128) shared_u64 consumed[2];
	_Alignas(128) shared_u32 words[2];
};

static void end_init(struct end *end, struct shared *shared, int side, int socket, enum fencing fencing)
{
	*end = (struct end){
	    .writer = {shared->slots[side], &shared->consumed[side], SLOTS - 1, 0, SLOTS},
	    .reader = {shared->slots[!side], &shared->consumed[!side], SLOTS - 1, 0, 0},
	    .waker = {.word = &shared->words[!side], .fd = socket},
	    .sleeper = {FIRST_VALUE},
	    .word = &shared->words[side],
	    .fencing = fencing,
	    .random = (unsigned)side + 1,
	    .socket = socket,
	};
}

static void post(struct end *end, uint64_t number)
{
	struct wire_submission message = {.id = number};

	while (ring_room(&end->writer) == 0)
		if (!ring_writer_refresh(&end->writer))
			abort();
	ring_publish(&end->writer, &message);
	if (end->fencing == FENCE_EACH)
		end->n_wakes += wake_fence(&end->waker) == 1;
	else if (wake_wanted(&end->waker))
		end->n_wakes += wake_look(&end->waker) == 1;
}

static void drain(int socket)
{
	char bytes[4];

	for (int i = 0; i < DRAINED_MAX && recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) > 0; i++)
		;
}

static void sleep_until_ready(struct end *end)
{
	struct pollfd socket = {.fd = end->socket, .events = POLLIN};

	sleep_begin(&end->sleeper, end->word);
	end->n_wakes += wake_look(&end->waker) == 1;
	if (!ring_ready(&end->reader)) {
		end->n_sleeps++;
		if (poll(&socket, 1, LOST_MS) == 0)
			end->n_lost++;
		drain(end->socket);
	}
	sleep_end(&end->sleeper, end->word);
}

/* Spins for a random short time, so that falling asleep meets the peer's message at every offset; now and
 * then for so long that both ends are awake again, or every message would find a sleeper. */
static uint64_t receive(struct end *end)
{
	struct wire_submission message;
	int spins = rand_r(&end->random) % 4 ? rand_r(&end->random) % SPINS_SHORT : SPINS_LONG;

	while (!ring_read(&end->reader, &message))
		if (spins-- <= 0)
			sleep_until_ready(end);
	ring_reader_publish(&end->reader);
	for (int delay = rand_r(&end->random) % SPINS_SHORT; delay > 0; delay--)
		ring_ready(&end->reader);
	return message.id;
}

/* On a CPU of its own where there are two: on one CPU no store of one end can lie in a buffer while the other
 * looks. */
static void pin(int cpu)
{
	cpu_set_t allowed, one;

	sched_getaffinity(0, sizeof allowed, &allowed);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &allowed) && cpu-- == 0)
			CPU_SET(i, &one);
	if (CPU_COUNT(&one))
		sched_setaffinity(0, sizeof one, &one);
}

static void *answer(void *argument)
{
	struct end *end = argument;

	pin(1);
	for (uint64_t i = 0; i < ROUNDS; i++)
		post(end, receive(end) + 1);
	return NULL;
}

static void no_wake_up_is_lost(enum fencing fencing)
{
	static struct shared shared;
	struct end ends[2];
	int sockets[2];
	pthread_t thread;

	for (int side = 0; side < 2; side++) {
		ring_preset(shared.slots[side], SLOTS, 0);
		store_relaxed_u64(&shared.consumed[side], 0);
		store_relaxed_u32(&shared.words[side], FIRST_VALUE);
	}
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	for (int side = 0; side < 2; side++)
		end_init(&ends[side], &shared, side, sockets[side], fencing);
	assert_int_equal(pthread_create(&thread, NULL, answer, &ends[1]), 0);
	pin(0);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		post(&ends[0], i);
		assert_int_equal(receive(&ends[0]), i + 1);
	}
	pthread_join(thread, NULL);
	for (int side = 0; side < 2; side++) {
		print_message("end %d: %d sleeps, %d wakes sent\n", side, ends[side].n_sleeps,
			      ends[side].n_wakes);
		assert_int_equal(ends[side].n_lost, 0);
		assert_true(ends[side].n_sleeps > ROUNDS / 100);
		assert_true(ends[side].n_sleeps < 2 * ROUNDS);
		assert_true(ends[side].sleeper.value < FIRST_VALUE);
		close(sockets[side]);
	}
	/* At most one byte a sleep. */
	assert_true(ends[0].n_wakes <= ends[1].n_sleeps + (int)(ROUNDS / 10));
}

static void none_is_lost_with_a_fence_each(void **state)
{
	no_wake_up_is_lost(FENCE_EACH);
}

static void none_is_lost_with_the_fence_left_to_the_sleep(void **state)
{
	no_wake_up_is_lost(FENCE_BEFORE_SLEEP);
}

static void a_full_queue_counts_as_woken_and_a_dead_peer_does_not(void **state)
{
	shared_u32 word;
	int sockets[2], sent = 0;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	struct waker waker = {.word = &word, .fd = sockets[0]};

	store_relaxed_u32(&word, 0);
	assert_int_equal(wake_fence(&waker), 0);
	store_relaxed_u32(&word, 1);
	assert_int_equal(wake_fence(&waker), 1);
	/* Once a value. */
	assert_int_equal(wake_fence(&waker), 0);
	while (send(sockets[0], "", 1, MSG_DONTWAIT) == 1)
		sent++;
	assert_true(sent > 0);
	store_relaxed_u32(&word, 3);
	assert_int_equal(wake_fence(&waker), 1);
	assert_int_equal(waker.woken, 3);
	close(sockets[1]);
	store_relaxed_u32(&word, UINT32_MAX);
	assert_int_equal(wake_fence(&waker), -ECONNRESET);
	assert_int_equal(waker.woken, 3);
	close(sockets[0]);
}

static void sleep_words_alternate_and_wrap(void **state)
{
	struct sleeper sleeper = {UINT32_MAX - 1};

	assert_false(sleeper_asleep(&sleeper));
	assert_int_equal(sleeper_next_odd(&sleeper), UINT32_MAX);
	assert_true(sleeper_asleep(&sleeper));
	assert_int_equal(sleeper_next_odd(&sleeper), 1);
	assert_int_equal(sleeper_next_even(&sleeper), 2);
	assert_int_equal(sleeper_next_even(&sleeper), 2);
	assert_int_equal(sleeper_next_odd(&sleeper), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(none_is_lost_with_a_fence_each),
	    cmocka_unit_test(none_is_lost_with_the_fence_left_to_the_sleep),
	    cmocka_unit_test(a_full_queue_counts_as_woken_and_a_dead_peer_does_not),
	    cmocka_unit_test(sleep_words_alternate_and_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
