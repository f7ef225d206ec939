/* Plans for recorded and hand-made machines: expected values follow from the rules in numa/plan.h, and the
 * reasoning stands beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "daemon/placement.h"
#include "tests/harness/machine.h"

static struct topology topology;
static struct config config;
static struct plan_request request;
static struct plan plan;
static char why[256];

static void use(const char *name)
{
	machine_unpack(name);
	assert_int_equal(topology_read(machine_root, &topology), 0);
	config_defaults(&config);
	request = placement_request(&config);
}

/* `cpus` CPUs on one node; with smt, i and i + cpus / 2 share a core. */
static void use_made_up(uint32_t cpus, bool smt)
{
	topology = (struct topology){.n_cpus = cpus, .n_cores = smt ? cpus / 2 : cpus, .n_nodes = 1};
	topology.node[0] =
	    (struct topology_node){.allowed = true, .cores = topology.n_cores, .memory_bytes = 1};
	for (uint32_t i = 0; i < cpus; i++)
		topology.cpu[i] =
		    (struct topology_cpu){.id = (int)i, .core = (int)(smt ? i % (cpus / 2) : i)};
	config_defaults(&config);
	request = placement_request(&config);
}

static int make(void)
{
	return plan_make(&plan, &request, &topology, why, sizeof(why));
}

static void expect_on(const int *cpus, uint32_t n)
{
	assert_int_equal(plan.threads, n);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(plan.cpus[i], cpus[i]);
}

/* The line of a thread and the reason in it; of several with this name the last. */
static void expect_said(const char *name, int cpu, int node, const char *reason)
{
	const struct plan_thread *found = NULL;

	for (uint32_t i = 0; i < plan.n_lines; i++)
		if (!strcmp(plan.line[i].name, name))
			found = &plan.line[i];
	assert_non_null(found);
	assert_int_equal(found->cpu, cpu);
	assert_int_equal(found->node, node);
	if (!strstr(found->why, reason))
		fail_msg("%s: \"%s\" instead of \"%s\"", name, found->why, reason);
}

static void expect_place(enum plan_memory_kind kind, uint64_t nodes, const char *reason)
{
	assert_int_equal(plan.memory[kind].nodes, nodes);
	if (!strstr(plan.memory[kind].why, reason))
		fail_msg("memory %d: \"%s\" instead of \"%s\"", kind, plan.memory[kind].why, reason);
}

/* Two cores, no SMT: both compute, and no CPU is spare for the front. */
static void one_node_uses_every_core(void **state)
{
	use("one_node");
	assert_int_equal(make(), 0);
	expect_on((const int[]){0, 1}, 2);
	assert_false(plan.separate);
	assert_int_equal(plan.front_cpu, -1);
	expect_said("front", 0, 0, "no CPU is spare beside 2 threads");
	for (enum plan_memory_kind kind = 0; kind < PLAN_MEMORIES; kind++)
		expect_place(kind, 1, "the only node");
	assert_int_equal(plan.loader_node, -1);
	assert_int_equal(plan.reader_node, -1);
}

/* 16 cores: one is the front's, CPU 0's is spared: 14 compute. Both nodes are too small for 14; node 1 has
 * more memory (264214960 kB against 263774132), so engine and front are its first cores, 8 and 9, workers its
 * other six, then those of node 0 but the first. Nobody shares a core. Both nodes read: memory is
 * interleaved; channels are the front's. */
static void two_sockets_begin_where_most_memory_is(void **state)
{
	static const int cpus[] = {8, 10, 11, 12, 13, 14, 15, 1, 2, 3, 4, 5, 6, 7};

	use("two_sockets");
	request.storage_node = 1;
	strcpy(request.storage_address, "0000:ca:00.0");
	assert_int_equal(make(), 0);
	expect_on(cpus, 14);
	assert_true(plan.separate);
	expect_said("engine", 8, 1, "a core of its own, the node of most memory");
	expect_said("front", 9, 1, "a core of its own, so that no step delays it");
	expect_said("worker", 7, 0, "as the cores of node 1 are taken");
	expect_said("loader", -1, 1, "at the weights");
	expect_said("reader", -1, 1, "near the drive with the weights, PCI 0000:ca:00.0");
	expect_place(PLAN_WEIGHTS, 3, "interleaved");
	expect_place(PLAN_KV, 3, "interleaved");
	expect_place(PLAN_SCRATCH, 2, "at the engine");
	expect_place(PLAN_CHANNELS, 2, "at the front");
	assert_int_equal(plan.loader_node, 1);
	assert_int_equal(plan.reader_node, 1);
}

/* Six threads and the front fit on one node: all memory is there too. */
static void few_threads_stay_on_one_node(void **state)
{
	use("two_sockets");
	request.threads = 6;
	assert_int_equal(make(), 0);
	expect_on((const int[]){8, 10, 11, 12, 13, 14}, 6);
	assert_int_equal(plan.front_cpu, 9);
	expect_said("engine", 8, 1, "the node of most memory with a core for all threads");
	expect_place(PLAN_WEIGHTS, 2, "where all threads are");
	expect_place(PLAN_KV, 2, "where all threads are");
	expect_said("reader", -1, -1, "no PCI device");
}

/* Eight threads fit on node 1 just so: the front goes elsewhere rather than drive one of them out. Node 0 has
 * seven cores to give, as CPU 0's is spared. */
static void threads_stay_together_before_the_front_is_near(void **state)
{
	use("two_sockets");
	request.threads = 8;
	assert_int_equal(make(), 0);
	expect_on((const int[]){8, 9, 10, 11, 12, 13, 14, 15}, 8);
	expect_said("front", 1, 0, "a core of its own");
	expect_place(PLAN_WEIGHTS, 2, "where all threads are");
	expect_place(PLAN_CHANNELS, 1, "at the front");
}

/* The accelerator's node has eight cores; the front takes one and CPU 0's is spared. */
static void threads_go_to_the_accelerator(void **state)
{
	use("two_sockets");
	request.accelerator_node = 0;
	assert_int_equal(make(), 0);
	expect_on((const int[]){1, 3, 4, 5, 6, 7}, 6);
	assert_int_equal(plan.front_cpu, 2);
	expect_said("engine", 1, 0, "the accelerator's node");
	expect_place(PLAN_WEIGHTS, 1, "where all threads are");
}

/* All 32 CPUs compute when told to: cores first, CPU 0's core last of them, then the siblings in that order.
 */
static void siblings_come_after_all_cores(void **state)
{
	static const int cpus[] = {8,  9,  10, 11, 12, 13, 14, 15, 1,  2,  3,  4,  5,  6,  7,  0,
				   24, 25, 26, 27, 28, 29, 30, 31, 17, 18, 19, 20, 21, 22, 23, 16};

	use("two_sockets");
	request.threads = 32;
	assert_int_equal(make(), 0);
	expect_on(cpus, 32);
	assert_false(plan.separate);
	expect_said("worker", 16, 0, "shares the core of CPU 0");
	request.threads = 33;
	assert_int_equal(make(), 0);
	expect_said("worker", -1, -1, "more threads than CPUs");
}

/* Memory of node 0 is not the process's: what would lie there goes to node 1, the nearest with memory. */
static void memory_avoids_nodes_that_are_not_allowed(void **state)
{
	use("two_sockets");
	machine_put("proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t1\n");
	assert_int_equal(topology_read(machine_root, &topology), 0);
	request.threads = 2;
	assert_int_equal(make(), 0);
	expect_on((const int[]){0, 2}, 2); /* four cores are not many: CPU 0 computes */
	assert_int_equal(plan.front_cpu, 1);
	expect_place(PLAN_WEIGHTS, 2, "where all threads are");
	expect_place(PLAN_CHANNELS, 2, "nearest to the front");
	assert_int_equal(plan.loader_node, -1); /* node 1 has no CPU for it */
	request.memory_node = 0;
	assert_int_equal(make(), -EINVAL);
	assert_non_null(strstr(why, "memory_node names node 0, which this process may not use"));
}

/* Slow cores would keep fast ones waiting: the four fast cores compute. A slow core is spare for the front,
 * and better than half a busy one. The quota of 6 allows it. */
static void a_laptop_computes_on_its_fast_cores(void **state)
{
	use("laptop");
	assert_int_equal(make(), 0);
	expect_on((const int[]){2, 4, 6, 8}, 4);
	assert_true(plan.separate);
	expect_said("front", 12, 0, "a core of its own");
	expect_place(PLAN_WEIGHTS, 1, "the only node");
	request.threads = 8; /* fast, slow, then siblings; the quota leaves the front no CPU */
	assert_int_equal(make(), 0);
	expect_on((const int[]){2, 4, 6, 8, 12, 13, 3, 5}, 8);
	assert_false(plan.separate);
	request.threads = 2; /* fast cores are spare: the front takes one, next to the engine */
	assert_int_equal(make(), 0);
	expect_on((const int[]){2, 6}, 2);
	assert_int_equal(plan.front_cpu, 4);
}

static void a_spare_cpu_goes_to_the_front(void **state)
{
	use_made_up(4, false);
	request.threads = 2;
	assert_int_equal(make(), 0);
	assert_true(plan.separate);
	request.threads = 3;
	assert_int_equal(make(), 0);
	assert_false(plan.separate);
	topology.quota_cpus = 2.5;
	request.threads = 2;
	assert_int_equal(make(), 0);
	assert_false(plan.separate);
	request.threads = 0;
	assert_int_equal(make(), 0);
	assert_int_equal(plan.threads, 2);
}

static void the_front_avoids_cores_that_compute(void **state)
{
	use_made_up(8, true);
	request.threads = 3;
	assert_int_equal(make(), 0);
	assert_true(plan.separate);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_not_equal(plan.front_cpu % 4, plan.cpus[i] % 4);
	request.threads = 0;
	assert_int_equal(make(), 0);
	assert_int_equal(plan.threads, 4);
	assert_true(plan.separate); /* beside a thread that computes, for want of better */
	assert_int_equal(plan.front_cpu / 4, 1);
	expect_said("front", plan.front_cpu, 0, "the idle half of a core");
}

/* What is left by the end of a plan: cores on which nothing of ours runs. */
static uint32_t free_cores(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < topology.n_cpus; i++) {
		bool free = topology.cpu[i].core == topology.cpu[i].id;

		for (uint32_t j = 0; j < topology.n_cpus; j++)
			for (uint32_t t = 0; t <= plan.threads; t++)
				if (topology.cpu[j].core == topology.cpu[i].core &&
				    topology.cpu[j].id == (t < plan.threads ? plan.cpus[t] : plan.front_cpu))
					free = false;
		n += free;
	}
	return n;
}

/* The default team is smaller by the cores that are reserved, and the front keeps away from them, too. */
static void reserved_cores_stay_free(void **state)
{
	static const struct {
		uint32_t cpus, smt, reserve, threads, free;
		bool separate;
	} cases[] = {
	    {4, 0, 0, 4, 0, false},
	    {4, 0, 1, 3, 1, false}, /* the one that is spare is reserved */
	    {4, 0, 3, 1, 3, false},
	    {8, 1, 1, 3, 1, true},   /* four cores: the front on the other half of one that computes */
	    {16, 0, 0, 14, 1, true}, /* one is the front's and CPU 0's is free */
	    {16, 0, 1, 14, 1, true}, /* which is the reserved one */
	    {16, 0, 4, 11, 4, true},
	    {32, 1, 4, 11, 4, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		use_made_up(cases[i].cpus, cases[i].smt);
		config.reserve_cores = cases[i].reserve;
		request = placement_request(&config);
		assert_int_equal(make(), 0);
		assert_int_equal(plan.threads, cases[i].threads);
		assert_int_equal(plan.separate, cases[i].separate);
		assert_int_equal(free_cores(), cases[i].free);
		assert_string_equal(plan.warning, "");
	}
	use("laptop"); /* its slow cores are left anyway: the fast ones compute */
	request.reserve_cores = 2;
	assert_int_equal(make(), 0);
	assert_int_equal(plan.threads, 4);
}

static void reserved_cores_and_other_limits(void **state)
{
	use_made_up(8, false);
	request.reserve_cores = 2;
	topology.quota_cpus = 4.5; /* of CPU time, which others share */
	assert_int_equal(make(), 0);
	assert_int_equal(plan.threads, 2);
	request.threads = 7; /* who says how many wins */
	assert_int_equal(make(), 0);
	assert_int_equal(plan.threads, 7);
	assert_string_equal(plan.warning, "");
	use_made_up(4, false);
	for (request.reserve_cores = 4; request.reserve_cores <= 256; request.reserve_cores *= 2) {
		assert_int_equal(make(), 0);
		assert_int_equal(plan.threads, 1);
		assert_false(plan.separate);
		assert_non_null(strstr(plan.warning, "leaves none of the 4 cores"));
	}
}

static void options_win(void **state)
{
	use("two_sockets");
	config.threads = 3;
	config.engine_cpu = 2;
	config.front_cpu = 4;
	config.worker_cpus = (struct config_cpus){.n = 2, .cpu = {9, 3}};
	config.memory_node = 1;
	strcpy(config.front, "own");
	request = placement_request(&config);
	assert_int_equal(make(), 0);
	expect_on((const int[]){2, 9, 3}, 3);
	assert_int_equal(plan.front_cpu, 4);
	expect_said("engine", 2, 0, "engine_cpu says so");
	expect_said("front", 4, 0, "front_cpu says so");
	expect_said("worker", 3, 0, "worker_cpus says so");
	expect_place(PLAN_WEIGHTS, 2, "memory_node says so");
	expect_place(PLAN_KV, 2, "memory_node says so");
	expect_place(PLAN_CHANNELS, 1, "at the front");
	config.worker_cpus.n = 0; /* chosen, on the node of memory_node, and none of the CPUs named */
	request = placement_request(&config);
	assert_int_equal(make(), 0);
	expect_on((const int[]){2, 8, 9}, 3);
	config.front[0] = 's';
	strcpy(config.front, "shared");
	request = placement_request(&config);
	assert_int_equal(make(), 0);
	expect_said("front", 2, 0, "front = shared says so");
}

static void impossible_options_are_refused(void **state)
{
	use_made_up(4, false);
	config.threads = 4;
	config.worker_cpus = (struct config_cpus){.n = 2, .cpu = {3, 1}};
	request = placement_request(&config);
	assert_int_equal(make(), -EINVAL);
	assert_non_null(strstr(why, "worker_cpus lists 2 CPUs for 3 threads"));
	request.engine_cpu = 9;
	assert_int_equal(make(), -EINVAL);
	assert_non_null(strstr(why, "engine_cpu names CPU 9"));
	request.engine_cpu = -1;
	request.front_cpu = 4;
	assert_int_equal(make(), -EINVAL);
	assert_non_null(strstr(why, "front_cpu names CPU 4"));
	request.memory_node = 1;
	assert_int_equal(make(), -EINVAL);
	assert_non_null(strstr(why, "memory_node names node 1, which this machine does not have"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(one_node_uses_every_core),
	    TEST(two_sockets_begin_where_most_memory_is),
	    TEST(few_threads_stay_on_one_node),
	    TEST(threads_stay_together_before_the_front_is_near),
	    TEST(threads_go_to_the_accelerator),
	    TEST(siblings_come_after_all_cores),
	    TEST(memory_avoids_nodes_that_are_not_allowed),
	    TEST(a_laptop_computes_on_its_fast_cores),
	    TEST(a_spare_cpu_goes_to_the_front),
	    TEST(the_front_avoids_cores_that_compute),
	    TEST(reserved_cores_stay_free),
	    TEST(reserved_cores_and_other_limits),
	    TEST(options_win),
	    TEST(impossible_options_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
