/* Topology from folders that stand for machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "numa/topology.h"
#include "tests/harness/scratch.h"

static char root[64];
static struct topology topology;

static int setup(void **state)
{
	return mkdtemp(scratch_path(root, sizeof root, "tokenring-topology")) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof command, "rm -rf %s", root);
	return system(command);
}

static void put(const char *path, const char *text)
{
	char full[256];

	snprintf(full, sizeof full, "%s/%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(full, 0700);
		*slash = '/';
	}
	FILE *file = fopen(full, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void allow(const char *list)
{
	char text[256];

	snprintf(text, sizeof text, "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\n", list);
	put("proc/self/status", text);
}

/* Two nodes of two cores with two threads: siblings c and c + 4; node 0 has cores 0, 1. */
static void two_nodes(void)
{
	static const char *const siblings[] = {"0,4", "1,5", "2,6", "3,7"};
	char path[128];

	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
		put(path, siblings[i % 4]);
	}
	put("sys/devices/system/node/online", "0-1\n");
	put("sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
	put("sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
}

static void cores_come_before_siblings_and_a_node_before_the_next(void **state)
{
	int cpus[10];
	const int want[10] = {0, 1, 2, 3, 4, 5, 6, 7, -1, -1};

	allow("0-7");
	two_nodes();
	assert_int_equal(topology_read(root, &topology), 0);
	assert_int_equal(topology.n_cpus, 8);
	assert_int_equal(topology.n_cores, 4);
	assert_int_equal(topology.n_nodes, 2);
	assert_int_equal(topology_threads(&topology), 4);
	topology_place(&topology, 10, cpus);
	assert_memory_equal(cpus, want, sizeof want);
}

static void only_allowed_cpus_are_chosen(void **state)
{
	int cpus[3];
	const int want[3] = {2, 3, 5};

	allow("2-3,5-6");
	two_nodes();
	assert_int_equal(topology_read(root, &topology), 0);
	assert_int_equal(topology.n_cores, 3); /* 6 is a sibling of 2, 5's sibling is not allowed */
	topology_place(&topology, 3, cpus);    /* node 1 has two cores, node 0 one */
	assert_memory_equal(cpus, want, sizeof want);
}

static void the_smallest_quota_above_counts(void **state)
{
	allow("0-7");
	put("proc/self/cgroup", "0::/a/b\n");
	put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
	put("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
	assert_int_equal(topology_read(root, &topology), 0);
	assert_true(topology.quota_cpus == 2.5);
	assert_int_equal(topology_threads(&topology), 2);
	put("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
	assert_int_equal(topology_read(root, &topology), 0);
	assert_true(topology.quota_cpus == 0.5);
	assert_int_equal(topology_threads(&topology), 1);
}

static void quotas_of_cgroup_1_count(void **state)
{
	allow("0-7");
	put("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/x\n");
	put("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	put("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
	assert_int_equal(topology_read(root, &topology), 0);
	assert_true(topology.quota_cpus == 3);
}

static void a_machine_without_lists_is_refused(void **state)
{
	assert_int_equal(topology_read(root, &topology), -ENOENT);
	put("proc/self/status", "Name:\tx\n");
	assert_int_equal(topology_read(root, &topology), -ENOENT);
	allow("0-2000");
	assert_int_equal(topology_read(root, &topology), -E2BIG);
}

static void this_machine_has_its_online_cpus(void **state)
{
	assert_int_equal(topology_read("", &topology), 0);
	assert_in_range(topology.n_cpus, 1, (unsigned long)sysconf(_SC_NPROCESSORS_CONF));
	assert_in_range(topology_threads(&topology), 1, topology.n_cpus);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(cores_come_before_siblings_and_a_node_before_the_next),
	    TEST(only_allowed_cpus_are_chosen),
	    TEST(the_smallest_quota_above_counts),
	    TEST(quotas_of_cgroup_1_count),
	    TEST(a_machine_without_lists_is_refused),
	    TEST(this_machine_has_its_online_cpus),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
