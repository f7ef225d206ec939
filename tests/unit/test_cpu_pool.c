/* The team of threads: barriers, the poll callback, sleep between jobs, more threads than CPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/detect.h"
#include "kernels/cpu/peak.h"
#include "kernels/cpu/pool.h"

enum { THREADS_MAX = 8, ROUNDS = 200, SLOTS = 64 };

struct exchange {
	uint32_t slot[2][SLOTS]; /* written in one round, read by all in the next */
	uint32_t bad[THREADS_MAX];
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct pool *open_pool(uint32_t threads)
{
	struct pool_config config = {.threads = threads, .work_per_us = 1};
	struct pool *pool;
	char why[128] = "";

	if (pool_open(&config, &pool, why, sizeof why) < 0)
		fail_msg("%s", why);
	return pool;
}

/* Each thread writes its share, all meet, each checks everything. */
static void exchange(void *data, struct team_thread *self)
{
	struct exchange *x = data;
	uint32_t first, end;

	pool_share(self->index, self->threads, SLOTS, &first, &end);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = first; i < end; i++)
			x->slot[round % 2][i] = round * SLOTS + i;
		pool_barrier(self);
		for (uint32_t i = 0; i < SLOTS; i++)
			x->bad[self->index] += x->slot[round % 2][i] != round * SLOTS + i;
	}
}

static void what_is_written_before_a_barrier_is_read_after(void **state)
{
	for (uint32_t threads = 1; threads <= THREADS_MAX; threads++) {
		struct pool *pool = open_pool(threads);
		struct exchange x = {.bad = {0}};
		assert_int_equal(pool_threads(pool), threads);
		for (int job = 0; job < 3; job++)
			pool_run(pool, exchange, &x);
		for (uint32_t i = 0; i < threads; i++)
			assert_int_equal(x.bad[i], 0);
		pool_close(pool);
	}
}

static void nothing(void *data, struct team_thread *self)
{
	uint32_t *ran = data;
	ran[self->index]++;
}

static void idle_workers_use_no_cpu_and_wake_again(void **state)
{
	struct pool *pool = open_pool(4);
	uint32_t ran[4] = {0};

	pool_run(pool, nothing, ran);
	nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* time to fall asleep */
	uint64_t before = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
	assert_in_range(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before, 0, 3000000);
	for (int i = 0; i < 50; i++) {
		pool_run(pool, nothing, ran);
		if (i % 10 == 0)
			nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(ran[i], 51);
	pool_close(pool);
}

static void count_poll(void *data)
{
	++*(uint32_t *)data;
}

enum { PACES = 40 };

/* Work that takes longer than the time between two polls, PACES times; then much work that takes no time. */
static void work(void *data, struct team_thread *self)
{
	uint32_t *polls = data, before;
	uint64_t start;

	for (int i = 0; i < PACES; i++) {
		for (start = clock_ns(CLOCK_MONOTONIC); clock_ns(CLOCK_MONOTONIC) - start < 60000;)
			;
		pool_work(self, 10);
	}
	if (self->index)
		return;
	before = *polls;
	start = clock_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < 1000; i++)
		pool_work(self, 1);
	assert_true(before >= PACES);
	assert_true(*polls - before <= (clock_ns(CLOCK_MONOTONIC) - start) / 50000 + 1);
}

static void the_caller_polls_while_it_works(void **state)
{
	uint32_t polls = 0;
	struct pool_config config = {.threads = 2, .work_per_us = 1, .poll = count_poll, .poll_data = &polls};
	struct pool *pool;
	char why[128];

	assert_int_equal(pool_open(&config, &pool, why, sizeof why), 0);
	pool_run(pool, work, &polls);
	assert_true(polls >= PACES);
	pool_close(pool);
}

static void a_cpu_that_is_not_there_is_an_error(void **state)
{
	const int cpus[] = {-1, 1023};
	struct pool_config config = {.threads = 2, .cpus = cpus, .work_per_us = 1};
	struct pool *pool = NULL;
	char why[128] = "";

	assert_true(pool_open(&config, &pool, why, sizeof why) < 0);
	assert_null(pool);
	assert_non_null(strstr(why, "CPU 1023"));
}

static void instruction_sets_go_by_name(void **state)
{
	const struct cpu_isa *isa = NULL;
	char why[256] = "";

	assert_int_equal(detect_isa("generic", &isa, why, sizeof why), 0);
	assert_string_equal(isa->name, "generic");
	assert_int_equal(detect_isa("auto", &isa, why, sizeof why), 0);
	assert_int_equal(detect_isa("sse9", &isa, why, sizeof why), -EINVAL);
	assert_non_null(strstr(why, "sse9"));
}

static void peaks_are_measured(void **state)
{
	double read = 0, ops = 0;

	assert_int_equal(cpu_peak_read(1 << 20, 2, NULL, &read), 0);
	assert_true(read > 1e7 && read < 1e13);
	assert_int_equal(cpu_peak_int8("generic", 1, NULL, &ops), 0);
	assert_true(ops > 1e6 && ops < 1e13);
	assert_int_equal(cpu_peak_int8("sse9", 1, NULL, &ops), -EINVAL);
	assert_int_equal(cpu_peak_read(0, 1, NULL, &read), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_written_before_a_barrier_is_read_after),
	    cmocka_unit_test(idle_workers_use_no_cpu_and_wake_again),
	    cmocka_unit_test(the_caller_polls_while_it_works),
	    cmocka_unit_test(a_cpu_that_is_not_there_is_an_error),
	    cmocka_unit_test(instruction_sets_go_by_name),
	    cmocka_unit_test(peaks_are_measured),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
