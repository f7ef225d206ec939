/* One direction of a channel at eight first indices, among them those whose sequence words wrap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "shm/ring.h"

enum { SLOTS = 16 };

static const uint64_t first_indices[] = {
    0, 1, 15, UINT32_MAX - 20, (UINT64_C(1) << 32) - 1, UINT64_C(1) << 32, UINT64_MAX - 20, UINT64_MAX,
};

struct ring {
	struct wire_slot slots[SLOTS];
	shared_u64 consumed;
	struct ring_writer writer;
	struct ring_reader reader;
};

static struct ring *ring_at(uint64_t first)
{
	static struct ring ring;

	memset(&ring, 0xa5, sizeof ring);
	ring_preset(ring.slots, SLOTS, first);
	store_relaxed_u64(&ring.consumed, first);
	ring.writer = (struct ring_writer){ring.slots, &ring.consumed, SLOTS - 1, first, first + SLOTS};
	ring.reader = (struct ring_reader){ring.slots, &ring.consumed, SLOTS - 1, first, first};
	return &ring;
}

static void send_number(struct ring *ring, uint32_t number)
{
	struct wire_submission message = {.seq = 0xdeadbeef, .op = 4, .id = number};

	memset(message.tok, (int)(number & 0x7f), sizeof message.tok);
	ring_publish(&ring->writer, &message);
}

static void expect_number(struct ring *ring, uint32_t number)
{
	struct wire_submission message;

	assert_true(ring_ready(&ring->reader));
	assert_true(ring_read(&ring->reader, &message));
	assert_int_equal(message.id, number);
	assert_int_equal(message.op, 4);
	assert_int_equal(message.tok[7], (number & 0x7f) * 0x01010101u);
}

static void fresh_and_zeroed_memory_never_looks_published(void **state)
{
	struct wire_submission message;

	for (size_t i = 0; i < sizeof first_indices / sizeof first_indices[0]; i++) {
		struct ring *ring = ring_at(first_indices[i]);

		for (uint64_t k = 0; k < SLOTS; k++) {
			struct ring_reader reader = ring->reader;

			reader.index += k;
			assert_false(ring_ready(&reader));
			assert_false(ring_read(&reader, &message));
			/* By the rule of the channel: slot i & (n-1) holds (u32)(i + 1 - n). */
			assert_int_equal((uint32_t)load_relaxed_u64(
					     &ring->slots[(first_indices[i] + k) & (SLOTS - 1)].word[0]),
					 (uint32_t)(first_indices[i] + k + 1 - SLOTS));
		}
	}
}

static void every_message_arrives_once_in_order(void **state)
{
	for (size_t i = 0; i < sizeof first_indices / sizeof first_indices[0]; i++) {
		struct ring *ring = ring_at(first_indices[i]);
		uint32_t sent = 0, received = 0;
		struct wire_submission message;

		srand(7);
		while (received < 200) {
			for (int n = rand() % 20; n > 0; n--) {
				assert_true(ring_writer_refresh(&ring->writer));
				if (ring_room(&ring->writer))
					send_number(ring, sent++);
			}
			for (int n = rand() % 20; n > 0 && received < sent; n--)
				expect_number(ring, received++);
			if (received == sent)
				assert_false(ring_read(&ring->reader, &message));
			ring_reader_publish(&ring->reader);
		}
	}
}

static void a_full_ring_stays_full_until_consumed(void **state)
{
	for (size_t i = 0; i < sizeof first_indices / sizeof first_indices[0]; i++) {
		struct ring *ring = ring_at(first_indices[i]);

		for (uint32_t n = 0; n < SLOTS; n++)
			send_number(ring, n);
		assert_int_equal(ring_room(&ring->writer), 0);
		assert_true(ring_writer_refresh(&ring->writer));
		assert_int_equal(ring_room(&ring->writer), 0);
		for (uint32_t n = 0; n < SLOTS; n++)
			expect_number(ring, n);
		assert_true(ring_writer_refresh(&ring->writer));
		assert_int_equal(ring_room(&ring->writer), 0);
		ring_reader_publish(&ring->reader);
		assert_true(ring_writer_refresh(&ring->writer));
		assert_int_equal(ring_room(&ring->writer), SLOTS);
	}
}

static void an_impossible_consumed_is_noticed(void **state)
{
	for (size_t i = 0; i < sizeof first_indices / sizeof first_indices[0]; i++) {
		uint64_t first = first_indices[i];
		struct ring *ring = ring_at(first);
		uint64_t impossible[] = {first - 1,     first + 6,
					 first + SLOTS, first + (UINT64_C(1) << 32),
					 ~first,        first ^ UINT64_C(1) << 63};

		for (uint32_t n = 0; n < 5; n++)
			send_number(ring, n);
		for (size_t k = 0; k < sizeof impossible / sizeof impossible[0]; k++) {
			if (impossible[k] - first <= 5)
				continue;
			store_relaxed_u64(&ring->consumed, impossible[k]);
			assert_false(ring_writer_refresh(&ring->writer));
			assert_int_equal(ring_room(&ring->writer), SLOTS - 5);
		}
		store_relaxed_u64(&ring->consumed, first + 3);
		assert_true(ring_writer_refresh(&ring->writer));
		assert_int_equal(ring_room(&ring->writer), SLOTS - 2);
		/* Going back is impossible too. */
		store_relaxed_u64(&ring->consumed, first + 2);
		assert_false(ring_writer_refresh(&ring->writer));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(fresh_and_zeroed_memory_never_looks_published),
	    cmocka_unit_test(every_message_arrives_once_in_order),
	    cmocka_unit_test(a_full_ring_stays_full_until_consumed),
	    cmocka_unit_test(an_impossible_consumed_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
