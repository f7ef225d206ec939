/* Which CPU each thread gets, on made-up machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>

#include "daemon/placement.h"

static struct topology topology;
static struct config config;
static struct placement placement;
static char why[256];

/* `cpus` CPUs; with smt, i and i + cpus / 2 share a core. */
static void machine(uint32_t cpus, bool smt)
{
	topology = (struct topology){.n_cpus = cpus, .n_cores = smt ? cpus / 2 : cpus, .n_nodes = 1};
	for (uint32_t i = 0; i < cpus; i++)
		topology.cpu[i] =
		    (struct topology_cpu){.id = (int)i, .core = (int)(smt ? i % (cpus / 2) : i)};
	config_defaults(&config);
}

static int choose(void)
{
	return placement_choose(&placement, &config, &topology, why, sizeof(why));
}

static void test_every_core_computes_and_the_front_shares(void **state)
{
	machine(2, false);
	assert_int_equal(choose(), 0);
	assert_int_equal(placement.threads, 2);
	assert_false(placement.separate);
	assert_int_equal(placement.cpus[0] + placement.cpus[1], 1);
}

static void test_a_spare_cpu_goes_to_the_front(void **state)
{
	machine(4, false);
	config.threads = 2;
	assert_int_equal(choose(), 0);
	assert_true(placement.separate);
	assert_true(placement.front_cpu >= 0);
	assert_true(placement.front_cpu != placement.cpus[0] && placement.front_cpu != placement.cpus[1]);
	config.threads = 3;
	assert_int_equal(choose(), 0);
	assert_false(placement.separate);
	topology.quota_cpus = 2.5;
	config.threads = 2;
	assert_int_equal(choose(), 0);
	assert_false(placement.separate);
}

static void test_the_front_avoids_cores_that_compute(void **state)
{
	machine(8, true);
	config.threads = 3;
	assert_int_equal(choose(), 0);
	assert_true(placement.separate);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_not_equal(placement.front_cpu % 4, placement.cpus[i] % 4);
	config.threads = 0;
	assert_int_equal(choose(), 0);
	assert_int_equal(placement.threads, 4);
	assert_true(placement.separate); /* beside a thread that computes, for want of better */
	assert_int_equal(placement.front_cpu / 4, 1);
}

static void test_options_win(void **state)
{
	machine(4, false);
	config.threads = 3;
	config.engine_cpu = 2;
	assert_int_equal(choose(), 0);
	assert_int_equal(placement.cpus[0], 2);
	assert_true(placement.cpus[1] != 2 && placement.cpus[2] != 2 &&
		    placement.cpus[1] != placement.cpus[2]);
	config.worker_cpus = (struct config_cpus){.n = 2, .cpu = {3, 1}};
	strcpy(config.front, "own");
	assert_int_equal(choose(), 0);
	assert_int_equal(placement.cpus[1], 3);
	assert_int_equal(placement.cpus[2], 1);
	assert_true(placement.separate);
	assert_int_equal(placement.front_cpu, 0);
	config.threads = 4;
	assert_int_equal(choose(), -EINVAL);
	assert_non_null(strstr(why, "worker_cpus lists 2 CPUs for 3 threads"));
	config.engine_cpu = 9;
	assert_int_equal(choose(), -EINVAL);
	assert_non_null(strstr(why, "engine_cpu names CPU 9"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_core_computes_and_the_front_shares),
	    cmocka_unit_test(test_a_spare_cpu_goes_to_the_front),
	    cmocka_unit_test(test_the_front_avoids_cores_that_compute),
	    cmocka_unit_test(test_options_win),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
