/* The memory budget, read from made-up /proc and /sys trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "daemon/budget.h"
#include "tests/harness/scratch.h"

static char root[64];

static void put(const char *path, const char *text)
{
	char full[512];
	FILE *file;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(full, 0755);
		*slash = '/';
	}
	file = fopen(full, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int begin(void **state)
{
	return mkdtemp(scratch_path(root, sizeof(root), "tokenring-budget")) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
	return remove(path);
}

static int end(void **state)
{
	return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void expect_limited(uint64_t memory_limit, uint64_t bytes, const char *source)
{
	struct budget budget;
	char why[100];

	assert_int_equal(budget_read(root, memory_limit, &budget, why, sizeof(why)), 0);
	assert_int_equal(budget.bytes, bytes);
	assert_string_equal(budget.source, source);
}

static void expect(uint64_t bytes, const char *source)
{
	expect_limited(0, bytes, source);
}

static void test_nothing_to_read(void **state)
{
	struct budget budget = {.bytes = 5};
	char why[100] = "";

	assert_int_equal(budget_read(root, 0, &budget, why, sizeof(why)), -EIO);
	assert_int_equal(budget.bytes, 5);
}

static void test_meminfo(void **state)
{
	put("/proc/meminfo", "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:    5000 kB\n");
	expect(5000 * 1024, "MemAvailable");
	expect_limited(4999 * 1024, 4999 * 1024, "option memory_limit");
	expect_limited(5001 * 1024, 5000 * 1024, "MemAvailable");
}

static void test_version_2_and_its_parents(void **state)
{
	put("/proc/meminfo", "MemAvailable: 5000 kB\n");
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/memory.max", "4096000\n");
	expect(4096000, "cgroup limit");
	put("/sys/fs/cgroup/a/b/memory.max", "1000000\n");
	expect(1000000, "cgroup limit");
}

static void test_version_1(void **state)
{
	put("/proc/meminfo", "MemAvailable: 5000 kB\n");
	put("/proc/self/cgroup", "9:name=systemd:/\n7:cpu,memory:/x/y\n5:memory_not:/z\n0::/\n");
	put("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "2000000\n");
	put("/sys/fs/cgroup/memory/z/memory.limit_in_bytes", "1\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	expect(2000000, "cgroup limit");
}

static void test_container_without_the_path(void **state)
{
	put("/proc/meminfo", "MemAvailable: 5000 kB\n");
	put("/proc/self/cgroup", "0::/host/path/unseen\n");
	put("/sys/fs/cgroup/memory.max", "3000000\n");
	expect(3000000, "cgroup limit");
}

static void test_refusal_has_the_numbers(void **state)
{
	struct budget budget = {.bytes = 100 << 20, .source = "cgroup limit"};
	struct demand demand = {
	    .weights = 50 << 20, .kv = 30 << 20, .scratch = 10 << 20, .channels = 10 << 20};
	char why[512];

	assert_int_equal(budget_check(&budget, &demand, why, sizeof(why)), 0);
	demand.kv += 1 << 20;
	assert_int_equal(budget_check(&budget, &demand, why, sizeof(why)), -ENOMEM);
	assert_non_null(
	    strstr(why, "50.0 MiB of weights, 31.0 MiB of KV cache, 10.0 MiB of scratch and 10.0 MiB"));
	assert_non_null(strstr(why, "are 101.0 MiB, and the cgroup limit is 100.0 MiB"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_nothing_to_read),
	    TEST(test_meminfo),
	    TEST(test_version_2_and_its_parents),
	    TEST(test_version_1),
	    TEST(test_container_without_the_path),
	    TEST(test_refusal_has_the_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
