#include "daemon/engine/loop.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/front.h"
#include "daemon/engine/guard.h"
#include "kernels/contract.h"
#include "shm/resident.h"

enum {
	ENGINE_SLEEP_NS = 100000000, /* at most: a lost ring costs this much */
	JOIN_PAUSE_NS = 1000000,
	POLL_PAUSE_NS = 20000, /* a front's turn inside a step finds cold caches, and its wake-ups cost more
				  yet: answers that come together go out together */
};

struct loop {
	struct loop_config config;
	struct front *front;
	struct engine *engine;
	pthread_t engine_thread, front_thread;
	bool engine_started, front_started;
	bool in_front; /* shared: the engine's thread is inside front_turn */
	uint64_t polled_ns;
	int doorbell;      /* eventfd */
	shared_u32 asleep; /* separate: 1 while the engine sleeps or is about to */
};

/* Whether the calling thread runs front and engine by turns. */
static _Thread_local bool is_shared_thread;

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int loop_create(struct loop **ret, const struct loop_config *config)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	int error;

	if (!loop)
		return -ENOMEM;
	loop->config = *config;
	loop->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->doorbell < 0) {
		error = -errno;
		free(loop);
		return error;
	}
	*ret = loop;
	return 0;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	close(loop->doorbell);
	free(loop);
}

/* ---- the doorbell of a separate engine ---- */

static void ring(struct loop *loop)
{
	uint64_t one = 1;

	/* A full counter rings as well; nothing else can go wrong with an eventfd. */
	if (write(loop->doorbell, &one, sizeof(one)) < 0)
		return;
}

void loop_wake_engine(void *data)
{
	struct loop *loop = data;

	/* Partner: the fence in sleep_until_rung. Either the engine sees the command or we see it asleep. */
	fence_full();
	if (load_relaxed_u32(&loop->asleep))
		ring(loop);
}

void loop_ring(struct loop *loop)
{
	ring(loop);
	front_wake(loop->front);
}

/* `until_ns`: absolute, 0: none. */
static void sleep_until_rung(struct loop *loop, const struct queue *commands, uint64_t until_ns)
{
	struct pollfd poll_doorbell = {.fd = loop->doorbell, .events = POLLIN};
	uint64_t now = now_ns(), wait = ENGINE_SLEEP_NS, rung;
	struct timespec time;

	if (until_ns && until_ns < now + wait)
		wait = until_ns > now ? until_ns - now : 0;
	time = (struct timespec){.tv_sec = 0, .tv_nsec = (long)wait};
	store_relaxed_u32(&loop->asleep, 1);
	/* Partner: the fence in loop_wake_engine. */
	fence_full();
	if (queue_empty(commands) && ppoll(&poll_doorbell, 1, &time, NULL) > 0 &&
	    read(loop->doorbell, &rung, sizeof(rung)) < 0)
		rung = 0;
	store_relaxed_u32(&loop->asleep, 0);
}

/* ---- threads ---- */

void loop_poll(void *data)
{
	struct loop *loop = data;

	if (!is_shared_thread || loop->in_front || now_ns() - loop->polled_ns < POLL_PAUSE_NS)
		return;
	loop->in_front = true;
	front_poll(loop->front);
	loop->in_front = false;
	loop->polled_ns = now_ns();
}

static void *run_shared(void *data)
{
	struct loop *loop = data;
	uint32_t mode = contract_enter();

	is_shared_thread = true;
	resident_stack();
	guard_enter();
	while (!front_drained(loop->front)) {
		unsigned did;

		loop->in_front = true;
		did = front_turn(loop->front);
		loop->in_front = false;
		did += engine_turn(loop->engine);
		if (!did)
			front_idle(loop->front, engine_look_again_ns(loop->engine));
	}
	guard_leave();
	contract_leave(mode);
	return NULL;
}

static void *run_front(void *data)
{
	struct loop *loop = data;

	resident_stack();
	guard_enter();
	while (!front_drained(loop->front))
		if (!front_turn(loop->front))
			front_idle(loop->front, 0);
	guard_leave();
	ring(loop);
	return NULL;
}

static void *run_engine(void *data)
{
	struct loop *loop = data;
	const struct queue *commands = engine_commands(loop->engine);
	uint64_t last_work = now_ns();
	uint32_t mode = contract_enter();

	resident_stack();
	guard_enter();
	while (!front_drained(loop->front)) {
		uint64_t now;

		if (engine_turn(loop->engine)) {
			front_wake(loop->front);
			last_work = now_ns();
			continue;
		}
		now = now_ns();
		if (now - last_work >= loop->config.spin_ns)
			sleep_until_rung(loop, commands, engine_look_again_ns(loop->engine));
	}
	guard_leave();
	contract_leave(mode);
	return NULL;
}

static int start(pthread_t *ret, void *(*run)(void *), struct loop *loop, int cpu, const char *name)
{
	pthread_attr_t attributes;
	cpu_set_t cpus;
	int error;

	pthread_attr_init(&attributes);
	if (cpu >= 0) {
		CPU_ZERO(&cpus);
		CPU_SET(cpu, &cpus);
		pthread_attr_setaffinity_np(&attributes, sizeof(cpus), &cpus);
	}
	error = pthread_create(ret, &attributes, run, loop);
	pthread_attr_destroy(&attributes);
	if (!error)
		pthread_setname_np(*ret, name);
	return -error;
}

int loop_start(struct loop *loop, struct front *front, struct engine *engine)
{
	bool separate = loop->config.separate;
	int error;

	loop->front = front;
	loop->engine = engine;
	error = start(&loop->engine_thread, separate ? run_engine : run_shared, loop, loop->config.engine_cpu,
		      "engine");
	loop->engine_started = !error;
	if (error || !separate)
		return error;
	error = start(&loop->front_thread, run_front, loop, loop->config.front_cpu, "front");
	loop->front_started = !error;
	return error;
}

/* Not pthread_timedjoin_np, whose deadline moves when somebody sets the time of day. */
static int join(pthread_t thread, uint64_t deadline_ns)
{
	const struct timespec pause = {.tv_nsec = JOIN_PAUSE_NS};
	int error;

	if (deadline_ns == 0)
		return -pthread_join(thread, NULL);
	while ((error = pthread_tryjoin_np(thread, NULL)) == EBUSY && now_ns() < deadline_ns)
		nanosleep(&pause, NULL);
	return error == EBUSY ? -ETIMEDOUT : -error;
}

int loop_join(struct loop *loop, uint64_t deadline_ns)
{
	int error = 0;

	if (loop->front_started) {
		error = join(loop->front_thread, deadline_ns);
		loop->front_started = error != 0;
	}
	if (!error && loop->engine_started) {
		ring(loop);
		error = join(loop->engine_thread, deadline_ns);
		loop->engine_started = error != 0;
	}
	return error;
}
