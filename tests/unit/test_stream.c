/* Streaming a file: every byte once, in whole granules; short reads, signals, errors, cancelling. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/stream/stream.h"
#include "tests/harness/scratch.h"

enum { FILE_BYTES = 9 * 1000 * 1000 + 7 };

static char path[128];
static uint8_t *content;
static char why[512];

/* What the next reads shall do; the library's calls come here instead of to the C library. */
static struct {
	bool interrupts, shortens;
	uint64_t broken_from; /* EIO at and after this byte */
	unsigned calls;
} fault;

ssize_t pread64(int fd, void *buffer, size_t bytes, off_t offset);

ssize_t pread64(int fd, void *buffer, size_t bytes, off_t offset)
{
	unsigned call = __sync_add_and_fetch(&fault.calls, 1);
	assert_true(bytes <= STREAM_REQUEST_BYTES);
	if (fault.interrupts && call % 3 == 0) {
		errno = EINTR;
		return -1;
	}
	if (fault.broken_from) {
		if ((uint64_t)offset >= fault.broken_from) {
			errno = EIO;
			return -1;
		}
		if (offset + bytes > fault.broken_from)
			bytes = fault.broken_from - (uint64_t)offset;
	}
	if (fault.shortens && bytes > 1)
		bytes = 1 + bytes * (call % 7) / 8;
	return syscall(SYS_pread64, fd, buffer, bytes, offset);
}

/* What the callback has seen. */
struct seen {
	const struct stream_extent *extents;
	pthread_mutex_t lock; /* guards what follows */
	uint64_t total, largest;
	unsigned pieces;
	uint8_t *bytes[6]; /* (extents) which have been seen; NULL: not noted */
	struct stream *cancel_after_first;
	int answer;
};

/* Asserts fail a test from its own thread alone: a reader says what is wrong by its answer. */
static bool is_right(const struct seen *seen, const struct stream_piece *piece)
{
	const struct stream_extent *extent = &seen->extents[piece->extent];

	return piece->bytes > 0 && piece->at + piece->bytes <= extent->bytes &&
	       piece->at % extent->granule_bytes == 0 &&
	       (piece->bytes % extent->granule_bytes == 0 || piece->at + piece->bytes == extent->bytes) &&
	       (piece->bytes <= STREAM_PIECE_BYTES || piece->bytes == extent->granule_bytes) &&
	       (uintptr_t)piece->data % 64 == 0 &&
	       !memcmp(piece->data, content + extent->offset + piece->at, piece->bytes);
}

static bool mark(uint8_t *bytes, const struct stream_piece *piece)
{
	for (size_t i = 0; bytes && i < piece->bytes; i++)
		if (bytes[piece->at + i]++)
			return false;
	return true;
}

static int check_piece(void *context, const struct stream_piece *piece)
{
	struct seen *seen = context;
	bool right = is_right(seen, piece);
	pthread_mutex_lock(&seen->lock);
	right = right && mark(seen->bytes[piece->extent], piece);
	seen->total += piece->bytes;
	seen->pieces++;
	if (piece->bytes > seen->largest)
		seen->largest = piece->bytes;
	pthread_mutex_unlock(&seen->lock);
	if (seen->cancel_after_first)
		stream_cancel(seen->cancel_after_first);
	return right ? seen->answer : -EBADMSG;
}

static const struct stream_extent extents[] = {
    {0, 3000000, 1},          {5, 0, 8},
    {4000000, 1234567, 4096}, {100, 3 * 1500000, 1500000}, /* a granule larger than a piece */
    {FILE_BYTES - 1, 1, 512}, {7, 2621440 + 100, 640},
};
enum { N_EXTENTS = sizeof extents / sizeof *extents, TOTAL = 3000000 + 1234567 + 4500000 + 1 + 2621540 };

static struct stream *open_stream(unsigned readers)
{
	struct stream *s = NULL;
	if (stream_open(path, &(struct stream_options){.readers = readers}, &s, why, sizeof why))
		fail_msg("%s", why);
	return s;
}

static struct seen watch(const struct stream_extent *list)
{
	return (struct seen){.extents = list, .lock = PTHREAD_MUTEX_INITIALIZER};
}

static void read_all(unsigned readers)
{
	struct stream *s = open_stream(readers);
	struct seen seen = watch(extents);
	for (int i = 0; i < N_EXTENTS; i++)
		seen.bytes[i] = calloc(1, extents[i].bytes + 1);
	assert_int_equal(stream_read(s, extents, N_EXTENTS, check_piece, &seen, why, sizeof why), 0);
	assert_int_equal(seen.total, TOTAL); /* each byte once at most, so all of them */
	assert_int_equal(seen.largest, 1500000);
	for (int i = 0; i < N_EXTENTS; i++)
		free(seen.bytes[i]);
	/* The same stream reads again. */
	seen = watch(extents);
	assert_int_equal(stream_read(s, extents, 1, check_piece, &seen, why, sizeof why), 0);
	assert_int_equal(seen.total, 3000000);
	assert_int_equal(stream_read(s, NULL, 0, check_piece, &seen, why, sizeof why), 0);
	stream_close(s);
}

static void test_every_byte_once(void **state)
{
	read_all(0);
	read_all(1);
	read_all(3);
	read_all(8);
}

static void test_short_reads_and_signals(void **state)
{
	fault.interrupts = fault.shortens = true;
	read_all(4);
	fault.interrupts = fault.shortens = false;
}

/* One reader finds the first bad byte of all, several some of them. */
static void test_io_error_names_the_byte(void **state)
{
	fault.broken_from = 2500000;
	for (unsigned readers = 1; readers <= 4; readers += 3) {
		struct stream *s = open_stream(readers);
		struct seen seen = watch(extents);
		assert_int_equal(stream_read(s, extents, N_EXTENTS, check_piece, &seen, why, sizeof why),
				 -EIO);
		assert_non_null(strstr(why, readers == 1 ? "at byte 2500000: Input/output error"
							 : ": Input/output error"));
		assert_true(readers > 1 || seen.total == 2 * STREAM_PIECE_BYTES);
		stream_close(s);
	}
	fault.broken_from = 0;
}

static void test_end_of_file_names_the_byte(void **state)
{
	struct stream *s = open_stream(2);
	struct stream_extent beyond = {FILE_BYTES - 10, 20, 4};
	struct seen seen = watch(&beyond);
	assert_int_equal(stream_read(s, &beyond, 1, check_piece, &seen, why, sizeof why), -EIO);
	assert_non_null(strstr(why, "ends at byte 9000007"));
	assert_int_equal(seen.total, 0);
	stream_close(s);
}

/* Each reader has one piece under way at most. */
static void test_callback_ends_it(void **state)
{
	for (unsigned readers = 1; readers <= 4; readers += 3) {
		struct stream *s = open_stream(readers);
		struct seen seen = watch(extents);
		seen.answer = -EXDEV;
		assert_int_equal(stream_read(s, extents, N_EXTENTS, check_piece, &seen, why, sizeof why),
				 -EXDEV);
		assert_in_range(seen.pieces, 1, readers);
		stream_close(s);
	}
}

static void test_cancel(void **state)
{
	for (unsigned readers = 1; readers <= 4; readers += 3) {
		struct stream *s = open_stream(readers);
		struct seen seen = watch(extents);
		unsigned pieces;
		seen.cancel_after_first = s;
		for (int i = 0; i < 2; i++, pieces = seen.pieces)
			assert_int_equal(
			    stream_read(s, extents, N_EXTENTS, check_piece, &seen, why, sizeof why),
			    -ECANCELED);
		assert_in_range(pieces, 1, readers);
		stream_close(s);
	}
}

static pthread_barrier_t meeting;

static int meet(void *context, const struct stream_piece *piece)
{
	pthread_barrier_wait(&meeting);
	return 0;
}

/* Two callbacks wait for each other: it hangs if they come one after the other. */
static void test_several_at_once(void **state)
{
	struct stream *s = open_stream(2);
	struct stream_extent two = {0, 2 * STREAM_PIECE_BYTES, 1};
	pthread_barrier_init(&meeting, NULL, 2);
	assert_int_equal(stream_read(s, &two, 1, meet, NULL, why, sizeof why), 0);
	pthread_barrier_destroy(&meeting);
	stream_close(s);
}

static void *cancel_soon(void *s)
{
	usleep(2000);
	stream_cancel(s);
	return NULL;
}

static void test_cancel_from_another_thread(void **state)
{
	for (int i = 0; i < 20; i++) {
		pthread_t thread;
		struct stream *s = open_stream(3);
		struct seen seen = watch(extents);
		assert_int_equal(pthread_create(&thread, NULL, cancel_soon, s), 0);
		int result = stream_read(s, extents, N_EXTENTS, check_piece, &seen, why, sizeof why);
		assert_true(result == -ECANCELED || (result == 0 && seen.total == TOTAL));
		pthread_join(thread, NULL);
		stream_close(s);
	}
}

static void test_refusals(void **state)
{
	struct stream *s = NULL;
	assert_int_equal(stream_open("/nonexistent/file", NULL, &s, why, sizeof why), -ENOENT);
	assert_non_null(strstr(why, "/nonexistent/file"));
	assert_int_equal(stream_open("/tmp", NULL, &s, why, sizeof why), -EISDIR);
	assert_int_equal(stream_open(path, &(struct stream_options){.readers = 65}, &s, why, sizeof why),
			 -EINVAL);
	assert_null(s);
	s = open_stream(0);
	struct stream_extent bad[] = {{0, 1, 0}, {UINT64_MAX, 2, 1}, {0, 1, 1ull << 40}};
	for (int i = 0; i < 3; i++)
		assert_int_equal(stream_read(s, &bad[i], 1, check_piece, NULL, why, sizeof why), -EINVAL);
	stream_close(s);
	stream_close(NULL);
}

static int make_file(void **state)
{
	int fd = mkstemp(scratch_path(path, sizeof path, "tokenring-stream"));
	uint64_t x = 1;
	content = malloc(FILE_BYTES);
	for (size_t i = 0; i < FILE_BYTES; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		content[i] = (uint8_t)(x >> 56);
	}
	bool written = write(fd, content, FILE_BYTES) == FILE_BYTES;
	close(fd);
	return written ? 0 : -1;
}

static int remove_file(void **state)
{
	unlink(path);
	free(content);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_byte_once),
	    cmocka_unit_test(test_short_reads_and_signals),
	    cmocka_unit_test(test_io_error_names_the_byte),
	    cmocka_unit_test(test_end_of_file_names_the_byte),
	    cmocka_unit_test(test_callback_ends_it),
	    cmocka_unit_test(test_cancel),
	    cmocka_unit_test(test_several_at_once),
	    cmocka_unit_test(test_cancel_from_another_thread),
	    cmocka_unit_test(test_refusals),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
