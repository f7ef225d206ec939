/* The floor of a ring: cache lines that travel between two CPUs, in the order in which a ring's lines do.
 * A fixed pair of lines would not do: its time varies by half with the place of the page. */
#include "tools/bench_floor.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shm/atomics.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif

struct line {
	_Alignas(64) shared_u64 word;
};

struct floor_lines {
	struct line *sq, *cq;
	uint32_t sq_slots, cq_slots;
	uint64_t base; /* rises over all walks, so that no line ever looks published */
	size_t bytes;
};

double floor_ns_per_tick(void)
{
	struct timespec from, to;
	clock_gettime(CLOCK_MONOTONIC, &from);
	uint64_t ticks = floor_ticks();
	usleep(20000);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ticks = floor_ticks() - ticks;
	double ns = 1e9 * (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec);
	return ns / (double)ticks;
}

void floor_trips_add(struct floor_trips *t, uint64_t ticks, uint64_t polls, double ns_per_tick,
		     double ticks_per_poll)
{
	double ns = (double)ticks * ns_per_tick;
	bool is_long = ns > FLOOR_GAP_NS;
	bool is_near = is_long && (double)polls * ticks_per_poll < 0.5 * (double)ticks;
	histogram_add(&t->all, (uint64_t)(ns + 0.5));
	if (!is_near)
		histogram_add(&t->without, (uint64_t)(ns + 0.5));
	t->near_gaps += is_near;
	t->far_gaps += is_long && !is_near;
	t->ticks += ticks;
	t->polls += polls;
}

void floor_trips_merge(struct floor_trips *t, const struct floor_trips *from)
{
	histogram_merge(&t->all, &from->all);
	histogram_merge(&t->without, &from->without);
	t->near_gaps += from->near_gaps;
	t->far_gaps += from->far_gaps;
	t->ticks += from->ticks;
	t->polls += from->polls;
}

static void *map_lines(size_t bytes, unsigned flags)
{
	int fd = memfd_create("floor", flags);
	if (fd < 0)
		return NULL;
	void *at = ftruncate(fd, (off_t)bytes)
		       ? MAP_FAILED
		       : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}

struct floor_lines *floor_lines_create(uint32_t sq_slots, uint32_t cq_slots, int huge)
{
	const size_t page = 2 << 20;
	struct floor_lines *lines = calloc(1, sizeof *lines);
	if (!lines)
		return NULL;
	size_t bytes = ((size_t)sq_slots + cq_slots) * sizeof(struct line);
	lines->bytes = (bytes + page - 1) / page * page;
	struct line *at = huge ? map_lines(lines->bytes, MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB) : NULL;
	if (!at)
		at = map_lines(lines->bytes, MFD_CLOEXEC);
	if (!at) {
		free(lines);
		return NULL;
	}
	lines->sq = at;
	lines->cq = at + sq_slots;
	lines->sq_slots = sq_slots;
	lines->cq_slots = cq_slots;
	return lines;
}

void floor_lines_free(struct floor_lines *lines)
{
	if (!lines)
		return;
	munmap(lines->sq, lines->bytes);
	free(lines);
}

struct walk {
	struct floor_lines *lines;
	uint64_t first, n;
	int cpu;
};

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static void *answer_walk(void *context)
{
	const struct walk *w = context;
	pin(w->cpu);
	for (uint64_t i = w->first; i < w->first + w->n; i++) {
		/* acquire and release pair with those of floor_walk: line for line what a ring does */
		while (load_acquire_u64(&w->lines->sq[i & (w->lines->sq_slots - 1)].word) != i)
			;
		store_release_u64(&w->lines->cq[i & (w->lines->cq_slots - 1)].word, i);
	}
	return NULL;
}

int floor_walk(struct floor_lines *lines, int far_cpu, uint64_t n, double ns_per_tick, double ticks_per_poll,
	       struct floor_trips *ret)
{
	struct walk walk = {.lines = lines, .first = lines->base + 1, .n = n + 1, .cpu = far_cpu};
	pthread_t thread;
	int r = pthread_create(&thread, NULL, answer_walk, &walk);
	if (r)
		return -r;
	lines->base += walk.n;
	uint64_t last = 0;
	for (uint64_t i = walk.first; i < walk.first + walk.n; i++) {
		uint64_t polls = 1;
		store_release_u64(&lines->sq[i & (lines->sq_slots - 1)].word, i);
		while (load_acquire_u64(&lines->cq[i & (lines->cq_slots - 1)].word) != i)
			polls++;
		uint64_t now = floor_ticks();
		if (last) /* the first one waited for the thread to start */
			floor_trips_add(ret, now - last, polls, ns_per_tick, ticks_per_poll);
		last = now;
	}
	pthread_join(thread, NULL);
	return 0;
}
