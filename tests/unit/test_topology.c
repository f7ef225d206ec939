/* Topology from folders that stand for machines: recorded ones, hand-made ones and broken ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <unistd.h>

#include "numa/topology.h"
#include "tests/harness/machine.h"

static struct topology topology;

static void allow(const char *list)
{
	char text[256];

	snprintf(text, sizeof text, "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\n", list);
	machine_put("proc/self/status", text);
}

static void read_machine(const char *name)
{
	machine_unpack(name);
	assert_int_equal(topology_read(machine_root, &topology), 0);
}

/* What the recording says, line by line. */
static void a_machine_of_one_node(void **state)
{
	read_machine("one_node");
	assert_int_equal(topology.n_cpus, 2);
	assert_int_equal(topology.n_cores, 2);
	assert_int_equal(topology.n_nodes, 1);
	assert_int_equal(topology.n_offline, 0);
	assert_true(topology.quota_cpus == 0);
	assert_int_equal(topology.cpu[1].core, 1);
	assert_int_equal(topology.cpu[1].cache, 0);
	assert_int_equal(topology.node[0].memory_bytes, UINT64_C(24683652) * 1024);
	assert_int_equal(topology.node[0].cores, 2);
	assert_int_equal(topology.node[0].distance[0], 10);
	assert_int_equal(topology.n_devices, 1);
	assert_string_equal(topology.device[0].address, "0000:00:03.0");
	assert_int_equal(topology.device[0].kind, TOPOLOGY_NETWORK);
	assert_int_equal(topology.device[0].node, -1);
}

static void a_server_of_two_sockets(void **state)
{
	static const struct topology_device devices[] = {
	    {"0000:17:00.0", TOPOLOGY_NETWORK, 0x020000, 0},
	    {"0000:17:00.1", TOPOLOGY_NETWORK, 0x020000, 0},
	    {"0000:b1:00.0", TOPOLOGY_ACCELERATOR, 0x030200, 1},
	    {"0000:ca:00.0", TOPOLOGY_NVME, 0x010802, 1},
	};

	read_machine("two_sockets");
	assert_int_equal(topology.n_cpus, 32);
	assert_int_equal(topology.n_cores, 16);
	assert_int_equal(topology.n_nodes, 2);
	for (uint32_t i = 0; i < 32; i++) {
		const struct topology_cpu *cpu = &topology.cpu[i];

		assert_int_equal(cpu->id, i);
		assert_int_equal(cpu->core, i % 16);
		assert_int_equal(cpu->node, i % 16 / 8);
		assert_int_equal(cpu->package, i % 16 / 8);
		assert_int_equal(cpu->cache, i % 16 / 8 * 8);
		assert_false(cpu->efficiency);
	}
	assert_int_equal(topology.node[0].cores, 8);
	assert_int_equal(topology.node[1].cores, 8);
	assert_int_equal(topology.node[1].memory_bytes, UINT64_C(264214960) * 1024);
	assert_int_equal(topology.node[1].free_bytes, UINT64_C(259118204) * 1024);
	assert_int_equal(topology.node[0].distance[1], 21);
	assert_int_equal(topology.node[1].distance[0], 21);
	assert_int_equal(topology.node[1].distance[1], 10);
	assert_int_equal(topology.node[0].pages[TOPOLOGY_PAGE_2M], 512);
	assert_int_equal(topology.node[1].free_pages[TOPOLOGY_PAGE_2M], 1023);
	assert_int_equal(topology.node[0].pages[TOPOLOGY_PAGE_1G], 0);
	assert_int_equal(topology.node[1].pages[TOPOLOGY_PAGE_1G], 8);
	assert_int_equal(topology.n_devices, 4);
	assert_memory_equal(topology.device, devices, sizeof(devices));
}

static void drives_are_found_through_partitions_and_volumes(void **state)
{
	char address[16];
	int node = -2;

	machine_unpack("two_sockets");
	for (unsigned minor = 0; minor <= 2; minor += 2) {
		assert_int_equal(topology_storage(machine_root, 259, minor, &node, address, sizeof(address)),
				 0);
		assert_int_equal(node, 1);
		assert_string_equal(address, "0000:ca:00.0");
	}
	node = -2;
	assert_int_equal(topology_storage(machine_root, 254, 0, &node, address, sizeof(address)), 0);
	assert_int_equal(node, 1);
	assert_string_equal(address, "0000:ca:00.0");
	assert_int_equal(topology_storage(machine_root, 7, 0, &node, address, sizeof(address)), -ENOENT);
	assert_int_equal(topology_storage(machine_root, 8, 0, &node, address, sizeof(address)), -ENOENT);
}

/* Allowed by the cpuset and online: fast cores 2-9, of which 2 and 3 are one, and slow cores 12, 13. */
static void a_laptop_with_a_cpuset_and_offline_cpus(void **state)
{
	static const int ids[] = {2, 3, 4, 5, 6, 7, 8, 9, 12, 13};
	static const int cores[] = {2, 2, 4, 4, 6, 6, 8, 8, 12, 13};

	read_machine("laptop");
	assert_int_equal(topology.n_cpus, 10);
	assert_int_equal(topology.n_cores, 6);
	assert_int_equal(topology.n_offline, 2);
	assert_true(topology.quota_cpus == 6);
	for (uint32_t i = 0; i < 10; i++) {
		assert_int_equal(topology.cpu[i].id, ids[i]);
		assert_int_equal(topology.cpu[i].core, cores[i]);
		assert_int_equal(topology.cpu[i].efficiency, ids[i] >= 12);
	}
	assert_int_equal(topology.n_devices, 2); /* the display adapter is no accelerator */
	assert_int_equal(topology.device[0].kind, TOPOLOGY_NETWORK);
	assert_int_equal(topology.device[1].node, -1);
}

static void only_allowed_memory_counts(void **state)
{
	machine_unpack("two_sockets");
	machine_put("proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t1\n");
	assert_int_equal(topology_read(machine_root, &topology), 0);
	assert_int_equal(topology.n_cpus, 4);
	assert_false(topology.node[0].allowed);
	assert_true(topology.node[1].allowed);
	assert_int_equal(topology.node[1].cores, 0);
}

static void the_smallest_quota_above_counts(void **state)
{
	allow("0-7");
	machine_put("proc/self/cgroup", "0::/a/b\n");
	machine_put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
	machine_put("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
	assert_int_equal(topology_read(machine_root, &topology), 0);
	assert_true(topology.quota_cpus == 2.5);
	machine_put("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
	assert_int_equal(topology_read(machine_root, &topology), 0);
	assert_true(topology.quota_cpus == 0.5);
}

static void quotas_of_cgroup_1_count(void **state)
{
	allow("0-7");
	machine_put("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/x\n");
	machine_put("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
	machine_put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
	machine_put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	machine_put("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
	assert_int_equal(topology_read(machine_root, &topology), 0);
	assert_true(topology.quota_cpus == 3);
}

static void a_machine_without_lists_is_refused(void **state)
{
	assert_int_equal(topology_read(machine_root, &topology), -ENOENT);
	machine_put("proc/self/status", "Name:\tx\n");
	assert_int_equal(topology_read(machine_root, &topology), -ENOENT);
	allow("0-2000");
	assert_int_equal(topology_read(machine_root, &topology), -E2BIG);
	allow("4-7");
	machine_put("sys/devices/system/cpu/online", "0-3\n");
	assert_int_equal(topology_read(machine_root, &topology), -ENOENT);
}

/* Each file of the two-socket machine in turn says something else: what can be read of the rest stays. */
static void broken_files_count_as_unknown(void **state)
{
	static const char *const broken[] = {"",
					     "\n",
					     "-",
					     "-1\n",
					     "0-",
					     "3-1\n",
					     "0-99999999999999999999\n",
					     "a-b\n",
					     "1,,2\n",
					     "0x\n",
					     "0xfffffffff\n",
					     "\xff\xfe\n",
					     "18446744073709551616\n",
					     "Node 0 MemTotal: -7 kB\n",
					     "10 70000 -3\n",
					     "nan inf\n",
					     "1e308 1e-308\n"};
	static const char *const paths[] = {
	    "sys/devices/system/cpu/cpu3/topology/thread_siblings_list",
	    "sys/devices/system/cpu/cpu3/topology/physical_package_id",
	    "sys/devices/system/cpu/cpu3/cache/index3/level",
	    "sys/devices/system/cpu/cpu3/cache/index3/shared_cpu_list",
	    "sys/devices/system/node/node1/cpulist",
	    "sys/devices/system/node/node1/distance",
	    "sys/devices/system/node/node1/meminfo",
	    "sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
	    "sys/devices/system/node/online",
	    "sys/devices/system/cpu/online",
	    "sys/bus/pci/devices/0000:ca:00.0/class",
	    "sys/bus/pci/devices/0000:ca:00.0/numa_node",
	    "sys/fs/cgroup/system.slice/tokenringd.service/cpu.max",
	    "sys/fs/cgroup/system.slice/tokenringd.service/cpuset.cpus.effective",
	};

	machine_unpack("two_sockets");
	for (size_t p = 0; p < sizeof(paths) / sizeof(*paths); p++)
		for (size_t b = 0; b < sizeof(broken) / sizeof(*broken); b++) {
			machine_put(paths[p], broken[b]);
			assert_int_equal(topology_read(machine_root, &topology), 0);
			assert_int_equal(topology.n_cpus, 32);
			assert_in_range(topology.n_cores, 16, 17);
			assert_in_range(topology.n_nodes, 1, 2);
			assert_true(topology.quota_cpus >= 0 && topology.quota_cpus < 8192);
			assert_in_range(topology.cpu[3].core, 3, 3);
		}
}

static void this_machine_has_its_online_cpus(void **state)
{
	assert_int_equal(topology_read("", &topology), 0);
	assert_in_range(topology.n_cpus, 1, (unsigned long)sysconf(_SC_NPROCESSORS_ONLN));
	assert_in_range(topology.n_cores, 1, topology.n_cpus);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_machine_of_one_node),
	    TEST(a_server_of_two_sockets),
	    TEST(drives_are_found_through_partitions_and_volumes),
	    TEST(a_laptop_with_a_cpuset_and_offline_cpus),
	    TEST(only_allowed_memory_counts),
	    TEST(the_smallest_quota_above_counts),
	    TEST(quotas_of_cgroup_1_count),
	    TEST(a_machine_without_lists_is_refused),
	    TEST(broken_files_count_as_unknown),
	    TEST(this_machine_has_its_online_cpus),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
