/* The scheduler: its rules one by one, then properties over random states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/sched/sched.h"

#define MS UINT64_C(1000000)

static const struct sched_limits limits = {
    .step_tokens = 64, .running = 8, .blocks_free = 100, .patience_ns = 1000 * MS};
static const struct sched_cost unknown;

static struct sched_entry waiting(uint32_t id, uint32_t pending, uint32_t blocks)
{
	return (struct sched_entry){.state = SCHED_WAITING,
				    .id = id,
				    .pending = pending,
				    .to_come = 5,
				    .blocks = blocks,
				    .arrival_ns = 1000 * MS + id,
				    .priority = 3};
}

static struct sched_entry running(uint32_t id, uint32_t pending)
{
	struct sched_entry entry = waiting(id, pending, 0);

	entry.state = SCHED_RUNNING;
	return entry;
}

static void test_decodes_come_first(void **state)
{
	struct sched_entry e[3] = {running(1, 200), running(2, 1), waiting(3, 100, 10)};
	struct sched_plan plan = schedule(e, 3, &limits, &unknown, 1001 * MS);

	assert_int_equal(plan.tokens, 64);
	assert_int_equal(plan.steps, 3);
	assert_int_equal(plan.joins, 1);
	assert_int_equal(e[1].tokens, 1);
	assert_int_equal(e[2].tokens, 1);
	assert_int_equal(e[0].tokens, 62);
}

static void test_prefill_is_chunked(void **state)
{
	struct sched_entry e[1] = {waiting(1, 150, 10)};

	schedule(e, 1, &limits, &unknown, 1001 * MS);
	assert_int_equal(e[0].action, SCHED_STEP);
	assert_int_equal(e[0].tokens, 64);
	e[0].pending = 22;
	e[0].state = SCHED_RUNNING;
	schedule(e, 1, &limits, &unknown, 1002 * MS);
	assert_int_equal(e[0].tokens, 22);
}

static void test_order(void **state)
{
	struct sched_entry a = waiting(1, 1, 1), b = waiting(2, 1, 1);

	assert_true(sched_before(&a, &b, &limits, 1001 * MS)); /* arrival */
	assert_false(sched_before(&b, &a, &limits, 1001 * MS));
	b.deadline_ns = 1100 * MS;
	assert_true(sched_before(&b, &a, &limits, 1001 * MS)); /* deadline before arrival */
	a.priority = 2;
	assert_true(sched_before(&a, &b, &limits, 1001 * MS)); /* class before deadline */
	a.arrival_ns = 3500 * MS;
	assert_true(sched_before(&b, &a, &limits, 3600 * MS)); /* two patiences waited: class 1 beats 2 */
}

static void test_the_first_that_does_not_fit_stops_the_rest(void **state)
{
	struct sched_entry e[3] = {waiting(1, 10, 60), waiting(2, 10, 60), waiting(3, 10, 1)};
	struct sched_plan plan = schedule(e, 3, &limits, &unknown, 1001 * MS);

	assert_int_equal(plan.joins, 1);
	assert_int_equal(e[0].action, SCHED_STEP);
	assert_int_equal(e[1].action, SCHED_NOTHING);
	assert_int_equal(e[2].action, SCHED_NOTHING);
}

static void test_deadlines(void **state)
{
	struct sched_entry e[3] = {waiting(1, 10, 1), running(2, 1), running(3, 1)};
	struct sched_cost cost = {.step_ns = 10 * MS, .token_ns = MS};
	struct sched_plan plan;

	e[0].deadline_ns = e[1].deadline_ns = 1001 * MS;
	plan = schedule(e, 3, &limits, &unknown, 1001 * MS);
	assert_int_equal(plan.expired, 2);
	assert_int_equal(e[0].action, SCHED_EXPIRED);
	assert_int_equal(e[1].action, SCHED_EXPIRED);
	assert_int_equal(e[2].action, SCHED_STEP);

	/* 10 tokens of 1 ms and 6 steps of 10 ms: 70 ms. */
	e[0].deadline_ns = 1071 * MS;
	e[1].deadline_ns = 0;
	plan = schedule(e, 3, &limits, &cost, 1001 * MS);
	assert_int_equal(plan.expired, 0);
	assert_int_equal(e[0].predicted_ns, 1071 * MS);
	e[0].deadline_ns = 1071 * MS - 1;
	assert_int_equal(schedule(e, 3, &limits, &cost, 1001 * MS).expired, 1);
}

static void test_step_time_bound(void **state)
{
	struct sched_limits bounded = limits;
	struct sched_entry e[2] = {running(1, 60), running(2, 1)};

	bounded.max_step_ns = 20 * MS;
	assert_int_equal(schedule(e, 2, &bounded, &unknown, 1001 * MS).tokens, 61);
	bounded.token_ns = MS;
	assert_int_equal(schedule(e, 2, &bounded, &unknown, 1001 * MS).tokens, 20);
	bounded.max_step_ns = MS; /* hopeless: each still progresses */
	assert_int_equal(schedule(e, 2, &bounded, &unknown, 1001 * MS).tokens, 2);
}

static void test_paused_takes_no_part(void **state)
{
	struct sched_entry e[2] = {running(1, 1), running(2, 1)};

	e[0].paused = true;
	assert_int_equal(schedule(e, 2, &limits, &unknown, 1001 * MS).steps, 1);
	assert_int_equal(e[0].action, SCHED_NOTHING);
}

static uint32_t random_below(uint32_t n)
{
	static uint64_t state = 88172645463325252ULL;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 33) % n;
}

static void check_plan(const struct sched_entry *e, uint32_t n, const struct sched_limits *l,
		       struct sched_plan plan, uint64_t now)
{
	uint32_t tokens = 0, steps = 0, running_now = 0, blocks = 0, expired = 0;

	for (uint32_t i = 0; i < n; i++) {
		bool late = e[i].deadline_ns && e[i].deadline_ns <= now;

		assert_int_equal(e[i].action == SCHED_EXPIRED, late);
		expired += late;
		if (late)
			continue;
		running_now += e[i].state == SCHED_RUNNING || e[i].action != SCHED_NOTHING;
		if (e[i].state == SCHED_WAITING && e[i].action != SCHED_NOTHING)
			blocks += e[i].blocks;
		if (e[i].action == SCHED_STEP) {
			assert_in_range(e[i].tokens, 1, e[i].pending);
			steps++;
		} else {
			assert_int_equal(e[i].tokens, 0);
		}
		/* Nobody who may run is left out. */
		if (e[i].state == SCHED_RUNNING && !e[i].paused && e[i].pending)
			assert_int_equal(e[i].action, SCHED_STEP);
		tokens += e[i].tokens;
	}
	assert_true(tokens <= l->step_tokens);
	assert_true(running_now <= l->running);
	assert_true(blocks <= l->blocks_free);
	assert_int_equal(plan.tokens, tokens);
	assert_int_equal(plan.steps, steps);
	assert_int_equal(plan.expired, expired);
}

static void test_random_states_keep_the_limits(void **state)
{
	enum { N = 40 };
	struct sched_entry e[N], again[N];

	for (int round = 0; round < 20000; round++) {
		struct sched_limits l = {.running = 1 + random_below(12),
					 .blocks_free = random_below(60),
					 .patience_ns = random_below(3) * 1000};
		uint32_t n = random_below(N), runs = 0;

		l.step_tokens = l.running + random_below(100);
		for (uint32_t i = 0; i < n; i++) {
			bool runs_now = runs < l.running && random_below(2);

			e[i] = runs_now ? running(i, 1 + random_below(80))
					: waiting(i, 1 + random_below(300), random_below(30));
			e[i].paused = runs_now && !random_below(4);
			e[i].priority = (uint8_t)random_below(8);
			e[i].arrival_ns = random_below(5000);
			e[i].deadline_ns = random_below(3) ? 0 : 1 + random_below(9000);
			runs += runs_now;
		}
		memcpy(again, e, sizeof(e));
		check_plan(e, n, &l, schedule(e, n, &l, &unknown, 5000), 5000);
		schedule(again, n, &l, &unknown, 5000);
		for (uint32_t i = 0; i < n; i++)
			assert_true(again[i].action == e[i].action && again[i].tokens == e[i].tokens);
	}
}

/* One urgent request arrives each step, more than can be served; a lazy long one must still finish. */
static void test_nobody_starves(void **state)
{
	enum { N = 3000 };
	static struct sched_entry e[N];
	struct sched_limits l = {.step_tokens = 4, .running = 2, .blocks_free = 4, .patience_ns = 50};
	uint32_t n = 1, step;

	e[0] = waiting(0, 40, 4);
	e[0].priority = 7;
	e[0].arrival_ns = 0;
	for (step = 0; step < 2000 && e[0].pending; step++) {
		uint32_t held = 0;

		e[n] = waiting(n, 8, 2);
		e[n].priority = 0;
		e[n].arrival_ns = step;
		n++;
		for (uint32_t i = 0; i < n; i++)
			held += e[i].state == SCHED_RUNNING ? (i ? 2 : 4) : 0;
		l.blocks_free = 4 - held;
		schedule(e, n, &l, &unknown, step);
		for (uint32_t i = 0; i < n; i++) {
			if (e[i].action == SCHED_STEP || e[i].action == SCHED_JOIN)
				e[i].state = SCHED_RUNNING;
			e[i].pending -= e[i].tokens;
		}
		for (uint32_t i = 1; i < n; i++)
			if (!e[i].pending)
				e[i--] = e[--n];
	}
	assert_int_equal(e[0].pending, 0);
	assert_true(step < 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_decodes_come_first),
	    cmocka_unit_test(test_prefill_is_chunked),
	    cmocka_unit_test(test_order),
	    cmocka_unit_test(test_the_first_that_does_not_fit_stops_the_rest),
	    cmocka_unit_test(test_deadlines),
	    cmocka_unit_test(test_step_time_bound),
	    cmocka_unit_test(test_paused_takes_no_part),
	    cmocka_unit_test(test_random_states_keep_the_limits),
	    cmocka_unit_test(test_nobody_starves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
