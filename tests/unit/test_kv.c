/* The KV pool: reservation, sharing, and that every block comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>

#include "daemon/engine/kv.h"

enum { BLOCKS = 33, CAPACITY = 16 };

static void test_reserve_and_cover(void **state)
{
	struct kv_pool pool;
	struct kv_table a, b;
	uint32_t of_a[CAPACITY], of_b[CAPACITY];

	assert_int_equal(kv_pool_init(&pool, 1), -EINVAL);
	assert_int_equal(kv_pool_init(&pool, 9), 0);
	kv_table_init(&a, of_a, CAPACITY);
	kv_table_init(&b, of_b, CAPACITY);
	assert_int_equal(kv_available(&pool), 8);
	assert_true(kv_reserve(&pool, &a, 5));
	assert_int_equal(kv_available(&pool), 3);
	assert_int_equal(kv_used(&pool), 0);
	assert_false(kv_reserve(&pool, &b, 4));
	assert_true(kv_reserve(&pool, &b, 3));

	assert_true(kv_cover(&pool, &a, 1));
	assert_int_equal(a.n, 1);
	assert_true(kv_cover(&pool, &a, 32));
	assert_int_equal(a.n, 1);
	assert_true(kv_cover(&pool, &a, 33));
	assert_int_equal(a.n, 2);
	assert_int_not_equal(of_a[0], KV_NULL_BLOCK);
	assert_int_not_equal(of_a[0], of_a[1]);
	assert_int_equal(of_a[2], KV_NULL_BLOCK);
	assert_false(kv_cover(&pool, &a, 161));
	assert_int_equal(a.n, 2);
	assert_int_equal(kv_used(&pool), 2);

	kv_release(&pool, &a);
	kv_release(&pool, &b);
	assert_int_equal(kv_available(&pool), 8);
	assert_int_equal(of_a[0], KV_NULL_BLOCK);
	kv_pool_free(&pool);
}

static void test_copy_on_write(void **state)
{
	struct kv_pool pool;
	struct kv_table a, b;
	uint32_t of_a[CAPACITY], of_b[CAPACITY], from = 0;

	assert_int_equal(kv_pool_init(&pool, 9), 0);
	kv_table_init(&a, of_a, CAPACITY);
	kv_table_init(&b, of_b, CAPACITY);
	assert_true(kv_reserve(&pool, &a, 3) && kv_cover(&pool, &a, 70));
	assert_int_equal(kv_fork(&pool, &a, &b, 70), 2);
	assert_int_equal(of_b[1], of_a[1]);
	assert_int_equal(kv_used(&pool), 3);

	assert_int_equal(kv_make_private(&pool, &a, 2, &from), 0);
	assert_int_equal(kv_make_private(&pool, &b, 1, &from), -ENOSPC);
	assert_true(kv_reserve(&pool, &b, 1));
	assert_int_equal(kv_make_private(&pool, &b, 1, &from), 1);
	assert_int_equal(from, of_a[1]);
	assert_int_not_equal(of_b[1], of_a[1]);
	assert_int_equal(kv_make_private(&pool, &a, 1, &from), 0);

	kv_release(&pool, &a);
	assert_int_equal(kv_used(&pool), 2); /* the shared first block and the copy */
	kv_release(&pool, &b);
	assert_int_equal(kv_used(&pool), 0);
	kv_pool_free(&pool);
}

/* Random life of many tables; afterwards every block is back, and no block was ever in two private hands. */
static void test_random_life(void **state)
{
	enum { TABLES = 12 };
	struct kv_pool pool;
	struct kv_table table[TABLES];
	uint32_t entries[TABLES][CAPACITY];

	srandom(7);
	assert_int_equal(kv_pool_init(&pool, BLOCKS), 0);
	for (int i = 0; i < TABLES; i++)
		kv_table_init(&table[i], entries[i], CAPACITY);
	for (int round = 0; round < 20000; round++) {
		struct kv_table *t = &table[random() % TABLES], *other = &table[random() % TABLES];
		uint32_t count[BLOCKS] = {0}, reserved = 0, held = 0;

		switch (random() % 4) {
		case 0:
			kv_reserve(&pool, t, (uint32_t)random() % 6);
			break;
		case 1:
			kv_cover(&pool, t, (uint64_t)random() % 300);
			break;
		case 2:
			kv_release(&pool, t);
			break;
		default:
			if (!t->n && !t->reserved && t != other)
				kv_fork(&pool, other, t, (uint64_t)random() % 300);
		}
		for (int i = 0; i < TABLES; i++) {
			for (uint32_t j = 0; j < table[i].n; j++)
				count[entries[i][j]]++;
			reserved += table[i].reserved;
		}
		assert_int_equal(count[KV_NULL_BLOCK], 0);
		for (uint32_t i = 1; i < BLOCKS; i++) {
			assert_int_equal(count[i], pool.references[i]);
			held += count[i] > 0;
		}
		assert_int_equal(held, kv_used(&pool));
		assert_int_equal(reserved, pool.n_reserved);
		assert_true(pool.n_reserved <= pool.n_free);
	}
	for (int i = 0; i < TABLES; i++)
		kv_release(&pool, &table[i]);
	assert_int_equal(kv_available(&pool), BLOCKS - 1);
	kv_pool_free(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_reserve_and_cover),
	    cmocka_unit_test(test_copy_on_write),
	    cmocka_unit_test(test_random_life),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
