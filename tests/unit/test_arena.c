/* The client's allocator against a map of what is taken: random calls, every overlap found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "shm/arena.h"

enum { UNITS = 1500, LIVE_MAX = 300 };

static unsigned char taken[UNITS];
static uint32_t first_of[LIVE_MAX], length_of[LIVE_MAX];

static void mark(uint32_t first, uint32_t length, unsigned char value)
{
	for (uint32_t i = first; i < first + length; i++) {
		assert_int_equal(taken[i], !value);
		taken[i] = value;
	}
}

static uint32_t longest_gap(void)
{
	uint32_t longest = 0, gap = 0;

	for (uint32_t i = 0; i < UNITS; i++) {
		gap = taken[i] ? 0 : gap + 1;
		if (gap > longest)
			longest = gap;
	}
	return longest;
}

static void give(struct arena *arena, uint32_t *n_live, uint32_t which)
{
	arena_give(arena, first_of[which]);
	mark(first_of[which], length_of[which], 0);
	--*n_live;
	first_of[which] = first_of[*n_live];
	length_of[which] = length_of[*n_live];
}

static void take(struct arena *arena, uint32_t *n_live, uint32_t length)
{
	uint32_t first = arena_take(arena, length);

	if (first == ARENA_NONE)
		return;
	assert_true(first + length <= UNITS);
	mark(first, length, 1);
	first_of[*n_live] = first;
	length_of[*n_live] = length;
	++*n_live;
}

static void random_calls_never_overlap_and_merge_fully(void **state)
{
	struct arena arena;
	uint32_t n_live = 0;

	srand(1);
	memset(taken, 0, sizeof taken);
	assert_int_equal(arena_init(&arena, UNITS), 0);
	for (int step = 0; step < 200000; step++) {
		uint32_t length = 1 + (uint32_t)rand() % (rand() % 8 ? 12 : 200);

		if (n_live && (n_live == LIVE_MAX || rand() % 2))
			give(&arena, &n_live, (uint32_t)rand() % n_live);
		else
			take(&arena, &n_live, length);
		/* No two free neighbours stay apart: the allocator's longest run is the map's. */
		if (step % 1000 == 0)
			assert_int_equal(arena_longest(&arena), longest_gap());
	}
	while (n_live)
		give(&arena, &n_live, 0);
	assert_int_equal(arena_longest(&arena), UNITS);
	arena_destroy(&arena);
}

static void the_whole_arena_can_be_one_block(void **state)
{
	for (uint32_t n = 1; n < 300; n++) {
		struct arena arena;

		assert_int_equal(arena_init(&arena, n), 0);
		assert_int_equal(arena_take(&arena, n + 1), ARENA_NONE);
		assert_int_equal(arena_take(&arena, 0), ARENA_NONE);
		assert_int_equal(arena_take(&arena, n), 0);
		assert_int_equal(arena_take(&arena, 1), ARENA_NONE);
		arena_give(&arena, 0);
		assert_int_equal(arena_take(&arena, n), 0);
		arena_destroy(&arena);
	}
}

static void an_empty_arena_gives_nothing(void **state)
{
	struct arena arena;

	assert_int_equal(arena_init(&arena, 0), 0);
	assert_int_equal(arena_take(&arena, 1), ARENA_NONE);
	arena_destroy(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(random_calls_never_overlap_and_merge_fully),
	    cmocka_unit_test(the_whole_arena_can_be_one_block),
	    cmocka_unit_test(an_empty_arena_gives_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
