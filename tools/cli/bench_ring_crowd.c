/* Channels that say nothing: what many of them cost one that is busy, and how soon one of them is heard when
 * it speaks. They belong to a process of their own, whose end gives their memory back to this user's limit.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cli/bench_crowd.h"
#include "tools/cli/bench_rounds.h"

enum {
	SETTLE_US = 50000,
	SETTLE_TRIPS = 30000, /* some milliseconds, after which the daemon has parked the others */
	PARK_US = 6000,
	STAY_US = 500,
	PICKUPS = 100,
	CROWD = 256,
};

static _Noreturn void be_crowd(const char *socket, unsigned n, int result)
{
	const struct tr_open_options options = {.size = sizeof options};
	struct tr_client *client;
	int r = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0; i < n && !r; i++)
		r = tr_open(&client, socket, &options);
	if (write(result, &r, sizeof r) != (ssize_t)sizeof r)
		_exit(1);
	for (;;)
		pause();
}

int crowd_open(const struct ring *ring, unsigned n, pid_t *ret)
{
	int result[2], r = -EPIPE;
	if (pipe(result))
		return -errno;
	pid_t pid = fork();
	if (pid == 0) {
		close(tr_fd(ring->bench.client)); /* a copy of it would outlive its owner */
		be_crowd(ring->bench.options->common.socket, n, result[1]);
	}
	close(result[1]);
	if (pid < 0 || read(result[0], &r, sizeof r) != (ssize_t)sizeof r)
		r = -EPIPE;
	close(result[0]);
	if (r)
		crowd_close(pid);
	else
		*ret = pid;
	return r;
}

void crowd_close(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	usleep(SETTLE_US); /* the daemon takes their channels apart */
}

void crowd_note_missing(const struct ring *ring, unsigned n, int error)
{
	bench_note(&ring->bench,
		   "MISSING: %u idle channels cannot be opened (%s); max_clients_per_uid, max_clients and "
		   "memory_per_uid of the daemon limit them",
		   n, tr_strerror(error));
}

/* ---- one busy channel beside idle ones ---- */

struct beside {
	struct echo echo;
	unsigned n;
};

static enum exit_code run_beside(const struct ring *ring, const struct contender *self, uint64_t n,
				 struct floor_trips *ret)
{
	static struct floor_trips ignored;
	const struct beside *beside = self->context;
	pid_t crowd = 0;
	int r = beside->n ? crowd_open(ring, beside->n, &crowd) : 0;
	if (r)
		return complain("%u idle channels cannot be opened: %s", beside->n, tr_strerror(r));
	r = echo_trips(&beside->echo, SETTLE_TRIPS, ring->ns_per_tick, 0, &ignored);
	if (!r)
		r = echo_trips(&beside->echo, n, ring->ns_per_tick, self->ticks_per_poll, ret);
	crowd_close(crowd);
	return r ? complain_echo(beside->echo.client, r) : EXIT_DONE;
}

static int try_crowd(const struct ring *ring, unsigned n)
{
	pid_t crowd = 0;
	int r = crowd_open(ring, n, &crowd);
	if (r)
		crowd_note_missing(ring, n, r);
	else
		crowd_close(crowd);
	return r;
}

static void report_idle(struct rounds *rounds)
{
	for (unsigned i = 0; i < rounds->n; i++)
		rounds_print(rounds, rounds->contenders[i]);
	bench_note(&rounds->ring->bench,
		   "idle channels of another process beside one that echoes; reference: the same echo alone");
	rounds_note(rounds);
}

enum exit_code ring_bench_idle(struct ring *ring)
{
	static const char *const names[] = {"echo_alone", "echo_beside_16_idle", "echo_beside_64_idle",
					    "echo_beside_256_idle"};
	static const unsigned counts[] = {0, 16, 64, CROWD};
	static struct rounds rounds;
	static struct contender contenders[4];
	struct beside beside[4];
	struct contender *list[4];
	const struct bench_options *o = ring->bench.options;
	unsigned n = 0;
	rounds_init(&rounds, ring, "floor", o->n / 4, (o->rounds + 4) / 5);
	for (; n < 4 && (!counts[n] || !try_crowd(ring, counts[n])); n++) {
		beside[n] =
		    (struct beside){{.client = ring->bench.client, .n_tokens = TR_INLINE_TOKENS}, counts[n]};
		contenders[n] = (struct contender){.metric = names[n],
						   .run = run_beside,
						   .context = &beside[n],
						   .n = o->n,
						   .reference = n ? &contenders[0] : &rounds.walk,
						   .polls = true};
		list[n] = &contenders[n];
	}
	enum exit_code code = rounds_run(&rounds, list, n);
	if (!code)
		report_idle(&rounds);
	rounds_free(&rounds);
	return code;
}

/* ---- one that speaks up beside a busy one ---- */

struct pickup {
	struct tr_client *busy, *other;
	uint32_t pause_us;
};

static int keep_busy(const struct pickup *pickup, struct tr_event *event)
{
	const struct tr_request request = {
	    .size = sizeof request, .op = TR_ECHO, .n_tokens = TR_INLINE_TOKENS};
	uint64_t id;
	int r = tr_poll(pickup->busy, event, 1);
	return r == 1 ? tr_submit(pickup->busy, &request, &id) : r;
}

static int stay_busy(const struct pickup *pickup, struct tr_event *event, double ns_per_tick)
{
	uint64_t until = floor_ticks() + (uint64_t)(1e3 * pickup->pause_us / ns_per_tick);
	int r = 0;
	while (!r && floor_ticks() < until)
		r = keep_busy(pickup, event);
	return r;
}

static int one_pickup(const struct pickup *pickup, struct tr_event *event, uint64_t *polls)
{
	const struct tr_request request = {
	    .size = sizeof request, .op = TR_ECHO, .n_tokens = TR_INLINE_TOKENS};
	uint64_t id;
	int r = tr_submit(pickup->other, &request, &id);
	while (!r && (r = tr_poll(pickup->other, event, 1)) == 0) {
		r = keep_busy(pickup, event);
		++*polls;
	}
	return r == 1 ? 0 : r;
}

static enum exit_code run_pickup(const struct ring *ring, const struct contender *self, uint64_t n,
				 struct floor_trips *ret)
{
	const struct pickup *pickup = self->context;
	const struct tr_request request = {
	    .size = sizeof request, .op = TR_ECHO, .n_tokens = TR_INLINE_TOKENS};
	struct tr_event event = {.size = sizeof event};
	uint64_t id;
	int r = tr_submit(pickup->busy, &request, &id);
	for (uint64_t i = 0; i <= n && !r; i++) {
		uint64_t polls = 1;
		r = stay_busy(pickup, &event, ring->ns_per_tick);
		uint64_t begun = floor_ticks();
		if (!r)
			r = one_pickup(pickup, &event, &polls);
		if (i)
			floor_trips_add(ret, floor_ticks() - begun, polls, ring->ns_per_tick,
					self->ticks_per_poll);
	}
	while (!r) /* the last one of the busy channel */
		r = tr_poll(pickup->busy, &event, 1);
	return r < 0 ? complain_echo(pickup->other, r) : EXIT_DONE;
}

static enum exit_code measure_parked(struct ring *ring, struct tr_client *other)
{
	static struct rounds rounds;
	static struct contender parked, polled;
	const struct bench_options *o = ring->bench.options;
	struct pickup long_pause = {ring->bench.client, other, PARK_US},
		      short_pause = {ring->bench.client, other, STAY_US};
	rounds_init(&rounds, ring, "floor", o->n / 4, (o->rounds + 4) / 5);
	polled = (struct contender){"polled_pickup", run_pickup,   &short_pause,
				    PICKUPS,         &rounds.walk, .polls = true};
	parked =
	    (struct contender){"parked_pickup", run_pickup, &long_pause, PICKUPS, &polled, .polls = true};
	enum exit_code code = rounds_run(&rounds, (struct contender *[]){&polled, &parked}, 2);
	if (!code) {
		rounds_print(&rounds, &parked);
		rounds_print(&rounds, &polled);
		bench_note(&ring->bench,
			   "an echo on a channel silent for %d us (%d us: still polled every turn) while "
			   "another channel echoes all the time, both of this thread; beside idle channels",
			   PARK_US, STAY_US);
		rounds_note(&rounds);
	}
	rounds_free(&rounds);
	return code;
}

enum exit_code ring_bench_parked(struct ring *ring)
{
	struct tr_client *other;
	pid_t crowd = 0;
	enum exit_code code = ring_open_client(ring, 0, &other);
	if (code)
		return code;
	int r = crowd_open(ring, CROWD - 2, &crowd);
	if (r)
		crowd_note_missing(ring, CROWD - 2, r);
	code = measure_parked(ring, other);
	crowd_close(crowd);
	tr_close(other);
	return code;
}
