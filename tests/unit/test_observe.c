/* What the kernel's files say of threads and memory: from texts of a machine with two nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "numa/observe.h"
#include "tests/harness/machine.h"

/* Reserved pages on node 1; 3 + 1 MiB of which 2 are a huge page; a stranger's mapping; a channel. */
static const char numa_maps[] =
    "7f0000000000 bind:1 huge anon=3 dirty=3 N1=3 kernelpagesize_kB=2048\n"
    "7f0010000000 interleave:0-1 anon=1024 dirty=1024 N0=768 N1=256 kernelpagesize_kB=4\n"
    "7f0020000000 default anon=9 N0=9 kernelpagesize_kB=4\n"
    "7f0030000000 prefer:1 file=/memfd:tokenring\\040(deleted) dirty=512 N1=512 "
    "kernelpagesize_kB=4\n";

static const char smaps[] =
    "7f0000000000-7f0000600000 rw-p 00000000 00:0f 33 /anon_hugepage (deleted)\n"
    "Size: 6144 kB\nKernelPageSize:     2048 kB\nRss:                   0 kB\n"
    "AnonHugePages:         0 kB\nPrivate_Hugetlb:    6144 kB\nVmFlags: rd wr ht\n"
    "7f0010000000-7f0010800000 rw-p 00000000 00:00 0\n"
    "KernelPageSize:        4 kB\nRss:                4096 kB\nAnonHugePages:      2048 kB\n"
    "7f0020000000-7f0020010000 rw-p 00000000 00:00 0\n"
    "KernelPageSize:        4 kB\nRss:                  36 kB\n"
    "7f0030000000-7f0030200000 rw-s 00000000 00:01 7 /memfd:tokenring (deleted)\n"
    "KernelPageSize:        4 kB\nRss:                2048 kB\nShmemPmdMapped:     2048 kB\n";

static const struct observe_range ranges[] = {
    {0x7f0000000000, 6 << 20, 0},
    {0x7f0010000000, 8 << 20, 1},
    {0x7f0030000000, 2 << 20, 2},
};

static void memory_is_counted_by_node_and_page(void **state)
{
	struct observed_memory seen[3];

	machine_put("numa_maps", numa_maps);
	machine_put("smaps", smaps);
	assert_int_equal(observe_memory(machine_root, ranges, 3, seen, 3), 0);
	assert_int_equal(seen[0].on_node[1], 6 << 20);
	assert_int_equal(seen[0].on_node[0], 0);
	assert_int_equal(seen[0].bytes, 6 << 20);
	assert_int_equal(seen[0].huge_bytes, 6 << 20);
	assert_int_equal(seen[0].page_bytes, 2 << 20);
	assert_int_equal(seen[1].on_node[0], 3 << 20);
	assert_int_equal(seen[1].on_node[1], 1 << 20);
	assert_int_equal(seen[1].bytes, 4 << 20);
	assert_int_equal(seen[1].huge_bytes, 2 << 20);
	assert_int_equal(seen[1].page_bytes, 4096);
	assert_int_equal(seen[2].on_node[1], 2 << 20);
	assert_int_equal(seen[2].huge_bytes, 2 << 20);
}

static void a_kernel_without_nodes_has_node_0(void **state)
{
	struct observed_memory seen[3];

	assert_int_equal(observe_memory(machine_root, ranges, 3, seen, 3), -ENOENT);
	machine_put("smaps", smaps);
	assert_int_equal(observe_memory(machine_root, ranges, 3, seen, 3), 0);
	assert_int_equal(seen[1].on_node[0], 4 << 20);
	assert_int_equal(seen[0].on_node[0], 6 << 20);
}

static void broken_texts_count_as_nothing(void **state)
{
	static const char *const broken[] = {
	    "",
	    "\n\n\n",
	    "7f0000000000",
	    "7f0000000000 N",
	    "7f0000000000 N999999=3 N-1=4 N1 N=7 kernelpagesize_kB=4\n",
	    "7f0000000000-\nRss:\nRss: x\nRss: -4 kB\nKernelPageSize: 99999999999999999999999 kB\n",
	};
	struct observed_memory seen[3];

	for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++) {
		machine_put("numa_maps", broken[i]);
		machine_put("smaps", broken[i]);
		assert_int_equal(observe_memory(machine_root, ranges, 3, seen, 3), 0);
		assert_int_equal(seen[0].bytes | seen[0].on_node[0] | seen[0].on_node[1] | seen[0].page_bytes,
				 0);
	}
}

static void threads_are_read(void **state)
{
	struct observed_thread threads[4];

	machine_put("task/7/status", "Name:\tengine\nCpus_allowed_list:\t3\n");
	machine_put("task/7/stat",
		    "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 "
		    "29 30 31 32 33 34 35 12 40\n");
	machine_put("task/8/status", "Name:\tworker\n"); /* ended meanwhile: no list */
	assert_int_equal(observe_threads(machine_root, threads, 4), 1);
	assert_int_equal(threads[0].id, 7);
	assert_string_equal(threads[0].name, "engine");
	assert_int_equal(id_set_count(&threads[0].allowed), 1);
	assert_true(id_set_has(&threads[0].allowed, 3));
	assert_int_equal(threads[0].last_cpu, 12); /* proc(5): field 39, the 37th after the name */
}

static void *wait_for_release(void *data)
{
	pthread_mutex_lock(data);
	pthread_mutex_unlock(data);
	return NULL;
}

static void a_pinned_thread_of_this_process_is_seen(void **state)
{
	struct observed_thread threads[16];
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_attr_t attributes;
	cpu_set_t allowed, one;
	pthread_t thread;
	int cpu = 0, n, found = 0;

	sched_getaffinity(0, sizeof(allowed), &allowed);
	while (!CPU_ISSET(cpu, &allowed))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	pthread_attr_init(&attributes);
	pthread_attr_setaffinity_np(&attributes, sizeof(one), &one);
	pthread_mutex_lock(&lock);
	assert_int_equal(pthread_create(&thread, &attributes, wait_for_release, &lock), 0);
	pthread_setname_np(thread, "pinned");
	n = observe_threads("/proc/self", threads, 16);
	for (int i = 0; i < n; i++)
		if (!strcmp(threads[i].name, "pinned")) {
			found++;
			assert_int_equal(id_set_first(&threads[i].allowed), cpu);
			assert_int_equal(id_set_count(&threads[i].allowed), 1);
		}
	assert_int_equal(found, 1);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attributes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(memory_is_counted_by_node_and_page),      TEST(a_kernel_without_nodes_has_node_0),
	    TEST(broken_texts_count_as_nothing),           TEST(threads_are_read),
	    TEST(a_pinned_thread_of_this_process_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
