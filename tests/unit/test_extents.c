#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "daemon/engine/extents.h"

enum { UNIT = 64, UNITS = 512, RANGES = 40 };

/* Against a map of units that knows nothing of ranges: no two live ranges overlap, nothing leaves the space,
 * and an allocation fails only when no run of free units is long enough. */
static unsigned char taken[UNITS];

static unsigned longest_free_run(void)
{
	unsigned longest = 0, run = 0;

	for (int i = 0; i < UNITS; i++) {
		run = taken[i] ? 0 : run + 1;
		longest = run > longest ? run : longest;
	}
	return longest;
}

static void mark(uint64_t offset, uint64_t bytes, unsigned char from)
{
	uint64_t first = (offset - 4096) / UNIT, n = (bytes + UNIT - 1) / UNIT;

	assert_true(offset >= 4096 && offset % UNIT == 0 && first + n <= UNITS);
	for (uint64_t i = first; i < first + n; i++) {
		assert_int_equal(taken[i], from);
		taken[i] = !from;
	}
}

static void test_random(void **state)
{
	struct extents extents;
	struct extent live[RANGES];
	unsigned n = 0;

	(void)state;
	srand(7);
	assert_int_equal(extents_init(&extents, 4096, UNITS * UNIT, UNIT, RANGES), 0);
	for (int round = 0; round < 200000; round++) {
		uint64_t bytes = (uint64_t)rand() % (rand() % 8 ? 600 : 12000) + 1, offset;

		if (n < RANGES && rand() % 2) {
			if (extents_alloc(&extents, bytes, &offset)) {
				mark(offset, bytes, 0);
				live[n++] = (struct extent){offset, bytes};
			} else {
				assert_true(longest_free_run() < (bytes + UNIT - 1) / UNIT);
			}
		} else if (n) {
			unsigned i = (unsigned)rand() % n;

			mark(live[i].offset, live[i].bytes, 1);
			extents_free(&extents, live[i].offset, live[i].bytes);
			live[i] = live[--n];
		}
	}
	while (n--)
		extents_free(&extents, live[n].offset, live[n].bytes);
	assert_int_equal(extents.n_free, 1);
	assert_int_equal(extents.free_ranges[0].bytes, UNITS * UNIT);
	extents_destroy(&extents);
}

static void test_bounds(void **state)
{
	struct extents extents;
	uint64_t offset = 1;

	(void)state;
	assert_int_equal(extents_init(&extents, 0, 100, UNIT, 4), -22);
	assert_int_equal(extents_init(&extents, 0, 128, 48, 4), -22);
	assert_int_equal(extents_init(&extents, 0, 128, UNIT, 4), 0);
	assert_false(extents_alloc(&extents, 0, &offset));
	assert_false(extents_alloc(&extents, 129, &offset));
	assert_false(extents_alloc(&extents, UINT64_MAX, &offset));
	assert_int_equal(offset, 1);
	assert_true(extents_alloc(&extents, 128, &offset));
	assert_int_equal(offset, 0);
	assert_false(extents_alloc(&extents, 1, &offset));
	extents_destroy(&extents);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_bounds)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
