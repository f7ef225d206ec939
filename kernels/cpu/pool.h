/* The team of threads that runs a step: the caller is thread 0, the others belong to the pool.
 *
 * Between steps a worker spins for SPIN_NS, then sleeps, so that an idle daemon uses no CPU. Inside a step
 * threads meet at spinning barriers and give the CPU away when they wait long, so that more threads than CPUs
 * still work. Thread rule: one thread owns the pool and calls open, run and close; pool_barrier and pool_work
 * are called by the threads of a running job. */
#ifndef TOKENRING_KERNELS_CPU_POOL_H
#define TOKENRING_KERNELS_CPU_POOL_H

#include <stddef.h>
#include <stdint.h>

struct pool;
struct team_thread;

struct pool_config {
	uint32_t threads; /* including the caller's */
	const int *cpus;  /* (threads); entry 0 is not used: the caller pins itself; NULL or -1: not pinned */
	void (*poll)(void *poll_data); /* on thread 0; may be NULL */
	void *poll_data;
	uint32_t work_per_us; /* units of pool_work that a thread does in about a microsecond */
};

/* -ENOMEM, -EAGAIN (no thread), with a sentence. */
int pool_open(const struct pool_config *, struct pool **ret, char *why, size_t why_bytes);
void pool_close(struct pool *);

/* Runs job on all threads with FTZ and DAZ on; returns when all are done. */
void pool_run(struct pool *, void (*job)(void *data, struct team_thread *), void *data);

uint32_t pool_threads(const struct pool *);

/* ---- inside a job ---- */
struct team_thread {
	struct pool *pool;
	uint32_t index, threads;
	uint32_t crossings; /* barriers passed */
	/* thread 0 only */
	uint64_t unpolled, poll_work; /* work since the clock was last read, and when to read it */
	uint64_t polled_ns;           /* when poll last ran */
};

/* Everything written before it by any thread is seen after it by all. */
void pool_barrier(struct team_thread *);

/* Reads the clock and calls poll if 50 us have passed since it ran. Thread 0 only. */
void pool_poll(struct team_thread *);

/* Says that `work` units were done; cheap, so call it often. */
static inline void pool_work(struct team_thread *self, uint64_t work)
{
	self->unpolled += work;
	if (self->unpolled >= self->poll_work)
		pool_poll(self);
}

/* The share of `units` things that thread `index` of `threads` takes: [*first, *end). */
static inline void pool_share(uint32_t index, uint32_t threads, uint32_t units, uint32_t *first,
			      uint32_t *end)
{
	*first = (uint32_t)((uint64_t)units * index / threads);
	*end = (uint32_t)((uint64_t)units * (index + 1) / threads);
}

/* The thread whose share thing `unit` is in. */
static inline uint32_t pool_owner(uint32_t unit, uint32_t threads, uint32_t units)
{
	return (uint32_t)((((uint64_t)unit + 1) * threads - 1) / units);
}

#endif
