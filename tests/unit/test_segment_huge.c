/* The seals on huge pages. As root the test lends itself four pages and gives them back; else it needs them
 * free. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/segment_pair.h"

static const char pool[] = "/proc/sys/vm/nr_hugepages";

static long pool_read(const char *path)
{
	FILE *file = fopen(path, "re");
	long pages = -1;

	if (!file)
		return -1;
	if (fscanf(file, "%ld", &pages) != 1)
		pages = -1;
	fclose(file);
	return pages;
}

static void pool_write(long pages)
{
	FILE *file = fopen(pool, "we");

	if (!file)
		return;
	fprintf(file, "%ld", pages);
	fclose(file);
}

static void sealed_huge_pages_cannot_be_taken_away(void **state)
{
	sealed_memory_cannot_be_taken_away(SEGMENT_PAGES_REQUIRE);
}

static void the_arena_takes_what_rounding_leaves(void **state)
{
	struct pair pair;

	pair_make(&pair, SEGMENT_PAGES_AUTO);
	assert_true(pair.daemon.huge);
	assert_int_equal(pair.layout.bytes, SEGMENT_HUGE_BYTES);
	assert_int_equal(pair.layout.arena_off + pair.layout.arena_bytes, SEGMENT_HUGE_BYTES);
	assert_int_equal((uintptr_t)pair.client.base % SEGMENT_HUGE_BYTES, 0);
	pair_free(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sealed_huge_pages_cannot_be_taken_away),
	    cmocka_unit_test(the_arena_takes_what_rounding_leaves),
	};
	struct segment_layout layout;
	struct segment probe = {.fd = -1};
	char why[200] = "";
	long before = pool_read(pool);
	int failed;

	pool_write(before + 4);
	segment_layout(&layout, 64, 128, 64, ARENA, 0);
	if (segment_create(&probe, &layout, SEGMENT_PAGES_REQUIRE, why, sizeof why) < 0) {
		printf("SKIP: %s\n", why);
		pool_write(before);
		return 77;
	}
	segment_destroy(&probe);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	pool_write(before);
	return failed;
}
