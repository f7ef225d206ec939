/* The queue between two threads, from first indices whose counters wrap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "shm/queue.h"

enum { SLOTS = 4 };

static const uint32_t first_indices[] = {0, 1, UINT32_MAX - SLOTS, UINT32_MAX - 1, UINT32_MAX};

static void init_at(struct queue *queue, uint32_t first)
{
	assert_int_equal(queue_init(queue, SLOTS, sizeof(uint64_t)), 0);
	store_relaxed_u32(&queue->head, first);
	store_relaxed_u32(&queue->tail, first);
}

static void full_is_full_and_empty_is_empty(void **state)
{
	for (size_t i = 0; i < sizeof first_indices / sizeof first_indices[0]; i++) {
		struct queue queue;
		uint64_t element;

		init_at(&queue, first_indices[i]);
		for (int lap = 0; lap < 3; lap++) {
			assert_true(queue_empty(&queue));
			assert_false(queue_pop(&queue, &element));
			for (uint64_t n = 0; n < SLOTS; n++) {
				assert_false(queue_full(&queue));
				assert_true(queue_push(&queue, &n));
			}
			assert_true(queue_full(&queue));
			assert_false(queue_push(&queue, &(uint64_t){99}));
			for (uint64_t n = 0; n < SLOTS; n++) {
				assert_true(queue_pop(&queue, &element));
				assert_int_equal(element, n);
			}
		}
		queue_free(&queue);
	}
}

static void elements_come_in_order_through_the_wrap(void **state)
{
	for (size_t i = 0; i < sizeof first_indices / sizeof first_indices[0]; i++) {
		uint64_t pushed = 0, popped = 0, element;
		struct queue queue;

		init_at(&queue, first_indices[i]);
		while (popped < 50) {
			for (uint64_t n = 1 + popped % SLOTS; n > 0 && queue_push(&queue, &pushed); n--)
				pushed++;
			assert_true(queue_pop(&queue, &element));
			assert_int_equal(element, popped++);
		}
		queue_free(&queue);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(full_is_full_and_empty_is_empty),
	    cmocka_unit_test(elements_come_in_order_through_the_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
