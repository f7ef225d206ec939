#include "tools/cli/bench_rounds.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/interrupt.h"

enum { TRIES_PER_ROUND = 4, WARM_TRIPS = 5000 };

static const double fractions[QUANTILES] = {0.5, 0.9, 0.99, 0.999};

static enum exit_code run_walk(const struct ring *ring, const struct contender *self, uint64_t n,
			       struct floor_trips *ret)
{
	int r = floor_walk(ring->lines, ring->far_cpu, n, ring->ns_per_tick, self->ticks_per_poll, ret);
	return r ? complain("cannot measure the floor: %s", strerror(-r)) : EXIT_DONE;
}

void rounds_init(struct rounds *rounds, struct ring *ring, const char *walk_metric, uint64_t trips,
		 uint64_t wanted)
{
	memset(rounds, 0, sizeof *rounds);
	rounds->ring = ring;
	rounds->wanted = wanted;
	rounds->walk = (struct contender){.metric = walk_metric, .run = run_walk, .n = trips, .polls = true};
}

static enum exit_code run_slice(struct rounds *rounds, struct contender *c, uint64_t n,
				struct floor_trips *slice)
{
	if (interrupt_count())
		return complain("interrupted");
	memset(slice, 0, sizeof *slice);
	return c->run(rounds->ring, c, n, slice);
}

/* Every other round backwards: nobody is always the one who comes after the same other. */
static enum exit_code run_round(struct rounds *rounds, uint64_t round, uint64_t most)
{
	struct contender *walk = &rounds->walk;
	uint64_t half = walk->n < most ? (walk->n + 1) / 2 : (most + 1) / 2;
	enum exit_code code = run_slice(rounds, walk, half, &rounds->walk_half[0]);
	for (unsigned i = 0; i < rounds->n && !code; i++) {
		struct contender *c = rounds->contenders[round % 2 ? rounds->n - 1 - i : i];
		code = run_slice(rounds, c, c->n < most ? c->n : most, &c->slice);
	}
	return code ? code : run_slice(rounds, walk, half, &rounds->walk_half[1]);
}

static double ticks_per_poll(const struct floor_trips *trips)
{
	return trips->polls ? (double)trips->ticks / (double)trips->polls : 0;
}

/* Shows what a poll takes, by which gaps are told. */
static enum exit_code warm_up(struct rounds *rounds)
{
	enum exit_code code = run_round(rounds, 0, WARM_TRIPS);
	rounds->walk.ticks_per_poll = ticks_per_poll(&rounds->walk_half[1]);
	for (unsigned i = 0; i < rounds->n; i++)
		rounds->contenders[i]->ticks_per_poll = ticks_per_poll(&rounds->contenders[i]->slice);
	return code;
}

static int keep_slice(const struct rounds *rounds, struct contender *c, const struct floor_trips *slice)
{
	int r = 0;
	floor_trips_merge(&c->sum, slice);
	if (c->is_rate)
		return series_add(&c->rate,
				  1e9 * (double)c->n / ((double)slice->ticks * rounds->ring->ns_per_tick));
	for (int i = 0; i < QUANTILES && !r; i++) {
		r = series_add(&c->raw[i], histogram_quantile(&slice->all, fractions[i]));
		if (!r)
			r = series_add(&c->without[i], histogram_quantile(&slice->without, fractions[i]));
	}
	return r;
}

static int keep_round(struct rounds *rounds)
{
	int r = 0;
	floor_trips_merge(&rounds->walk_half[0], &rounds->walk_half[1]);
	r = keep_slice(rounds, &rounds->walk, &rounds->walk_half[0]);
	for (unsigned i = 0; i < rounds->n && !r; i++)
		r = keep_slice(rounds, rounds->contenders[i], &rounds->contenders[i]->slice);
	rounds->kept++;
	return r;
}

/* Keeps the round, or counts why not. */
static enum exit_code judge_round(struct rounds *rounds)
{
	uint64_t before = histogram_percentile(&rounds->walk_half[0].all, 0.5);
	uint64_t after = histogram_percentile(&rounds->walk_half[1].all, 0.5);
	uint64_t low = before < after ? before : after, high = before < after ? after : before;
	if (low < rounds->ring->bench.options->same_core_ns)
		rounds->on_one_core++;
	else if (10 * high > 13 * low)
		rounds->moved++;
	else if (keep_round(rounds))
		return complain("no memory for the figures");
	return EXIT_DONE;
}

enum exit_code rounds_run(struct rounds *rounds, struct contender **contenders, unsigned n)
{
	rounds->contenders = contenders;
	rounds->n = n;
	enum exit_code code = warm_up(rounds);
	for (uint64_t tries = 0;
	     !code && rounds->kept < rounds->wanted && tries < TRIES_PER_ROUND * rounds->wanted; tries++) {
		code = run_round(rounds, tries, UINT64_MAX);
		if (!code)
			code = judge_round(rounds);
	}
	if (!code && !rounds->kept)
		code = complain(
		    "no round counts: both CPUs were on one core in %" PRIu64
		    " (raw round trip under %" PRIu64
		    " ns, see --same-core-ns), and the machine moved a CPU during %" PRIu64 "; try again",
		    rounds->on_one_core, rounds->ring->bench.options->same_core_ns, rounds->moved);
	return code;
}

/* Medians over the rounds up to 99.9 %; beyond, of all samples together, for a round has too few. */
static struct figure figure_of(struct series *quantile, const struct histogram *all)
{
	return (struct figure){
	    .p50 = series_median(&quantile[0]),
	    .p90 = series_median(&quantile[1]),
	    .p99 = series_median(&quantile[2]),
	    .p999 = series_median(&quantile[3]),
	    .p9999 = (double)histogram_percentile(all, 0.9999),
	    .max = (double)all->max,
	    .n = all->n,
	};
}

static void print(const struct rounds *rounds, struct figure f, const char *metric, const char *unit,
		  double floor)
{
	f.bench = "ring";
	f.metric = metric;
	f.unit = unit;
	f.floor = floor;
	bench_print(&rounds->ring->bench, &f);
}

static void print_rate(const struct rounds *rounds, struct contender *c)
{
	struct contender *to = (struct contender *)c->reference;
	print(rounds, figure_of_rates(&c->rate), c->metric, "echoes/s", to ? series_median(&to->rate) : 0);
}

void rounds_print(const struct rounds *rounds, struct contender *c)
{
	struct contender *to = (struct contender *)c->reference;
	char metric[64];
	if (c->is_rate) {
		print_rate(rounds, c);
		return;
	}
	print(rounds, figure_of(c->raw, &c->sum.all), c->metric, "ns", to ? series_median(&to->raw[0]) : 0);
	if (!c->polls)
		return;
	snprintf(metric, sizeof metric, "%s_without_own_gaps", c->metric);
	print(rounds, figure_of(c->without, &c->sum.without), metric, "ns",
	      to ? series_median(&to->without[0]) : 0);
}

/* Where the usual time is as long as a gap, the other end's gaps cannot be told from its work. */
static void note_gaps(const struct rounds *rounds, const struct contender *c, const char *which)
{
	const struct floor_trips *t = &c->sum;
	double seconds = 1e-9 * (double)t->ticks * rounds->ring->ns_per_tick;
	char far[64] = "";
	if (!c->polls || c->is_rate || seconds <= 0)
		return;
	if (2 * histogram_percentile(&t->all, 0.5) < FLOOR_GAP_NS)
		snprintf(far, sizeof far, ", %" PRIu64 " of the other end (%.0f/s)", t->far_gaps,
			 (double)t->far_gaps / seconds);
	bench_note(&rounds->ring->bench,
		   "gaps over %d us during %s%s: %" PRIu64 " of this end's CPU (%.0f/s)%s",
		   FLOOR_GAP_NS / 1000, c->metric, which, t->near_gaps, (double)t->near_gaps / seconds, far);
}

void rounds_note(const struct rounds *rounds)
{
	bench_note(&rounds->ring->bench,
		   "%" PRIu64 " rounds counted; dropped: %" PRIu64 " with both CPUs on one core, %" PRIu64
		   " in which the machine moved a CPU",
		   rounds->kept, rounds->on_one_core, rounds->moved);
	for (unsigned i = 0; i < rounds->n; i++)
		note_gaps(rounds, rounds->contenders[i], "");
	note_gaps(rounds, &rounds->walk, ", where nothing but the machine can cause one");
}

static void free_contender(struct contender *c)
{
	for (int i = 0; i < QUANTILES; i++) {
		series_free(&c->raw[i]);
		series_free(&c->without[i]);
	}
	series_free(&c->rate);
}

void rounds_free(struct rounds *rounds)
{
	free_contender(&rounds->walk);
	for (unsigned i = 0; i < rounds->n; i++)
		free_contender(rounds->contenders[i]);
}
