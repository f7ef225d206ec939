/* tokenring bench ring: echo round trips through the daemon, beside a raw ping-pong that walks the same
 * number of cache lines between the same two CPUs.
 *
 * Slices of both alternate. A virtual machine may put both CPUs on one core for a while, where a line never
 * leaves the cache: rounds whose ping-pong is faster than --same-core-ns are dropped and counted. So are
 * rounds whose ping-pong before and after the echoes differs by over 30 %: a CPU was moved nearer or farther,
 * and the echoes belong to neither. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tools/bench_floor.h"
#include "tools/cli/bench.h"
#include "tools/cli/connect.h"
#include "tools/cli/cpus.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/patience.h"

enum { TRIES_PER_ROUND = 4, PROBE_TRIPS = 5000, CPUS_MAX = 1024, CPUS_TRIED = 16 };

struct ring {
	struct bench bench;
	struct floor_lines *lines;
	int near_cpu, far_cpu;
	double ns_per_tick, echo_ticks_per_poll, walk_ticks_per_poll;
	struct floor_trips echo, walk; /* of the rounds that count */
	struct floor_trips echo_slice, walk_slice[2];
	uint64_t kept, on_one_core, moved;
};

/* One after the other: submit, poll until the answer is there, which must be ours. */
static int echo_trips(struct ring *ring, uint64_t n, struct floor_trips *trips)
{
	struct tr_client *client = ring->bench.client;
	struct tr_request request = {.size = sizeof request, .op = TR_ECHO, .n_tokens = 1};
	struct tr_event event = {.size = sizeof event};
	struct patience patience = {0};
	uint64_t last = 0, id;
	for (uint64_t i = 0; i <= n; i++) {
		request.tokens[0] = (uint32_t)(i & 1);
		int r = tr_submit(client, &request, &id);
		uint64_t polls = 0;
		while (!r && (r = patient_poll(&patience, client, &event, 1)) == 0)
			polls++;
		uint64_t now = floor_ticks();
		if (r < 0)
			return r;
		if (event.id != id || event.kind != TR_EVENT_ECHO || event.tokens[0] != request.tokens[0])
			return -EBADMSG;
		if (last) /* the first one may have had to wake the daemon */
			floor_trips_add(trips, now - last, polls + 1, ring->ns_per_tick,
					ring->echo_ticks_per_poll);
		last = now;
	}
	return 0;
}

static enum exit_code complain_echo(struct ring *ring, int error)
{
	if (error == -EBADMSG)
		return complain("the daemon answered an echo with something else");
	return complain_call(ring->bench.client, "an echo breaks off", error);
}

static pid_t daemon_pid(struct ring *ring)
{
	struct ucred peer;
	socklen_t bytes = sizeof peer;
	return getsockopt(tr_fd(ring->bench.client), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) ? -1 : peer.pid;
}

/* The daemon's busiest thread during echoes is its front. */
static int find_far_cpu(struct ring *ring)
{
	struct cpu_times *times = calloc(2, sizeof *times);
	int cpu = -1;
	pid_t pid = daemon_pid(ring);
	if (times && pid > 0 && !cpus_read(pid, &times[0]) &&
	    !echo_trips(ring, 4 * PROBE_TRIPS, &ring->echo_slice) && !cpus_read(pid, &times[1]))
		cpu = cpus_busiest(&times[0], &times[1]);
	free(times);
	return cpu;
}

/* Tries the allowed CPUs beside the daemon's core and keeps the one with the quickest echoes. */
static enum exit_code choose_near_cpu(struct ring *ring)
{
	int cpus[CPUS_MAX];
	unsigned n = cpus_allowed(cpus, CPUS_MAX), tried = 0;
	uint64_t best = UINT64_MAX;
	for (unsigned i = 0; i < n && tried < CPUS_TRIED; i++) {
		if (cpus_share_core(cpus[i], ring->far_cpu) || cpus_pin(cpus[i]))
			continue;
		tried++;
		ring->echo_slice = (struct floor_trips){0};
		int r = echo_trips(ring, PROBE_TRIPS, &ring->echo_slice);
		if (r)
			return complain_echo(ring, r);
		uint64_t p50 = histogram_percentile(&ring->echo_slice.all, 0.5);
		if (p50 < best) {
			best = p50;
			ring->near_cpu = cpus[i];
		}
	}
	if (!tried)
		return complain(
		    "this process may use no core beside that of the daemon's CPU %d: nothing to measure",
		    ring->far_cpu);
	cpus_pin(ring->near_cpu);
	return EXIT_DONE;
}

/* Without /proc of the daemon: the first allowed CPU is taken for its, as the daemon takes it by default. */
static enum exit_code choose_cpus(struct ring *ring)
{
	int first;
	ring->far_cpu = find_far_cpu(ring);
	if (ring->far_cpu < 0 && cpus_allowed(&first, 1) == 1) {
		ring->far_cpu = first;
		bench_note(&ring->bench, "the daemon's CPU cannot be seen; CPU %d is taken for it", first);
	}
	return choose_near_cpu(ring);
}

static double ticks_per_poll(const struct floor_trips *trips)
{
	return trips->polls ? (double)trips->ticks / (double)trips->polls : 0;
}

static enum exit_code walk(struct ring *ring, uint64_t n, struct floor_trips *slice)
{
	*slice = (struct floor_trips){0};
	int r =
	    floor_walk(ring->lines, ring->far_cpu, n, ring->ns_per_tick, ring->walk_ticks_per_poll, slice);
	return r ? complain("cannot measure the floor: %s", strerror(-r)) : EXIT_DONE;
}

/* Half the floor, the echoes, the other half. */
static enum exit_code measure_round(struct ring *ring, uint64_t n)
{
	ring->echo_slice = (struct floor_trips){0};
	enum exit_code code = walk(ring, (n + 1) / 2, &ring->walk_slice[0]);
	if (code)
		return code;
	int r = echo_trips(ring, n, &ring->echo_slice);
	return r ? complain_echo(ring, r) : walk(ring, (n + 1) / 2, &ring->walk_slice[1]);
}

/* Keeps the round, or counts why not. */
static void judge_round(struct ring *ring)
{
	uint64_t before = histogram_percentile(&ring->walk_slice[0].all, 0.5);
	uint64_t after = histogram_percentile(&ring->walk_slice[1].all, 0.5);
	uint64_t low = before < after ? before : after, high = before < after ? after : before;
	if (low < ring->bench.options->same_core_ns) {
		ring->on_one_core++;
	} else if (10 * high > 13 * low) {
		ring->moved++;
	} else {
		ring->kept++;
		floor_trips_merge(&ring->walk, &ring->walk_slice[0]);
		floor_trips_merge(&ring->walk, &ring->walk_slice[1]);
		floor_trips_merge(&ring->echo, &ring->echo_slice);
	}
}

static enum exit_code measure(struct ring *ring)
{
	const struct bench_options *o = ring->bench.options;
	enum exit_code code = measure_round(ring, PROBE_TRIPS); /* warms up, and shows what a poll takes */
	ring->walk_ticks_per_poll = ticks_per_poll(&ring->walk_slice[1]);
	ring->echo_ticks_per_poll = ticks_per_poll(&ring->echo_slice);
	for (uint64_t tries = 0; !code && ring->kept < o->rounds && tries < TRIES_PER_ROUND * o->rounds;
	     tries++) {
		code = interrupt_count() ? complain("interrupted") : measure_round(ring, o->n);
		if (!code)
			judge_round(ring);
	}
	if (!code && !ring->kept)
		code = complain("no round counts: both CPUs were on one core in %" PRIu64
				" (raw round trip under %" PRIu64
				" ns, see --same-core-ns), and the machine moved a CPU during %" PRIu64
				"; try again",
				ring->on_one_core, o->same_core_ns, ring->moved);
	return code;
}

static void print(const struct ring *ring, const char *metric, const struct histogram *h,
		  const struct histogram *floor)
{
	struct figure f = figure_of_histogram(h);
	f.bench = "ring";
	f.metric = metric;
	f.unit = "ns";
	f.floor = (double)histogram_percentile(floor, 0.5);
	bench_print(&ring->bench, &f);
}

static double per_second(uint64_t gaps, const struct floor_trips *trips, double ns_per_tick)
{
	return trips->ticks ? 1e9 * (double)gaps / ((double)trips->ticks * ns_per_tick) : 0;
}

static void report_gaps(const struct ring *ring, const char *what, const struct floor_trips *t)
{
	bench_note(&ring->bench,
		   "gaps over %d us during %s: %" PRIu64 " of this end's CPU (%.0f/s), %" PRIu64
		   " of the other end (%.0f/s)",
		   FLOOR_GAP_NS / 1000, what, t->near_gaps, per_second(t->near_gaps, t, ring->ns_per_tick),
		   t->far_gaps, per_second(t->far_gaps, t, ring->ns_per_tick));
}

static void report(const struct ring *ring)
{
	print(ring, "echo", &ring->echo.all, &ring->walk.all);
	print(ring, "echo_without_own_gaps", &ring->echo.without, &ring->walk.without);
	print(ring, "floor", &ring->walk.all, &ring->walk.all);
	print(ring, "floor_without_own_gaps", &ring->walk.without, &ring->walk.without);
	bench_note(&ring->bench,
		   "one echo in flight, CPU %d to the daemon on CPU %d; floor: raw ping-pong walking %u and "
		   "%u lines",
		   ring->near_cpu, ring->far_cpu, ring->bench.sq_slots, ring->bench.cq_slots);
	bench_note(&ring->bench,
		   "%" PRIu64 " rounds counted; dropped: %" PRIu64 " with both CPUs on one core, %" PRIu64
		   " in which the machine moved a CPU",
		   ring->kept, ring->on_one_core, ring->moved);
	report_gaps(ring, "echoes", &ring->echo);
	report_gaps(ring, "the floor, where nothing but the machine can cause one", &ring->walk);
}

static enum exit_code run_ring(struct ring *ring)
{
	enum exit_code code = choose_cpus(ring);
	if (code)
		return code;
	ring->lines = floor_lines_create(ring->bench.sq_slots, ring->bench.cq_slots, 1);
	if (!ring->lines)
		return complain("no memory for the floor's lines");
	code = measure(ring);
	if (!code)
		report(ring);
	floor_lines_free(ring->lines);
	return code;
}

static enum exit_code run_bench_ring(const void *options, const struct positionals *arguments)
{
	struct ring *ring = calloc(1, sizeof *ring);
	if (!ring)
		return complain("no memory for the histograms");
	enum exit_code code = bench_open(options, &ring->bench);
	if (!code) {
		ring->ns_per_tick = floor_ns_per_tick();
		code = run_ring(ring);
		bench_close(&ring->bench);
	}
	free(ring);
	return code;
}

#define FIELD(name) offsetof(struct bench_options, name)
static const struct option_row rows[] = {
    {"json", 0, OPTION_FLAG, FIELD(json), NULL, 0, 0, "one JSON object a line; remarks go to standard error"},
    {"rounds", 'r', OPTION_NUMBER, FIELD(rounds), "N", 1, 100000,
     "each half the floor, echoes, the other half"},
    {"trips", 'n', OPTION_NUMBER, FIELD(n), "N", 100, 1e9, "round trips of a slice"},
    {"same-core-ns", 0, OPTION_NUMBER, FIELD(same_core_ns), "NS", 0, 1e6,
     "a faster raw round trip means one core"},
    COMMON_OPTIONS,
};

const struct verb verb_bench_ring = {
    .name = "bench ring",
    .arguments = "",
    .summary = "echo round trips, beside a raw ping-pong of cache lines",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct bench_options){.rounds = 50, .n = 20000, .same_core_ns = 70},
    .bytes = sizeof(struct bench_options),
    .handler = run_bench_ring,
};
