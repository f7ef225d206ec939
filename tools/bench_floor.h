/* The floors of the machine that benchmarks print beside their figures: what the hardware could do in the
 * same minute, measured without any of the daemon's code.
 *
 * Each call measures one slice of some milliseconds, so that a caller can alternate slices with its own runs:
 * virtual machines change their speed within seconds. Calls block; they make threads and join them. */
#ifndef TOKENRING_TOOLS_BENCH_FLOOR_H
#define TOKENRING_TOOLS_BENCH_FLOOR_H

#include <stddef.h>
#include <stdint.h>

#include "tools/cli/histogram.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FLOOR_THREADS_MAX = 256, FLOOR_GAP_NS = 2000 };

/* A clock of a few nanoseconds a reading: the time stamp counter, in its own unit. */
static inline uint64_t floor_ticks(void)
{
	return __builtin_ia32_rdtsc();
}

/* Nanoseconds a tick, against CLOCK_MONOTONIC over 20 ms. */
double floor_ns_per_tick(void);

/* Round trips of one slice. A round trip of over FLOOR_GAP_NS in which this end polled less than half as
 * often as it would have in that time is a gap of this end's own CPU: the machine took it away. */
struct floor_trips {
	struct histogram all;     /* ns */
	struct histogram without; /* ns; without this end's own gaps */
	uint64_t near_gaps;       /* of this end's CPU */
	uint64_t far_gaps;        /* other round trips over FLOOR_GAP_NS */
	uint64_t ticks, polls;
};

/* Sorts one round trip in; `ticks_per_poll` is that of an undisturbed round trip. */
void floor_trips_add(struct floor_trips *trips, uint64_t ticks, uint64_t polls, double ns_per_tick,
		     double ticks_per_poll);
void floor_trips_merge(struct floor_trips *trips, const struct floor_trips *from);

/* Memory like a channel's: one line a slot, two rings. */
struct floor_lines;

/* Slots: powers of two. A memfd on huge pages if `huge` and there are some. NULL: no memory. */
struct floor_lines *floor_lines_create(uint32_t sq_slots, uint32_t cq_slots, int huge);
void floor_lines_free(struct floor_lines *lines);

/* Walks the rings' lines in their order, one store here and one there: `n` round trips between the caller
 * (pinned by itself) and a thread pinned to `far_cpu`. Returns 0 or a negative errno. */
int floor_walk(struct floor_lines *lines, int far_cpu, uint64_t n, double ns_per_tick, double ticks_per_poll,
	       struct floor_trips *ret);

/* Memory that is read: huge pages where the kernel gives them, every page touched. NULL: no memory. */
void *floor_buffer_create(size_t bytes);
void floor_buffer_free(void *buffer, size_t bytes);

/* Bytes a second at which `threads` threads, pinned to the CPUs this process may use, read all of the buffer,
 * each its share, again and again for `seconds`. Negative: a negative errno. */
double floor_read(const void *buffer, size_t bytes, unsigned threads, double seconds);

/* 8-bit multiplications (with their additions) a second of `threads` threads in the instruction set `isa` of
 * the cpu backend: "avx512vnni", "avx2"; anything else: the baseline, SSE2. Negative: a negative errno;
 * -ENOTSUP if this CPU does not have it. */
double floor_multiply(const char *isa, unsigned threads, double seconds);

#ifdef __cplusplus
}
#endif

#endif
