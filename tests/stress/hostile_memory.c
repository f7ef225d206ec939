/* System calls on the channel's memory: what a client may do to a file that it shares. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stress/hostile.h"

/* Newer than the C library of Debian 12; the values are the kernel's ABI. */
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x20
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* A random range of whole pages. */
struct range {
	unsigned char *at;
	off_t offset;
	size_t bytes;
};

static struct range any_range(struct hostile *hostile)
{
	uint32_t pages = (uint32_t)(hostile->segment.bytes / 4096), first = hostile_below(hostile, pages);

	return (struct range){hostile->segment.base + (size_t)first * 4096, (off_t)first * 4096,
			      (size_t)(1 + hostile_below(hostile, pages - first)) * 4096};
}

/* After the seals it must fail; before, the daemon must survive it. */
static void must_fail(const struct hostile *hostile, long result, const char *what)
{
	if (hostile->live && result >= 0)
		hostile_breach(what);
}

static void allocate(struct hostile *hostile)
{
	static const int modes[] = {
	    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	    FALLOC_FL_ZERO_RANGE,
	    FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
	    FALLOC_FL_COLLAPSE_RANGE,
	    FALLOC_FL_INSERT_RANGE,
	};
	struct range range = any_range(hostile);
	int mode = modes[hostile_below(hostile, 5)];

	must_fail(hostile, fallocate(hostile->memory, mode, range.offset, (off_t)range.bytes), "fallocate");
	must_fail(hostile, fallocate(hostile->memory, 0, (off_t)hostile->segment.bytes, 4096),
		  "fallocate beyond the end");
}

static void resize(struct hostile *hostile)
{
	static const off_t sizes[] = {0, 4096, 1 << 20, (off_t)1 << 40};
	off_t size = sizes[hostile_below(hostile, 4)];

	if ((uint64_t)size != hostile->segment.bytes)
		must_fail(hostile, ftruncate(hostile->memory, size), "ftruncate");
}

static void advise(struct hostile *hostile)
{
	static const int harmless[] = {MADV_DONTNEED, MADV_FREE,           MADV_COLD,
				       MADV_PAGEOUT,  MADV_HUGEPAGE,       MADV_NOHUGEPAGE,
				       MADV_COLLAPSE, MADV_POPULATE_WRITE, MADV_RANDOM};
	struct range range = any_range(hostile);

	must_fail(hostile, madvise(range.at, range.bytes, MADV_REMOVE), "MADV_REMOVE");
	if (madvise(range.at, range.bytes, harmless[hostile_below(hostile, 9)]) < 0)
		return; /* not every kernel knows each */
}

static void write_file(struct hostile *hostile)
{
	struct range range = any_range(hostile);
	int other = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	must_fail(hostile, pwrite(hostile->memory, "garbage", 7, range.offset), "pwrite");
	lseek(hostile->memory, range.offset, SEEK_SET);
	must_fail(hostile, sendfile(hostile->memory, other, NULL, 4096), "sendfile");
	must_fail(hostile, copy_file_range(other, NULL, hostile->memory, NULL, 4096, 0), "copy_file_range");
	close(other);
}

/* Another way to the same file. */
static void open_again(struct hostile *hostile)
{
	char path[64];
	int again;

	snprintf(path, sizeof path, "/proc/self/fd/%d", hostile->memory);
	must_fail(hostile, truncate(path, 4096), "truncate by path");
	must_fail(hostile, open(path, O_RDWR | O_TRUNC | O_CLOEXEC), "O_TRUNC");
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again < 0)
		return;
	must_fail(hostile, pwrite(again, "garbage", 7, 0), "pwrite by path");
	must_fail(hostile,
		  mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED ? -1 : 0,
		  "a new writable mapping by path");
	close(again);
}

static void map_again(struct hostile *hostile)
{
	struct range range = any_range(hostile);
	void *at = mmap(NULL, range.bytes, PROT_READ, MAP_SHARED, hostile->memory, range.offset);

	must_fail(hostile,
		  mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, hostile->memory, 0) == MAP_FAILED ? -1
													 : 0,
		  "a new writable mapping");
	if (at == MAP_FAILED)
		return;
	must_fail(hostile, mprotect(at, range.bytes, PROT_READ | PROT_WRITE), "mprotect to writable");
	munmap(at, range.bytes);
}

static void protect(struct hostile *hostile)
{
	struct range range = any_range(hostile);

	if (mprotect(range.at, range.bytes, PROT_NONE) == 0)
		mprotect(range.at, range.bytes, PROT_READ | PROT_WRITE);
	if (mprotect(range.at, range.bytes, PROT_READ | PROT_WRITE | PROT_EXEC) == 0)
		mprotect(range.at, range.bytes, PROT_READ | PROT_WRITE);
	if (mlock(range.at, range.bytes) == 0)
		munlock(range.at, range.bytes);
	msync(range.at, range.bytes, MS_SYNC | MS_INVALIDATE);
}

static void seal(struct hostile *hostile)
{
	static const int seals[] = {F_SEAL_SEAL, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE, F_SEAL_EXEC};

	must_fail(hostile, fcntl(hostile->memory, F_ADD_SEALS, seals[hostile_below(hostile, 4)]),
		  "F_ADD_SEALS");
}

/* The open file is the daemon's too, while it keeps its descriptor. */
static void set_flags(struct hostile *hostile)
{
	fcntl(hostile->memory, F_SETFL, hostile_random(hostile));
	fcntl(hostile->memory, F_SETOWN, getppid());
	fcntl(hostile->memory, F_SETLEASE, F_WRLCK);
	flock(hostile->memory, LOCK_EX | LOCK_NB);
	fchmod(hostile->memory, hostile_below(hostile, 2) ? 0 : 0777);
}

void hostile_system_calls(struct hostile *hostile)
{
	static void (*const calls[])(struct hostile *) = {allocate,  resize,  advise, write_file, open_again,
							  map_again, protect, seal,   set_flags};

	calls[hostile_below(hostile, sizeof calls / sizeof calls[0])](hostile);
}
