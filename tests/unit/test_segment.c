/* The channel's memory: what a peer can still do to it after sealing (nothing), and what a header may claim.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "shm/segment.h"
#include "tests/unit/segment_pair.h"

static void layout_separates_colours_by_an_odd_number_of_lines(void **state)
{
	char seen[SEGMENT_COLOURS] = {0};

	for (uint32_t colour = 0; colour < SEGMENT_COLOURS; colour++) {
		struct segment_layout layout = layout_of(colour), next = layout_of(colour + 1);
		uint32_t line = (layout.sq_off - 4096) / 64;

		assert_int_equal(layout.sq_off % 64, 0);
		assert_true(line < SEGMENT_COLOURS);
		assert_false(seen[line]++);
		assert_int_equal(abs((int)(next.sq_off - layout.sq_off)) / 64 % 2, 1);
		assert_true(layout.arena_bytes >= ARENA);
		assert_int_equal(layout.bytes, layout.arena_off + layout.arena_bytes);
		assert_int_equal(segment_check(&layout, layout.bytes, NULL, 0), 0);
	}
}

static void layout_refuses_sizes_out_of_range(void **state)
{
	struct segment_layout layout = {.epoch = 7};

	assert_int_equal(segment_layout(&layout, 63, 128, 64, ARENA, 0), -EINVAL);
	assert_int_equal(segment_layout(&layout, 4, 128, 64, ARENA, 0), -EINVAL);
	assert_int_equal(segment_layout(&layout, 0, 128, 64, ARENA, 0), -EINVAL);
	assert_int_equal(segment_layout(&layout, 64, 64, 64, ARENA, 0), -EINVAL);
	assert_int_equal(segment_layout(&layout, 1 << 17, 128, 64, ARENA, 0), -EINVAL);
	assert_int_equal(segment_layout(&layout, 64, 128, 0, ARENA, 0), -EINVAL);
	assert_int_equal(segment_layout(&layout, 64, 128, 64, UINT64_MAX, 0), -EINVAL);
	assert_int_equal(layout.epoch, 7);
}

static void sealed_ordinary_pages_cannot_be_taken_away(void **state)
{
	sealed_memory_cannot_be_taken_away(SEGMENT_PAGES_NEVER);
	sealed_memory_cannot_be_taken_away(SEGMENT_PAGES_AUTO);
}

static void a_foreign_seal_is_noticed(void **state)
{
	struct segment_layout layout = layout_of(0);
	struct segment segment;
	char why[160] = "";

	assert_int_equal(segment_create(&segment, &layout, SEGMENT_PAGES_NEVER, why, sizeof why), 0);
	/* Sealing early by the peer makes the daemon's own sealing fail. */
	assert_int_equal(fcntl(segment.fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	assert_int_equal(segment_seal(&segment, why, sizeof why), -EPERM);
	assert_true(strlen(why) > 0);
	segment_destroy(&segment);
}

static void the_client_reads_what_was_published(void **state)
{
	struct segment_layout read;
	struct ring_writer writer;
	struct ring_reader reader;
	struct pair pair;

	pair_make(&pair, SEGMENT_PAGES_NEVER);
	assert_int_equal(segment_read(&pair.client, &read, NULL, 0), 0);
	assert_memory_equal(&read, &pair.layout, sizeof read);
	segment_client_rings(&pair.client, &read, &writer, &reader);
	assert_int_equal(ring_room(&writer), 64);
	assert_false(ring_ready(&reader));
	pair_free(&pair);
}

static void the_client_refuses_other_descriptors(void **state)
{
	struct segment segment;
	char why[160] = "";
	int pipes[2], memfd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(segment_map(&segment, pipes[0], 8192, why, sizeof why), -EPROTO);
	assert_int_equal(ftruncate(memfd, 8192), 0);
	assert_int_equal(segment_map(&segment, memfd, 8192, why, sizeof why), -EPROTO);
	assert_int_equal(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	assert_int_equal(segment_map(&segment, memfd, 4096, why, sizeof why), -EPROTO);
	assert_int_equal(segment_map(&segment, memfd, 8192, why, sizeof why), 0);
	/* Fresh memory has no magic. */
	assert_int_equal(segment_read(&segment, &(struct segment_layout){0}, why, sizeof why),
			 -EPROTONOSUPPORT);
	segment_destroy(&segment);
	close(memfd);
	close(pipes[0]);
	close(pipes[1]);
}

static void corrupted(const struct segment_layout *good, struct segment_layout bad, const char *field)
{
	char why[160] = "";

	assert_int_equal(segment_check(&bad, good->bytes, why, sizeof why), -EPROTO);
	if (!strstr(why, field))
		fail_msg("\"%s\" does not name %s", why, field);
}

static void each_corrupted_field_is_found(void **state)
{
	struct segment_layout good = layout_of(3), bad;

#define BREAK(field, value, named) \
	bad = good;                \
	bad.field = (value);       \
	corrupted(&good, bad, named)
	BREAK(bytes, good.bytes + 4096, "bytes");
	BREAK(bytes, 0, "bytes");
	BREAK(sq_slots, 0, "sq_slots");
	BREAK(sq_slots, 63, "sq_slots");
	BREAK(sq_slots, UINT32_MAX, "sq_slots");
	BREAK(cq_slots, 1u << 31, "cq_slots");
	BREAK(sq_slots, 65536, "sq_off");
	BREAK(cq_slots, 65536, "cq_off");
	BREAK(sq_off, 0, "sq_off");
	BREAK(sq_off, good.sq_off + 8, "sq_off");
	BREAK(sq_off, UINT32_MAX - 63, "sq_off");
	BREAK(cq_off, good.sq_off, "cq_off");
	BREAK(cq_off, good.cq_off + 1, "cq_off");
	BREAK(cq_off, UINT32_MAX - 63, "cq_off");
	BREAK(arena_off, good.cq_off, "arena_off");
	BREAK(arena_off, good.arena_off + 4, "arena_off");
	BREAK(arena_off, UINT64_MAX - 63, "arena_off");
	BREAK(arena_bytes, UINT64_MAX, "arena_off");
	BREAK(arena_bytes, good.arena_bytes + 1, "arena_off");
	BREAK(max_inflight, 0, "max_inflight");
	BREAK(max_inflight, 65, "max_inflight");
	BREAK(max_inflight, 0x80000001, "max_inflight");
#undef BREAK
}

/* More huge pages than a machine lends to a test. */
static void *ask_for_too_much(void *nothing)
{
	struct segment_layout layout;
	struct segment segment;

	if (segment_layout(&layout, 64, 128, 64, 64ULL << 30, 0) < 0)
		return nothing;
	for (int i = 0; i < 20000; i++)
		if (segment_create(&segment, &layout, SEGMENT_PAGES_REQUIRE, NULL, 0) == 0)
			segment_destroy(&segment);
	return nothing;
}

/* Dies of a SIGSEGV where it does. */
static void a_failed_mapping_takes_no_other_along(void **state)
{
	enum { BYTES = 8 << 20 }; /* finds no smaller hole */
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, ask_for_too_much, NULL), 0);
	while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
		volatile char *memory =
		    mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		assert_ptr_not_equal(memory, MAP_FAILED);
		memory[0] = memory[BYTES - 1] = 1;
		assert_int_equal(munmap((void *)memory, BYTES), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(layout_separates_colours_by_an_odd_number_of_lines),
	    cmocka_unit_test(layout_refuses_sizes_out_of_range),
	    cmocka_unit_test(sealed_ordinary_pages_cannot_be_taken_away),
	    cmocka_unit_test(a_foreign_seal_is_noticed),
	    cmocka_unit_test(the_client_reads_what_was_published),
	    cmocka_unit_test(the_client_refuses_other_descriptors),
	    cmocka_unit_test(each_corrupted_field_is_found),
	    cmocka_unit_test(a_failed_mapping_takes_no_other_along),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
