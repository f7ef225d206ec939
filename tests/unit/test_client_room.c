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
static uint64_t table[2 * SLOTS], cancels[SLOTS];

/* A client with `spare` more slots than table entries, all of which are in use, at `index` slots from the
 * first. */
static struct tr_client client_at(uint64_t first, uint64_t index, uint32_t spare)
{
	struct tr_client client = {
	    .submissions = {slots, &consumed, SLOTS - 1, first + index, first + SLOTS},
	    .table = table,
	    .ids = table + SLOTS,
	    .cancels = cancels,
	    .waker.word = &daemon_sleep,
	};

	client.gate.open = 1;
	client.layout.sq_slots = SLOTS;
	client.layout.max_inflight = SLOTS - spare;
	for (uint64_t i = 0; i < SLOTS; i++)
		client.ids[i] = (i + 1) << 16 | i;
	store_relaxed_u64(&consumed, first);
	memset(slots, PUBLISHED, sizeof slots);
	return client;
}

static void expect_published(uint64_t index)
{
	assert_int_equal((uint32_t)load_relaxed_u64(&slots[index % SLOTS].word[0]), (uint32_t)(index + 1));
}

/* Slots are taken again after their answers, before `consumed` says that they were copied: what it leaves to
 * the client looks like less than nothing. */
static void run_at(uint64_t first, uint32_t spare)
{
	for (uint64_t index = SLOTS; index < 2 * SLOTS; index++) {
		struct tr_client client = client_at(first, index, spare);
		unsigned char before[sizeof slots];

		for (uint32_t i = 0; i < spare; i++) {
			assert_int_equal(tr_cancel(&client, client.ids[0]), 0);
			expect_published(first + index + i);
		}
		/* All before the first cancel are copied, as far as is known. */
		store_relaxed_u64(&consumed, first + index);
		memcpy(before, slots, sizeof slots);
		assert_int_equal(tr_cancel(&client, client.ids[0]), -EAGAIN);
		assert_true(client.submissions.index == first + index + spare);
		assert_memory_equal(slots, before, sizeof slots);
		store_relaxed_u64(&consumed, first + index + 1);
		assert_int_equal(tr_cancel(&client, client.ids[0]), 0);
		expect_published(first + index + spare);
		assert_int_equal(tr_cancel(&client, client.ids[0]), -EAGAIN);
	}
}

static void a_cancel_takes_no_slot_that_was_not_copied(void **state)
{
	for (uint32_t spare = 1; spare < SLOTS; spare++) {
		run_at(0, spare);
		run_at(UINT32_MAX - 10, spare);
		run_at(UINT64_MAX - 10, spare);
	}
}

/* All requests are copied and answered, but their answers not collected: the slots that are free are those of
 * the entries that come free with the answers. */
static void an_answer_frees_an_entry_and_no_slot(void **state)
{
	for (uint32_t spare = 1; spare < SLOTS; spare++) {
		struct tr_client client = client_at(0, SLOTS - spare, spare);

		store_relaxed_u64(&consumed, SLOTS - spare);
		for (uint32_t i = 0; i < spare; i++)
			assert_int_equal(tr_cancel(&client, client.ids[0]), 0);
		assert_int_equal(tr_cancel(&client, client.ids[0]), -EAGAIN);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_cancel_takes_no_slot_that_was_not_copied),
	    cmocka_unit_test(an_answer_frees_an_entry_and_no_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
