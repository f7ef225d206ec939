#include "kernels/cpu/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/contract.h"
#include "shm/atomics.h"
#include "shm/resident.h"

enum {
	IDLE_SPIN_NS = 80000, /* a wake-up costs 15 to 50 us on virtual machines */
	POLL_NS = 50000,      /* half of what the backend promises */
	CLOCK_EVERY_US = 10,  /* of work between two looks at the clock */
	SPINS_A_LOOK = 64,    /* pauses between two looks at the clock while waiting */
	SPINS_A_YIELD =
	    512 /* pauses before the CPU is offered to others: there may be fewer CPUs than threads */
};

/* One line for each thread, so that a crossing is one line transfer a thread. */
struct seat {
	_Alignas(128) shared_u32 arrived;
	struct team_thread thread;
	pthread_t id;
};

struct pool {
	struct pool_config config;
	uint32_t started; /* workers that run */
	void (*job)(void *data, struct team_thread *);
	void *data;

	_Alignas(128) shared_u32 generation; /* rises with every job; 0 ends the workers */
	_Alignas(128) shared_u32 sleepers;
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	struct seat seat[];
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void relax(uint32_t spins)
{
	__builtin_ia32_pause();
	if (spins % SPINS_A_YIELD == SPINS_A_YIELD - 1)
		sched_yield();
}

void pool_poll(struct team_thread *self)
{
	const struct pool_config *config = &self->pool->config;

	self->unpolled = 0;
	uint64_t now = now_ns();
	if (now - self->polled_ns < POLL_NS)
		return;
	config->poll(config->poll_data);
	self->polled_ns = now_ns();
}

static void wait_for(struct team_thread *self, const struct seat *other, uint32_t crossing)
{
	/* Pairs with the release store in pool_barrier. */
	for (uint32_t spins = 0; (int32_t)(load_acquire_u32(&other->arrived) - crossing) < 0; spins++) {
		relax(spins);
		if (self->poll_work != UINT64_MAX && spins % SPINS_A_LOOK == SPINS_A_LOOK - 1)
			pool_poll(self);
	}
}

void pool_barrier(struct team_thread *self)
{
	struct pool *pool = self->pool;
	uint32_t crossing = ++self->crossings;

	/* Pairs with the acquire load in wait_for: who sees the crossing sees what came before it. */
	store_release_u32(&pool->seat[self->index].arrived, crossing);
	for (uint32_t i = 0; i < self->threads; i++)
		if (i != self->index)
			wait_for(self, &pool->seat[i], crossing);
}

static uint32_t sleep_until_changed(struct pool *pool, uint32_t seen)
{
	uint32_t generation;

	pthread_mutex_lock(&pool->mutex);
	store_relaxed_u32(&pool->sleepers, load_relaxed_u32(&pool->sleepers) + 1);
	/* Pairs with the fence in publish: either the owner sees the sleeper or this sees the generation. */
	fence_full();
	while ((generation = load_acquire_u32(&pool->generation)) == seen)
		pthread_cond_wait(&pool->wake, &pool->mutex);
	store_relaxed_u32(&pool->sleepers, load_relaxed_u32(&pool->sleepers) - 1);
	pthread_mutex_unlock(&pool->mutex);
	return generation;
}

static uint32_t next_generation(struct pool *pool, uint32_t seen)
{
	uint64_t until = now_ns() + IDLE_SPIN_NS;

	for (uint32_t spins = 0;; spins++) {
		/* Pairs with the release store in publish: the job is read after it. */
		uint32_t generation = load_acquire_u32(&pool->generation);
		if (generation != seen)
			return generation;
		relax(spins);
		if (spins % SPINS_A_LOOK == SPINS_A_LOOK - 1 && now_ns() > until)
			return sleep_until_changed(pool, seen);
	}
}

static void publish(struct pool *pool, uint32_t generation)
{
	store_release_u32(&pool->generation, generation);
	fence_full();
	if (!load_relaxed_u32(&pool->sleepers))
		return;
	pthread_mutex_lock(&pool->mutex);
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->mutex);
}

static void *worker(void *data)
{
	struct seat *seat = data;
	struct pool *pool = seat->thread.pool;
	uint32_t generation = 1;

	pthread_setname_np(pthread_self(), "worker"); /* else it has its creator's name in top and perf */
	resident_stack();
	contract_enter();
	while ((generation = next_generation(pool, generation)) != 0) {
		pool->job(pool->data, &seat->thread);
		pool_barrier(&seat->thread);
	}
	return NULL;
}

void pool_run(struct pool *pool, void (*job)(void *data, struct team_thread *), void *data)
{
	struct team_thread *self = &pool->seat[0].thread;
	uint32_t state = contract_enter();
	uint32_t generation = load_relaxed_u32(&pool->generation) + 1;

	pool->job = job;
	pool->data = data;
	self->unpolled = 0;
	self->polled_ns = now_ns();
	if (self->threads > 1)
		publish(pool, generation ? generation : 1);
	job(data, self);
	pool_barrier(self);
	contract_leave(state);
}

uint32_t pool_threads(const struct pool *pool)
{
	return pool->config.threads;
}

static int start_worker(struct pool *pool, uint32_t index, char *why, size_t why_bytes)
{
	struct seat *seat = &pool->seat[index];
	int cpu = pool->config.cpus ? pool->config.cpus[index] : -1;
	pthread_attr_t attributes;
	cpu_set_t set;

	pthread_attr_init(&attributes);
	if (cpu >= 0) {
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
	}
	int r = pthread_create(&seat->id, &attributes, worker, seat);
	pthread_attr_destroy(&attributes);
	if (r) {
		if (cpu >= 0)
			snprintf(why, why_bytes,
				 "cannot start worker thread %u on CPU %d: %s; choose CPUs that the process "
				 "may use",
				 index, cpu, strerror(r));
		else
			snprintf(why, why_bytes, "cannot start worker thread %u: %s; use fewer threads",
				 index, strerror(r));
		return -r;
	}
	pool->started++;
	return 0;
}

static void seat_thread(struct pool *pool, uint32_t index)
{
	bool polls = index == 0 && pool->config.poll;

	pool->seat[index].thread = (struct team_thread){
	    .pool = pool,
	    .index = index,
	    .threads = pool->config.threads,
	    .poll_work = polls ? (uint64_t)pool->config.work_per_us * CLOCK_EVERY_US : UINT64_MAX,
	};
}

int pool_open(const struct pool_config *config, struct pool **ret, char *why, size_t why_bytes)
{
	size_t bytes = sizeof(struct pool) + config->threads * sizeof(struct seat);
	struct pool *pool = aligned_alloc(128, (bytes + 127) / 128 * 128);

	if (!pool) {
		snprintf(why, why_bytes, "no memory for %u threads", config->threads);
		return -ENOMEM;
	}
	memset(pool, 0, bytes);
	pool->config = *config;
	pthread_mutex_init(&pool->mutex, NULL);
	pthread_cond_init(&pool->wake, NULL);
	store_relaxed_u32(&pool->generation, 1);
	for (uint32_t i = 0; i < config->threads; i++)
		seat_thread(pool, i);
	for (uint32_t i = 1; i < config->threads; i++) {
		int r = start_worker(pool, i, why, why_bytes);
		if (r < 0) {
			pool_close(pool);
			return r;
		}
	}
	pool->config.cpus = NULL; /* the caller's */
	*ret = pool;
	return 0;
}

void pool_close(struct pool *pool)
{
	if (!pool)
		return;
	publish(pool, 0);
	for (uint32_t i = 1; i <= pool->started; i++)
		pthread_join(pool->seat[i].id, NULL);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->mutex);
	free(pool);
}
