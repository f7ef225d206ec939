#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "daemon/engine/tenants.h"

enum { ROOM = 40, USERS = 2, NUMBERS = 5, MOST = 5 };

/* Random joins and leaves beside a plain table of counters, always as full as allowed. */
static void test_against_table(void **state)
{
	struct tenants tenants = {0};
	uint32_t counts[USERS][NUMBERS] = {0}, entries[ROOM], user_of[ROOM], number_of[ROOM], n = 0, full = 0;

	(void)state;
	assert_int_equal(tenants_init(&tenants, ROOM), 0);
	srand(3);
	for (int i = 0; i < 200000; i++) {
		uint32_t user = (uint32_t)rand() % USERS, number = (uint32_t)(rand() % NUMBERS);
		uint32_t at = n ? (uint32_t)rand() % n : 0;

		if (n < ROOM && rand() % 3) {
			entries[n] = tenants_join(&tenants, user, number, MOST);
			assert_int_equal(entries[n] == UINT32_MAX, counts[user][number] == MOST);
			full += entries[n] == UINT32_MAX;
			if (entries[n] == UINT32_MAX)
				continue;
			user_of[n] = user;
			number_of[n++] = number;
			counts[user][number]++;
		} else if (n) {
			tenants_leave(&tenants, entries[at]);
			counts[user_of[at]][number_of[at]]--;
			n--;
			entries[at] = entries[n];
			user_of[at] = user_of[n];
			number_of[at] = number_of[n];
		}
	}
	assert_true(full > 100);
	tenants_destroy(&tenants);
}

/* As many pairs as there is room for, over and over. */
static void test_all_different(void **state)
{
	struct tenants tenants = {0};
	uint32_t entries[ROOM];

	(void)state;
	assert_int_equal(tenants_init(&tenants, ROOM), 0);
	for (uint32_t round = 0; round < 1000; round++) {
		for (uint32_t i = 0; i < ROOM; i++) {
			entries[i] = tenants_join(&tenants, round, i * 65536 + round, 1);
			assert_in_range(entries[i], 0, ROOM - 1);
		}
		for (uint32_t i = 0; i < ROOM; i++)
			tenants_leave(&tenants, entries[i]);
	}
	tenants_destroy(&tenants);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_table),
					   cmocka_unit_test(test_all_different)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
