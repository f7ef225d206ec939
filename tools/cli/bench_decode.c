/* tokenring bench decode: tokens a second, beside what the memory of this machine allows.
 *
 * Slices of the floor (reading as many bytes as a step moves with as many threads) alternate with runs, while
 * the daemon sleeps; so does the peer. Streams that share a step share its read of the weights; each reads
 * its own keys and values. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/bench_floor.h"
#include "tools/cli/bench.h"
#include "tools/cli/bench_peer.h"

struct decode {
	struct bench bench;
	void *memory;
	struct peer *peer;   /* NULL: none asked for */
	uint64_t kv_bytes;   /* that a token in the middle of the answer reads */
	uint64_t step_bytes; /* of all streams, with the weights */
	struct series rate, first_ms, read, peer_rate;
};

static enum exit_code one_round(struct decode *d, unsigned round)
{
	const struct bench_options *o = d->bench.options;
	struct generation g = {.n_prompt = (uint32_t)o->prompt,
			       .n_new = (uint32_t)o->n,
			       .streams = (unsigned)o->streams,
			       .polls = o->poll,
			       .salt = round};
	double bytes_s = floor_read(d->memory, d->step_bytes, d->bench.threads, 0.1);
	if (bytes_s < 0)
		return complain("cannot measure the read bandwidth: no threads");
	enum exit_code code = bench_generate(&d->bench, &g);
	if (code)
		return code;
	double peer_rate = 0;
	if (d->peer && (code = peer_decode(d->peer, (unsigned)o->n, &peer_rate)))
		return code;
	if (!round) /* the first one warms up: pages, clocks, the daemon's first steps */
		return EXIT_DONE;
	if (series_add(&d->rate, g.rate) || series_add(&d->first_ms, 1e3 * g.first_s) ||
	    series_add(&d->read, bytes_s) || (d->peer && series_add(&d->peer_rate, peer_rate)))
		return complain("no memory for the figures");
	return EXIT_DONE;
}

static void report_peer(struct decode *d, double own)
{
	if (!d->peer)
		return;
	struct figure f = figure_of_rates(&d->peer_rate);
	f.bench = "decode";
	f.metric = "peer_tokens_per_second";
	f.unit = "tokens/s";
	bench_print(&d->bench, &f);
	bench_note(&d->bench, "peer: %s; %stokenring / peer = %.3f", peer_name(d->peer),
		   d->bench.options->streams > 1 ? "it answers one stream alone; " : "", own / f.p50);
}

static void report(struct decode *d)
{
	const struct bench *b = &d->bench;
	double read = series_median(&d->read);
	struct figure f = figure_of_rates(&d->rate);
	f.bench = "decode";
	f.metric = "tokens_per_second";
	f.unit = "tokens/s";
	f.floor = (double)b->options->streams * read / (double)d->step_bytes;
	bench_print(b, &f);
	double own = f.p50;
	f = figure_of_times(&d->first_ms);
	f.bench = "decode";
	f.metric = "first_token";
	f.unit = "ms";
	bench_print(b, &f);
	report_peer(d, own);
	bench_note(b, "%llu stream%s, prompt %llu tokens, answer %llu tokens; %s, %u threads, %s",
		   (unsigned long long)b->options->streams, b->options->streams > 1 ? "s" : "",
		   (unsigned long long)b->options->prompt, (unsigned long long)b->options->n, b->model.isa,
		   b->threads, b->model.numerics);
	bench_note(
	    b,
	    "floor: %.2f GB/s read with %u threads / %.2f MB of weights and %.2f MB of keys and values (%s) "
	    "that each token moves",
	    1e-9 * read, b->threads, 1e-6 * (double)b->work.decode_bytes, 1e-6 * (double)d->kv_bytes,
	    *b->kv_type ? b->kv_type : "not known");
}

static enum exit_code measure(struct decode *d)
{
	const struct bench_options *o = d->bench.options;
	enum exit_code code = EXIT_DONE;
	d->kv_bytes =
	    work_of_context(d->bench.model_path, d->bench.kv_type, (uint32_t)(o->prompt + o->n / 2));
	d->step_bytes = d->bench.work.decode_bytes + o->streams * d->kv_bytes;
	d->memory = floor_buffer_create(d->step_bytes);
	if (!d->memory)
		return complain("no memory for a buffer of %llu bytes", (unsigned long long)d->step_bytes);
	if (o->peer || o->peer_python)
		code = peer_start(&d->bench, &d->peer);
	for (unsigned round = 0; round <= o->rounds && !code; round++)
		code = one_round(d, round);
	if (!code)
		report(d);
	peer_stop(d->peer);
	floor_buffer_free(d->memory, d->step_bytes);
	return code;
}

static enum exit_code run_bench_decode(const void *options, const struct positionals *arguments)
{
	struct decode d = {0};
	const struct bench_options *o = options;
	if (o->peer && !o->peer_python)
		return complain_usage(&verb_bench_decode,
				      "--peer needs --peer-python: a python that has llama-cpp-python");
	enum exit_code code = bench_open(o, &d.bench);
	if (code)
		return code;
	code = bench_read_work(&d.bench);
	if (!code && o->streams > tr_max_inflight(d.bench.client))
		code = complain("%llu streams do not fit one channel: max_inflight is %u",
				(unsigned long long)o->streams, tr_max_inflight(d.bench.client));
	else
		code = measure(&d);
	series_free(&d.rate);
	series_free(&d.first_ms);
	series_free(&d.read);
	series_free(&d.peer_rate);
	bench_close(&d.bench);
	return code;
}

#define FIELD(name) offsetof(struct bench_options, name)
static const struct option_row rows[] = {
    {"json", 0, OPTION_FLAG, FIELD(json), NULL, 0, 0, "one JSON object a line; remarks go to standard error"},
    {"rounds", 'r', OPTION_NUMBER, FIELD(rounds), "N", 1, 10000, "runs, after one that warms up"},
    {"tokens", 'n', OPTION_NUMBER, FIELD(n), "N", 2, 65535, "of an answer"},
    {"prompt", 0, OPTION_NUMBER, FIELD(prompt), "N", 1, 1e6, "tokens of a prompt"},
    {"streams", 's', OPTION_NUMBER, FIELD(streams), "N", 1, BENCH_STREAMS_MAX, "requests at once"},
    {"poll", 0, OPTION_FLAG, FIELD(poll), NULL, 0, 0, "the client polls and never sleeps"},
    {"threads", 0, OPTION_NUMBER, FIELD(threads), "N", 1, FLOOR_THREADS_MAX,
     "of the floor; else the daemon's"},
    {"model", 'm', OPTION_TEXT, FIELD(model), "FILE", 0, 0,
     "the model's file, if the daemon does not name it"},
    {"peer", 0, OPTION_FLAG, FIELD(peer), NULL, 0, 0, "run llama.cpp beside it, in turns"},
    {"peer-python", 0, OPTION_TEXT, FIELD(peer_python), "PATH", 0, 0, "a python that has llama-cpp-python"},
    {"peer-script", 0, OPTION_TEXT, FIELD(peer_script), "FILE", 0, 0,
     "llama_peer.py, if it is not installed"},
    COMMON_OPTIONS,
};

const struct verb verb_bench_decode = {
    .name = "bench decode",
    .arguments = "",
    .summary = "tokens a second, beside what reading the weights allows",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct bench_options){.rounds = 10, .n = 64, .streams = 1, .prompt = 8},
    .bytes = sizeof(struct bench_options),
    .handler = run_bench_decode,
};
