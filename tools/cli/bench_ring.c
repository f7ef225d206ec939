/* tokenring bench ring: what the ring costs, beside what the machine and its other ways to talk cost in the
 * same run. This file chooses the CPUs and lists the sections. */
#include "tools/cli/bench_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tools/cli/connect.h"
#include "tools/cli/cpus.h"

enum { PROBE_TRIPS = 5000, CPUS_MAX = 1024, CPUS_TRIED = 16 };

/* The median of some echoes, in ns. */
static int probe(struct ring *ring, uint64_t n, uint64_t *ret_p50)
{
	static struct floor_trips trips;
	const struct echo echo = {.client = ring->bench.client, .n_tokens = 1};
	memset(&trips, 0, sizeof trips);
	int r = echo_trips(&echo, n, ring->ns_per_tick, 0, &trips);
	if (!r)
		*ret_p50 = histogram_percentile(&trips.all, 0.5);
	return r;
}

pid_t ring_daemon(const struct ring *ring)
{
	struct ucred peer;
	socklen_t bytes = sizeof peer;
	return getsockopt(tr_fd(ring->bench.client), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) ? -1 : peer.pid;
}

/* The daemon's busiest thread during echoes is its front. */
static int find_far_cpu(struct ring *ring)
{
	struct cpu_times *times = calloc(2, sizeof *times);
	uint64_t p50;
	int cpu = -1;
	pid_t pid = ring_daemon(ring);
	if (times && pid > 0 && !cpus_read(pid, &times[0]) && !probe(ring, 4 * PROBE_TRIPS, &p50) &&
	    !cpus_read(pid, &times[1]))
		cpu = cpus_busiest(&times[0], &times[1]);
	free(times);
	return cpu;
}

/* Tries the allowed CPUs beside the daemon's core and keeps the one with the quickest echoes. */
static enum exit_code choose_near_cpu(struct ring *ring)
{
	int cpus[CPUS_MAX];
	unsigned n = cpus_allowed(cpus, CPUS_MAX), tried = 0;
	uint64_t best = UINT64_MAX, p50;
	for (unsigned i = 0; i < n && tried < CPUS_TRIED; i++) {
		if (cpus_share_core(cpus[i], ring->far_cpu) || cpus_pin(cpus[i]))
			continue;
		tried++;
		int r = probe(ring, PROBE_TRIPS, &p50);
		if (r)
			return complain_echo(ring->bench.client, r);
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

enum exit_code ring_open_client(const struct ring *ring, uint32_t spin_ns, struct tr_client **ret)
{
	const struct tr_open_options options = {.size = sizeof options, .spin_ns = spin_ns};
	int r = tr_open(ret, ring->bench.options->common.socket, &options);
	return r ? complain("cannot open another channel: %s", tr_strerror(r)) : EXIT_DONE;
}

static const struct section {
	const char *name;
	enum exit_code (*run)(struct ring *ring);
	bool is_peers; /* only when asked for */
} sections[] = {
    {"echo", ring_bench_echo, false},       {"throughput", ring_bench_throughput, false},
    {"idle", ring_bench_idle, false},       {"parked", ring_bench_parked, false},
    {"asleep", ring_bench_asleep, false},   {"prefill", ring_bench_prefill, false},
    {"payload", ring_bench_payload, false}, {"paced", ring_bench_paced, false},
    {"peers", ring_bench_peers, true},
};

enum { SECTIONS = sizeof sections / sizeof *sections };

static bool is_wanted(const struct bench_options *options, const struct section *section)
{
	for (size_t i = 0; i < options->only.n; i++)
		if (!strcmp(options->only.text[i], section->name))
			return true;
	return section->is_peers ? options->peers : !options->only.n;
}

static enum exit_code check_names(const struct bench_options *options)
{
	for (size_t i = 0; i < options->only.n; i++) {
		unsigned at = 0;
		while (at < SECTIONS && strcmp(options->only.text[i], sections[at].name) != 0)
			at++;
		if (at == SECTIONS)
			return complain_usage(&verb_bench_ring,
					      "there is no section \"%s\"; there are echo, throughput, idle, "
					      "parked, asleep, prefill, payload, paced, peers",
					      options->only.text[i]);
	}
	return EXIT_DONE;
}

static enum exit_code run_sections(struct ring *ring)
{
	enum exit_code code = choose_cpus(ring);
	if (code)
		return code;
	ring->lines = floor_lines_create(ring->bench.sq_slots, ring->bench.cq_slots, 1);
	if (!ring->lines)
		return complain("no memory for the floor's lines");
	for (unsigned i = 0; i < SECTIONS && !code; i++)
		if (is_wanted(ring->bench.options, &sections[i]))
			code = sections[i].run(ring);
	floor_lines_free(ring->lines);
	return code;
}

static enum exit_code run_bench_ring(const void *options, const struct positionals *arguments)
{
	struct ring ring = {0};
	enum exit_code code = check_names(options);
	if (!code)
		code = bench_open(options, &ring.bench);
	if (code)
		return code;
	ring.ns_per_tick = floor_ns_per_tick();
	code = run_sections(&ring);
	bench_close(&ring.bench);
	return code;
}

#define FIELD(name) offsetof(struct bench_options, name)
static const struct option_row rows[] = {
    {"json", 0, OPTION_FLAG, FIELD(json), NULL, 0, 0, "one JSON object a line; remarks go to standard error"},
    {"only", 0, OPTION_LIST, FIELD(only), "SECTION", 0, 0,
     "echo, throughput, idle, parked, asleep, prefill, payload, paced or peers; may be given again"},
    {"peers", 0, OPTION_FLAG, FIELD(peers), NULL, 0, 0,
     "other ways to talk beside it, each in turns with it"},
    {"rounds", 'r', OPTION_NUMBER, FIELD(rounds), "N", 1, 100000,
     "of the echoes; sections that take longer run fewer"},
    {"trips", 'n', OPTION_NUMBER, FIELD(n), "N", 100, 1e9, "echoes of a round; slower things do fewer"},
    {"rate", 0, OPTION_NUMBER, FIELD(rate), "N", 1, 1e7, "echoes a second of the paced section"},
    {"same-core-ns", 0, OPTION_NUMBER, FIELD(same_core_ns), "NS", 0, 1e6,
     "a faster raw round trip means one core"},
    COMMON_OPTIONS,
};

const struct verb verb_bench_ring = {
    .name = "bench ring",
    .arguments = "",
    .summary = "what the ring costs, beside what the machine allows",
    .notes =
	"Each row's reference runs in the same rounds, in turns; percentiles are medians over the rounds, "
	"p99.99\nand max those of all samples. Rows that end in _without_own_gaps leave out the times in "
	"which the machine\ntook this program's CPU away.\n",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct bench_options){.rounds = 50, .n = 20000, .same_core_ns = 70, .rate = 20000},
    .bytes = sizeof(struct bench_options),
    .handler = run_bench_ring,
};
