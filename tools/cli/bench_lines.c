/* tokenring bench lines: measures what it is asked to, a line in and a line out, as a peer's script does.
 * `bench peer` interleaves such processes; the floors are asked for here, too, so that they alternate with
 * the runs. One process for all of it: the floor's memory and the connection stay. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench_floor.h"
#include "tools/cli/bench.h"
#include "tools/cli/cpus.h"

enum { PROBE_TRIPS = 2000, PROBE_SLOTS = 64, WORD_BYTES = 32 };
static const double slice_s = 0.1;

struct lines {
	struct bench bench;
	struct floor_lines *walked;
	double ns_per_tick;
	void *memory; /* (memory_bytes) that is read */
	uint64_t memory_bytes;
	uint32_t salt;
};

static enum exit_code decode(struct lines *l, uint64_t streams, uint64_t n, double *ret)
{
	struct generation g = {.n_prompt = (uint32_t)l->bench.options->prompt,
			       .n_new = (uint32_t)n,
			       .streams = (unsigned)streams,
			       .salt = ++l->salt};
	if (streams < 1 || streams > BENCH_STREAMS_MAX || streams > tr_max_inflight(l->bench.client))
		return complain("%" PRIu64 " streams do not fit one channel", streams);
	enum exit_code code = bench_generate(&l->bench, &g);
	*ret = g.rate;
	return code;
}

static enum exit_code prefill(struct lines *l, uint64_t n, double *ret)
{
	struct generation g = {.n_prompt = (uint32_t)n, .n_new = 1, .streams = 1, .salt = ++l->salt};
	if (n < 1 || n > 1000000)
		return complain("a prompt of %" PRIu64 " tokens cannot be measured", n);
	enum exit_code code = bench_generate(&l->bench, &g);
	*ret = code ? 0 : (double)n / g.first_s;
	return code;
}

static enum exit_code read_memory(struct lines *l, uint64_t bytes, double *ret)
{
	if (l->memory_bytes != bytes) {
		floor_buffer_free(l->memory, l->memory_bytes);
		l->memory = floor_buffer_create(bytes);
		l->memory_bytes = l->memory ? bytes : 0;
	}
	if (!l->memory)
		return complain("no memory for a buffer of %" PRIu64 " bytes", bytes);
	*ret = floor_read(l->memory, bytes, l->bench.threads, slice_s);
	return *ret < 0 ? complain("cannot measure the read bandwidth: no threads") : EXIT_DONE;
}

static enum exit_code multiply(struct lines *l, double *ret)
{
	*ret = floor_multiply(l->bench.model.isa, l->bench.threads, slice_s);
	return *ret < 0 ? complain("cannot measure the multiply rate of %s", l->bench.model.isa) : EXIT_DONE;
}

/* The median round trip of a cache line between the first two CPUs, in ns: some 24 where the machine has put
 * both on one core. 0 with a single CPU. */
static enum exit_code probe(struct lines *l, double *ret)
{
	static struct floor_trips trips;
	int cpus[2];
	cpu_set_t allowed;
	*ret = 0;
	if (cpus_allowed(cpus, 2) < 2 || sched_getaffinity(0, sizeof allowed, &allowed))
		return EXIT_DONE;
	if (!l->walked) { /* not before: calibrating takes time, and the first answer may be timed */
		l->ns_per_tick = floor_ns_per_tick();
		l->walked = floor_lines_create(PROBE_SLOTS, PROBE_SLOTS, 0);
	}
	if (!l->walked)
		return complain("no memory for the probe");
	memset(&trips, 0, sizeof trips);
	cpus_pin(cpus[0]);
	int r = floor_walk(l->walked, cpus[1], PROBE_TRIPS, l->ns_per_tick, 0, &trips);
	sched_setaffinity(0, sizeof allowed, &allowed);
	*ret = r ? 0 : (double)histogram_percentile(&trips.all, 0.5);
	return r ? complain("cannot probe the CPUs: %s", strerror(-r)) : EXIT_DONE;
}

static enum exit_code do_line(struct lines *l, const char *line, double *ret)
{
	char word[WORD_BYTES] = "";
	uint64_t a = 0, b = 0;
	int n = sscanf(line, "%31s %" SCNu64 " %" SCNu64, word, &a, &b);
	if (n == 3 && !strcmp(word, "decode"))
		return decode(l, a, b, ret);
	if (n == 2 && !strcmp(word, "prefill"))
		return prefill(l, a, ret);
	if (n == 2 && !strcmp(word, "read"))
		return read_memory(l, a, ret);
	if (n == 1 && !strcmp(word, "multiply"))
		return multiply(l, ret);
	if (n == 1 && !strcmp(word, "probe"))
		return probe(l, ret);
	return complain("cannot do \"%.*s\"", (int)strcspn(line, "\n"), line);
}

static enum exit_code answer_lines(struct lines *l)
{
	char line[256];
	double value;
	enum exit_code code = EXIT_DONE;
	const struct bench *b = &l->bench;
	printf("ready tokenring (%s, %s), %u threads\n", b->model.isa, b->model.numerics, b->threads);
	fflush(stdout);
	while (!code && fgets(line, sizeof line, stdin)) {
		code = do_line(l, line, &value);
		if (!code)
			printf("%.6g\n", value);
		fflush(stdout);
	}
	return code;
}

static enum exit_code run_bench_lines(const void *options, const struct positionals *arguments)
{
	struct lines l = {0};
	enum exit_code code = bench_open(options, &l.bench);
	if (code)
		return code;
	code = answer_lines(&l);
	floor_lines_free(l.walked);
	floor_buffer_free(l.memory, l.memory_bytes);
	bench_close(&l.bench);
	return code;
}

#define FIELD(name) offsetof(struct bench_options, name)
static const struct option_row rows[] = {
    {"prompt", 0, OPTION_NUMBER, FIELD(prompt), "N", 1, 1e6, "tokens of the prompts before decode"},
    {"threads", 0, OPTION_NUMBER, FIELD(threads), "N", 1, FLOOR_THREADS_MAX,
     "of the floors; else the daemon's"},
    COMMON_OPTIONS,
};

const struct verb verb_bench_lines = {
    .name = "bench lines",
    .arguments = "",
    .summary = "measures what programs ask for, a line in and a line out",
    .notes =
	"Lines in: decode STREAMS N; prefill N (tokens a second); read BYTES (bytes a second); multiply\n"
	"(8-bit multiply-adds a second); probe (ns of a cache line between two CPUs and back).\n",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct bench_options){.prompt = 8},
    .bytes = sizeof(struct bench_options),
    .handler = run_bench_lines,
};
