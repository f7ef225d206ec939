/* Whether a cancel finds room in a ring whose slots were taken again before the daemon published that it
 * copied them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/client.h"

enum { SLOTS = 8, PUBLISHED = 0x5a };

static shared_u64 consumed;
static shared_u32 daemon_sleep;
static struct wire_slot slots[SLOTS];
static uint64_t table[2 * SLOTS];

/* All entries are in use; `index` slots were published, of which the daemon has said so far that it copied
 * none. */
static struct tr_client client_at(uint64_t first, uint64_t index)
{
	struct tr_client client = {
	    .submissions = {slots, &consumed, SLOTS - 1, first + index, first + SLOTS},
	    .table = table,
	    .ids = table + SLOTS,
	    .waker.word = &daemon_sleep,
	};

	client.gate.open = 1;
	client.layout.max_inflight = SLOTS;
	for (uint64_t i = 0; i < SLOTS; i++)
		client.ids[i] = (i + 1) << 16 | i;
	store_relaxed_u64(&consumed, first);
	memset(slots, PUBLISHED, sizeof slots);
	return client;
}

static void expect_untouched(void)
{
	unsigned char kept[sizeof slots];

	memset(kept, PUBLISHED, sizeof kept);
	assert_memory_equal(slots, kept, sizeof slots);
}

static void run_at(uint64_t first)
{
	for (uint64_t index = SLOTS; index < 2 * SLOTS; index++) {
		struct tr_client client = client_at(first, index);

		assert_int_equal(tr_cancel(&client, client.ids[2]), -EAGAIN);
		assert_true(client.submissions.index == first + index);
		expect_untouched();
		/* One copy more than what came after it: the slot of the first is free. */
		store_relaxed_u64(&consumed, first + index - SLOTS + 1);
		assert_int_equal(tr_cancel(&client, client.ids[2]), 0);
		assert_true(client.submissions.index == first + index + 1);
		assert_int_equal((uint32_t)load_relaxed_u64(&slots[(first + index) % SLOTS].word[0]),
				 (uint32_t)(first + index + 1));
	}
}

static void a_cancel_takes_no_slot_that_was_not_copied(void **state)
{
	run_at(0);
	run_at(UINT32_MAX - 10);
	run_at(UINT64_MAX - 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_cancel_takes_no_slot_that_was_not_copied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
