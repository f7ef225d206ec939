/* One sealed segment with both ends' mappings, for tests. */
#ifndef TOKENRING_TESTS_SEGMENT_PAIR_H
#define TOKENRING_TESTS_SEGMENT_PAIR_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "shm/segment.h"

enum { ARENA = 1 << 20 };

static inline struct segment_layout layout_of(uint32_t colour)
{
	struct segment_layout layout;

	assert_int_equal(segment_layout(&layout, 64, 128, 64, ARENA, colour), 0);
	return layout;
}

/* Both ends' mappings of one segment and a descriptor that outlives sealing, as a client may keep it. */
struct pair {
	struct segment daemon, client;
	struct segment_layout layout;
	int fd;
};

static inline void pair_make(struct pair *pair, enum segment_pages pages)
{
	char why[160] = "";

	pair->layout = layout_of(5);
	assert_int_equal(segment_create(&pair->daemon, &pair->layout, pages, why, sizeof why), 0);
	pair->fd = fcntl(pair->daemon.fd, F_DUPFD_CLOEXEC, 0);
	assert_int_equal(segment_map(&pair->client, pair->fd, pair->layout.bytes, why, sizeof why), 0);
	assert_int_equal(segment_seal(&pair->daemon, why, sizeof why), 0);
	assert_int_equal(pair->daemon.fd, -1);
	assert_int_equal(segment_populate(&pair->daemon), 0);
	segment_publish(&pair->daemon, &pair->layout);
}

static inline void pair_free(struct pair *pair)
{
	segment_destroy(&pair->daemon);
	segment_destroy(&pair->client);
	close(pair->fd);
}

#define assert_eperm(call)                      \
	do {                                    \
		errno = 0;                      \
		assert_int_equal((call), -1);   \
		assert_int_equal(errno, EPERM); \
	} while (0)

static inline void sealed_memory_cannot_be_taken_away(enum segment_pages pages)
{
	struct pair pair;
	size_t bytes;

	pair_make(&pair, pages);
	bytes = pair.layout.bytes;
	assert_eperm(fallocate(pair.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes));
	assert_eperm(ftruncate(pair.fd, 0));
	assert_eperm(ftruncate(pair.fd, (off_t)bytes * 2));
	assert_eperm(fcntl(pair.fd, F_ADD_SEALS, F_SEAL_WRITE));
	assert_ptr_equal(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pair.fd, 0), MAP_FAILED);
	assert_int_equal(errno, EPERM);
	errno = 0;
	assert_int_equal(madvise(pair.client.base, bytes, MADV_REMOVE), -1);
	assert_int_equal(errno, EPERM);
	/* hugetlb files have no write at all (EINVAL), ordinary ones are sealed against it. */
	assert_int_equal(pwrite(pair.fd, "x", 1, 0), -1);
	assert_true(errno == EPERM || (pair.daemon.huge && errno == EINVAL));
	/* The channel still works: both ends see one another's stores. */
	pair.client.base[pair.layout.arena_off] = 42;
	assert_int_equal(pair.daemon.base[pair.layout.arena_off], 42);
	pair_free(&pair);
}

#endif
