/* What sleeping costs: a round trip with both ends asleep, an answer to a client that sleeps, and an idle
 * daemon with many clients. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/cli/bench_crowd.h"
#include "tools/cli/bench_pair.h"
#include "tools/cli/bench_rounds.h"
#include "tools/cli/connect.h"
#include "tools/cli/cpus.h"

enum {
	AT_ONCE_NS = 1, /* spinning before a sleep */
	PAUSE_US = 1000,
	ROUND_TRIPS = 100,
	ANSWER_US = 4000, /* about as long as a small model computes a token */
	ANSWERS = 40,
	READ_BYTES = 64 << 20, /* of weights, about as many as it reads for that */
	CROWD = 256,
	IDLE_SECONDS = 3,
};

static bool is_terminal(const struct tr_event *event)
{
	return event->kind != TR_EVENT_TOKENS;
}

/* A token that takes the engine a while; the time is that of the way back: from when the daemon answered,
 * which it counts from when it picked the request up, awake from an echo. */
static int one_answer(struct tr_client *client, uint32_t token, double *ret_ns, double ns_per_tick)
{
	static struct floor_trips ignored;
	const struct echo echo = {.client = client, .n_tokens = 1};
	struct tr_request request = {
	    .size = sizeof request, .op = TR_GENERATE, .n_tokens = 1, .max_new = 1, .tokens = {token}};
	struct tr_event event = {.size = sizeof event};
	uint64_t id, begun;
	int r = echo_trips(&echo, 10, ns_per_tick, 0, &ignored);
	begun = floor_ticks();
	if (!r)
		r = tr_submit(client, &request, &id);
	if (!r)
		r = tr_wait(client, &event, 1, -1);
	*ret_ns = (double)(floor_ticks() - begun) * ns_per_tick - 100.0 * event.since_ns_100;
	while (r == 1 && !is_terminal(&event))
		r = tr_wait(client, &event, 1, -1);
	if (r == 1 && (event.kind != TR_EVENT_FINAL || event.status))
		return -EBADMSG;
	return r < 0 ? r : 0;
}

static enum exit_code run_answers(const struct ring *ring, const struct contender *self, uint64_t n,
				  struct floor_trips *ret)
{
	struct tr_client *client = self->context;
	for (uint64_t i = 0; i < n; i++) {
		double ns = 0;
		uint32_t token;
		bench_fill_prompt(&ring->bench, &token, 1, (uint32_t)i);
		int r = one_answer(client, token, &ns, ring->ns_per_tick);
		if (r)
			return complain_echo(client, r);
		floor_trips_add(ret, ns > 0 ? (uint64_t)(ns / ring->ns_per_tick) : 0, 1, ring->ns_per_tick,
				self->ticks_per_poll);
	}
	return EXIT_DONE;
}

static enum exit_code measure_wakes(struct ring *ring, struct pair *socket, struct pair *futex,
				    struct tr_client *sleeper)
{
	static struct rounds rounds;
	static struct contender both, answer, by_socket, by_futex, socket_back, futex_back, socket_cold,
	    futex_cold;
	struct echo echo = {sleeper, TR_INLINE_TOKENS, true, PAUSE_US};
	struct pair_run runs[] = {
	    {socket, PAIR_BLOCK, 0, PAUSE_US, 0},          {futex, PAIR_BLOCK, 0, PAUSE_US, 0},
	    {socket, PAIR_WAKE, 0, ANSWER_US, 0},          {futex, PAIR_WAKE, 0, ANSWER_US, 0},
	    {socket, PAIR_WAKE, 0, ANSWER_US, READ_BYTES}, {futex, PAIR_WAKE, 0, ANSWER_US, READ_BYTES},
	};
	struct contender *list[] = {&both,        &by_socket,  &by_futex,    &answer,
				    &socket_back, &futex_back, &socket_cold, &futex_cold};
	const struct bench_options *o = ring->bench.options;
	rounds_init(&rounds, ring, "floor", o->n / 4, (o->rounds + 4) / 5);
	both =
	    (struct contender){"both_asleep", ring_run_echo, &echo, ROUND_TRIPS, &by_socket, .polls = false};
	by_socket = (struct contender){"socket_both_asleep", ring_run_pair, &runs[0],
				       ROUND_TRIPS,          NULL,          .polls = false};
	by_futex = (struct contender){"futex_both_asleep", ring_run_pair, &runs[1],
				      ROUND_TRIPS,         NULL,          .polls = false};
	answer =
	    (struct contender){"client_asleep", run_answers, sleeper, ANSWERS, &socket_cold, .polls = false};
	socket_back =
	    (struct contender){"socket_wake", ring_run_pair, &runs[2], ANSWERS, NULL, .polls = false};
	futex_back = (struct contender){"futex_wake", ring_run_pair, &runs[3], ANSWERS, NULL, .polls = false};
	socket_cold =
	    (struct contender){"socket_wake_cold", ring_run_pair, &runs[4], ANSWERS, NULL, .polls = false};
	futex_cold =
	    (struct contender){"futex_wake_cold", ring_run_pair, &runs[5], ANSWERS, NULL, .polls = false};
	enum exit_code code = rounds_run(&rounds, list, 8);
	for (unsigned i = 0; i < 8 && !code; i++)
		rounds_print(&rounds, list[i]);
	if (!code) {
		bench_note(
		    &ring->bench,
		    "both_asleep: an echo by tr_wait that does not spin, %d us after the last; "
		    "client_asleep: from the daemon's answer, which it computed for some "
		    "milliseconds, to the return "
		    "of tr_wait; references: 64 bytes over SOCK_SEQPACKET, and memory with a futex, "
		    "with the same pauses; cold: after a pause spent reading memory, as the daemon's is",
		    PAUSE_US);
		rounds_note(&rounds);
	}
	rounds_free(&rounds);
	return code;
}

static enum exit_code bench_wakes(struct ring *ring)
{
	struct pair *socket = NULL, *futex = NULL;
	struct tr_client *sleeper = NULL;
	enum exit_code code = ring_open_client(ring, AT_ONCE_NS, &sleeper);
	if (!code)
		code = ring_start_pair(&pair_socket, &socket);
	if (!code)
		code = ring_start_pair(&pair_futex, &futex);
	if (!code)
		code = measure_wakes(ring, socket, futex, sleeper);
	pair_stop(socket);
	pair_stop(futex);
	tr_close(sleeper);
	return code;
}

/* ---- the daemon's CPU time while nobody asks for anything ---- */

static double busy_ns(const struct cpu_times *times)
{
	double sum = 0;
	for (unsigned i = 0; i < times->n; i++)
		sum += (double)times->thread[i].ticks;
	return sum;
}

static int measure_idle(pid_t pid, struct series *percent)
{
	static struct cpu_times before, after;
	int r = 0;
	for (int i = 0; i < IDLE_SECONDS && !r; i++) {
		struct timespec from, to;
		clock_gettime(CLOCK_MONOTONIC, &from);
		r = cpus_read(pid, &before);
		usleep(1000000);
		clock_gettime(CLOCK_MONOTONIC, &to);
		if (!r)
			r = cpus_read(pid, &after);
		double ns = 1e9 * (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec);
		if (!r)
			r = series_add(percent, 100 * (busy_ns(&after) - busy_ns(&before)) / ns);
	}
	return r;
}

static enum exit_code bench_idle_cpu(struct ring *ring)
{
	struct series percent = {0};
	pid_t crowd = 0;
	int r = crowd_open(ring, CROWD - 1, &crowd);
	if (r) {
		crowd_note_missing(ring, CROWD - 1, r);
		return EXIT_DONE;
	}
	usleep(200000);
	r = measure_idle(ring_daemon(ring), &percent);
	crowd_close(crowd);
	if (!r) {
		struct figure f = figure_of_times(&percent);
		f.bench = "ring";
		f.metric = "idle_daemon_cpu";
		f.unit = "%";
		bench_print(&ring->bench, &f);
		bench_note(
		    &ring->bench,
		    "idle_daemon_cpu: CPU time of all threads of the daemon in seconds without a request, "
		    "%d clients connected, in percent of one core",
		    CROWD);
	} else {
		bench_note(&ring->bench, "MISSING: the daemon's CPU time cannot be read: %s", strerror(-r));
	}
	series_free(&percent);
	return EXIT_DONE;
}

enum exit_code ring_bench_asleep(struct ring *ring)
{
	enum exit_code code = bench_wakes(ring);
	return code ? code : bench_idle_cpu(ring);
}
