/* The floor of decode: how fast memory of the model's size can be read.
 *
 * Each thread reads one sequential stream with software prefetch 4 KiB ahead, which on the machines measured
 * lifts a plain loop from 80 to 90 % of what the memory gives; wider loads change nothing beyond the caches.
 */
#include "tools/bench_floor.h"

#include <linux/mman.h>
#include <sys/mman.h>

#include "tools/bench_floor_team.h"

enum { AHEAD_BYTES = 4096, HUGE_BYTES = 2 << 20 };

struct reading {
	const char *buffer;
	size_t bytes;
};

static size_t mapped_bytes(size_t bytes)
{
	return (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

void *floor_buffer_create(size_t bytes)
{
	size_t mapped = mapped_bytes(bytes);
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	/* Reserved pages first, as the daemon takes them for its weights. */
	void *at = mmap(NULL, mapped, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
	if (at == MAP_FAILED)
		at = mmap(NULL, mapped, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	madvise(at, mapped, MADV_HUGEPAGE);
	/* Written, not only read: untouched pages are all the same page of zeros. */
	for (size_t i = 0; i < mapped; i += 4096)
		((volatile char *)at)[i] = 1;
	return at;
}

void floor_buffer_free(void *buffer, size_t bytes)
{
	if (buffer)
		munmap(buffer, mapped_bytes(bytes));
}

typedef uint64_t vector __attribute__((vector_size(64)));

#define READ_LOOP                                          \
	vector a = {0}, b = {0};                           \
	for (const char *at = from; at < to; at += 128) {  \
		__builtin_prefetch(at + AHEAD_BYTES);      \
		__builtin_prefetch(at + AHEAD_BYTES + 64); \
		a ^= *(const vector *)at;                  \
		b ^= *(const vector *)(at + 64);           \
	}                                                  \
	a ^= b;                                            \
	return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];

__attribute__((target("avx512f"))) static uint64_t read_avx512(const char *from, const char *to)
{
	READ_LOOP
}

__attribute__((target("avx2"))) static uint64_t read_avx2(const char *from, const char *to)
{
	READ_LOOP
}

static uint64_t read_baseline(const char *from, const char *to)
{
	READ_LOOP
}

static double read_share(void *context, unsigned thread, unsigned threads)
{
	uint64_t kept;
	const struct reading *r = context;
	size_t share = r->bytes / threads / 128 * 128;
	const char *from = r->buffer + share * thread, *to = from + share;
	if (__builtin_cpu_supports("avx512f"))
		kept = read_avx512(from, to);
	else if (__builtin_cpu_supports("avx2"))
		kept = read_avx2(from, to);
	else
		kept = read_baseline(from, to);
	__asm__ volatile("" : : "r"(kept)); /* used, so that the loads are not removed */
	return (double)share;
}

double floor_read(const void *buffer, size_t bytes, unsigned threads, double seconds)
{
	struct reading reading = {buffer, bytes};
	return team_rate(read_share, &reading, threads, seconds);
}
