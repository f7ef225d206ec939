/* Memory on the pages that were wished for, and what is said when there are none: checked against meminfo. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "numa/memory.h"
#include "numa/observe.h"

enum { MIB = 1 << 20 };

/* Free less promised 2 MiB pages. */
static long free_huge_pages(void)
{
	char line[256];
	long n = 0, value;
	FILE *file = fopen("/proc/meminfo", "r");

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "HugePages_Free: %ld", &value) == 1)
			n += value;
		if (sscanf(line, "HugePages_Rsvd: %ld", &value) == 1)
			n -= value;
	}
	fclose(file);
	return n;
}

static struct observed_memory observe(const struct numa_region *region)
{
	struct observe_range range = {.base = (uintptr_t)region->base, .bytes = region->bytes};
	struct observed_memory seen;

	assert_int_equal(observe_memory("/proc/self", &range, 1, &seen, 1), 0);
	return seen;
}

static void pages_are_counted_without_much_waste(void **state)
{
	assert_int_equal(numa_pages_for(16 * MIB, NUMA_PAGES_2M), 8);
	assert_int_equal(numa_pages_for(16 * MIB + 1, NUMA_PAGES_2M), 9);
	assert_int_equal(numa_pages_for(2 * MIB + 1, NUMA_PAGES_2M), 0); /* nearly half would be wasted */
	assert_int_equal(numa_pages_for(100 * MIB, NUMA_PAGES_1G), 0);
	assert_int_equal(numa_pages_for((size_t)1000 * MIB, NUMA_PAGES_1G), 1);
	assert_int_equal(numa_pages_for((size_t)1100 * MIB, NUMA_PAGES_1G), 0);
}

static void memory_is_zeroed_and_aligned(void **state)
{
	const size_t sizes[] = {1, 4096, 5 * MIB};

	for (int i = 0; i < 6; i++) {
		struct numa_wish wish = {.transparent = i < 3, .touch = i % 2};
		struct numa_region region;
		size_t bytes = sizes[i % 3];

		assert_int_equal(numa_map(&region, bytes, &wish), 0);
		assert_true(region.bytes >= bytes);
		assert_int_equal((uintptr_t)region.base % (i == 2 ? 2 * MIB : 4096), 0);
		assert_int_equal(region.base[0] | region.base[bytes - 1], 0);
		memset(region.base, 1, bytes);
		numa_unmap(&region);
	}
}

/* Of memory that may not be made of huge pages just what was touched is there, page by page. */
static void what_is_touched_is_seen(void **state)
{
	struct numa_region region;
	struct observed_memory seen;

	assert_int_equal(numa_map(&region, 8 * MIB, &(struct numa_wish){.nodes = 1}), 0);
	assert_int_equal(region.pages, NUMA_PAGES_ORDINARY);
	memset(region.base + MIB, 1, 3 * MIB);
	seen = observe(&region);
	assert_int_equal(seen.bytes, 3 * MIB);
	assert_int_equal(seen.huge_bytes, 0);
	assert_int_equal(seen.page_bytes, 4096);
	assert_int_equal(seen.on_node[0], 3 * MIB);
	numa_unmap(&region);
}

static void a_write_past_the_end_is_caught(void **state)
{
	struct numa_region region;
	int status;

	assert_int_equal(numa_map(&region, 4 * MIB, &(struct numa_wish){.transparent = true}), 0);
	pid_t child = fork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		region.base[region.bytes] = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
	numa_unmap(&region);
}

static void reserved_pages_are_taken_and_given_back(void **state)
{
	long before = free_huge_pages();
	struct numa_region region;
	struct observed_memory seen;

	if (before < 5) {
		print_message("5 free huge pages of 2 MiB are needed\n");
		skip();
	}
	assert_int_equal(numa_map(&region, 9 * MIB, &(struct numa_wish){.reserved = true}), 0);
	assert_int_equal(region.pages, NUMA_PAGES_2M);
	assert_int_equal(region.bytes, 10 * MIB);
	assert_int_equal(free_huge_pages(), before - 5);
	seen = observe(&region);
	assert_int_equal(seen.bytes, 10 * MIB);
	assert_int_equal(seen.huge_bytes, 10 * MIB);
	assert_int_equal(seen.page_bytes, 2 * MIB);
	numa_unmap(&region);
	assert_int_equal(free_huge_pages(), before);
}

/* More than there is: the next kind of pages, and not one reserved page less. */
static void the_next_pages_serve_when_there_are_too_few(void **state)
{
	long before = free_huge_pages();
	size_t bytes = (size_t)(before + 8) * 2 * MIB;
	struct numa_wish wish = {.reserved = true, .transparent = true};
	struct numa_region region;

	assert_int_equal(numa_map(&region, bytes, &wish), 0);
	assert_int_equal(region.pages, NUMA_PAGES_TRANSPARENT);
	assert_int_equal(free_huge_pages(), before);
	numa_unmap(&region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(pages_are_counted_without_much_waste),
	    cmocka_unit_test(memory_is_zeroed_and_aligned),
	    cmocka_unit_test(what_is_touched_is_seen),
	    cmocka_unit_test(a_write_past_the_end_is_caught),
	    cmocka_unit_test(reserved_pages_are_taken_and_given_back),
	    cmocka_unit_test(the_next_pages_serve_when_there_are_too_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
