#include "tools/bench_floor_team.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <time.h>

#include "tools/bench_floor.h"

struct team {
	team_work work;
	void *context;
	unsigned threads;
	double seconds;
	pthread_mutex_t gate; /* held until all threads are there: they start when it opens */
	bool abandoned;       /* under the gate: a thread is missing, nobody starts */
};

struct member {
	struct team *team;
	unsigned index;
	double rate;
};

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Pins the caller to the n-th of the CPUs that the process may use, round and round. */
static void pin_to_nth(unsigned n)
{
	cpu_set_t allowed, one;
	if (sched_getaffinity(0, sizeof allowed, &allowed))
		return;
	int count = CPU_COUNT(&allowed);
	int left = count ? (int)(n % (unsigned)count) : 0;
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || left--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		sched_setaffinity(0, sizeof one, &one);
		return;
	}
}

static bool wait_at_gate(struct team *team)
{
	pthread_mutex_lock(&team->gate);
	bool go = !team->abandoned;
	pthread_mutex_unlock(&team->gate);
	return go;
}

static void *run_member(void *context)
{
	struct member *m = context;
	struct team *team = m->team;
	double done = 0, start, now;
	pin_to_nth(m->index);
	if (!wait_at_gate(team))
		return NULL;
	start = now_s();
	do {
		done += team->work(team->context, m->index, team->threads);
		now = now_s();
	} while (now - start < team->seconds);
	m->rate = done / (now - start);
	return NULL;
}

double team_rate(team_work work, void *context, unsigned threads, double seconds)
{
	struct team team = {.work = work, .context = context, .threads = threads, .seconds = seconds};
	struct member members[FLOOR_THREADS_MAX];
	pthread_t ids[FLOOR_THREADS_MAX];
	cpu_set_t allowed;
	double rate = 0;
	if (threads < 1 || threads > FLOOR_THREADS_MAX)
		return -EINVAL;
	if (sched_getaffinity(0, sizeof allowed, &allowed))
		return -errno;
	for (unsigned i = 0; i < threads; i++)
		members[i] = (struct member){.team = &team, .index = i};
	pthread_mutex_init(&team.gate, NULL);
	pthread_mutex_lock(&team.gate);
	unsigned made = 1;
	while (made < threads && !pthread_create(&ids[made], NULL, run_member, &members[made]))
		made++;
	team.abandoned = made < threads;
	pthread_mutex_unlock(&team.gate);
	run_member(&members[0]); /* the caller is one of them */
	for (unsigned i = 1; i < made; i++)
		pthread_join(ids[i], NULL);
	pthread_mutex_destroy(&team.gate);
	sched_setaffinity(0, sizeof allowed, &allowed);
	for (unsigned i = 0; i < made; i++)
		rate += members[i].rate;
	return team.abandoned ? -EAGAIN : rate;
}
