/* tokenring bench prefill: how fast a prompt is read, beside what the multipliers of this machine allow.
 * Slices of the floor alternate with runs; each run has another prompt, so that no cache of prefixes helps.
 */
#include <stdio.h>
#include <string.h>

#include "tools/bench_floor.h"
#include "tools/cli/bench.h"

struct prefill {
	struct bench bench;
	struct series rate, first_ms, multiply;
};

static enum exit_code one_round(struct prefill *p, unsigned round)
{
	const struct bench_options *o = p->bench.options;
	struct generation g = {.n_prompt = (uint32_t)o->n, .n_new = 1, .streams = 1, .salt = round};
	double multiplies_s = floor_multiply(p->bench.model.isa, p->bench.threads, 0.05);
	if (multiplies_s < 0)
		return complain("cannot measure the multiply rate of %s: %s", p->bench.model.isa,
				strerror((int)-multiplies_s));
	enum exit_code code = bench_generate(&p->bench, &g);
	if (code || !round)
		return code;
	if (series_add(&p->rate, (double)o->n / g.first_s) || series_add(&p->first_ms, 1e3 * g.first_s) ||
	    series_add(&p->multiply, multiplies_s))
		return complain("no memory for the figures");
	return EXIT_DONE;
}

static void report(struct prefill *p)
{
	const struct bench *b = &p->bench;
	double multiply = series_median(&p->multiply);
	struct figure f = figure_of_rates(&p->rate);
	f.bench = "prefill";
	f.metric = "tokens_per_second";
	f.unit = "tokens/s";
	f.floor = multiply / (double)b->work.prefill_multiplies;
	bench_print(b, &f);
	f = figure_of_times(&p->first_ms);
	f.bench = "prefill";
	f.metric = "first_token";
	f.unit = "ms";
	bench_print(b, &f);
	bench_note(b, "prompt %llu tokens; %s, %u threads, %s", (unsigned long long)b->options->n,
		   b->model.isa, b->threads, b->model.numerics);
	bench_note(b,
		   "floor: %.1f G multiply-adds/s of 8 bits (%s, %u threads) / %.1f M that each token needs",
		   1e-9 * multiply, b->model.isa, b->threads, 1e-6 * (double)b->work.prefill_multiplies);
}

static enum exit_code run_bench_prefill(const void *options, const struct positionals *arguments)
{
	struct prefill p = {0};
	const struct bench_options *o = options;
	enum exit_code code = bench_open(o, &p.bench);
	if (code)
		return code;
	code = bench_read_work(&p.bench);
	for (unsigned round = 0; round <= o->rounds && !code; round++)
		code = one_round(&p, round);
	if (!code)
		report(&p);
	series_free(&p.rate);
	series_free(&p.first_ms);
	series_free(&p.multiply);
	bench_close(&p.bench);
	return code;
}

#define FIELD(name) offsetof(struct bench_options, name)
static const struct option_row rows[] = {
    {"json", 0, OPTION_FLAG, FIELD(json), NULL, 0, 0, "one JSON object a line; remarks go to standard error"},
    {"rounds", 'r', OPTION_NUMBER, FIELD(rounds), "N", 1, 10000, "runs, after one that warms up"},
    {"tokens", 'n', OPTION_NUMBER, FIELD(n), "N", 1, 1e6, "of the prompt"},
    {"threads", 0, OPTION_NUMBER, FIELD(threads), "N", 1, FLOOR_THREADS_MAX,
     "of the floor; else the daemon's"},
    {"model", 'm', OPTION_TEXT, FIELD(model), "FILE", 0, 0,
     "the model's file, if the daemon does not name it"},
    COMMON_OPTIONS,
};

const struct verb verb_bench_prefill = {
    .name = "bench prefill",
    .arguments = "",
    .summary = "tokens of a prompt a second, beside what multiplying allows",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct bench_options){.rounds = 5, .n = 512},
    .bytes = sizeof(struct bench_options),
    .handler = run_bench_prefill,
};
