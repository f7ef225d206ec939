/* What the benchmarks share: the daemon under test, series of figures, and how they are printed. */
#ifndef TOKENRING_TOOLS_CLI_BENCH_H
#define TOKENRING_TOOLS_CLI_BENCH_H

#include <tokenring/tokenring.h>

#include "tools/cli/histogram.h"
#include "tools/cli/verb.h"
#include "tools/cli/work.h"

struct bench_options {
	struct common common;
	bool json, peer, peers, poll;
	uint64_t rounds, n, streams, threads, prompt, same_core_ns, rate;
	const char *model, *peer_python, *peer_script;
	struct option_list only;
};

struct bench {
	const struct bench_options *options;
	struct tr_client *client;
	struct tr_model_info model;
	struct work work;
	char model_path[512]; /* empty: not known */
	char kv_type[8];      /* the same */
	unsigned threads;     /* that compute in the daemon */
	uint32_t sq_slots, cq_slots;
};

/* One line of the result. Of rates, p99 is what 99 % of the samples reach at least and max is the best. */
struct figure {
	const char *bench, *metric, *unit;
	double p50, p90, p99, p999, p9999, max;
	uint64_t n;
	double floor; /* what the machine allows, in the same unit; 0: none */
};

struct series {
	double *value;
	size_t n, capacity;
};

/* Connects, waits for the model, and finds threads, ring sizes and the model's file in the status. Complains
 * on failure. */
enum exit_code bench_open(const struct bench_options *options, struct bench *ret);
/* Finds what a token costs: from the shapes in the model's file if it can be read; else, with a remark, every
 * parameter once. Complains if the file of --model cannot be read. */
enum exit_code bench_read_work(struct bench *bench);

void bench_close(struct bench *bench);

void bench_print(const struct bench *bench, const struct figure *figure);

/* A remark below the figures; on standard error with --json. */
__attribute__((format(printf, 2, 3))) void bench_note(const struct bench *bench, const char *format, ...);

struct figure figure_of_histogram(const struct histogram *histogram);

int series_add(struct series *series, double value);
double series_median(struct series *series);
/* Sorts the series. */
struct figure figure_of_rates(struct series *series);
struct figure figure_of_times(struct series *series);
void series_free(struct series *series);

/* A prompt of n ids that are ordinary tokens and, with another `salt`, another prompt from its first token
 * on. */
void bench_fill_prompt(const struct bench *bench, uint32_t *tokens, size_t n, uint32_t salt);

/* One run of `streams` requests at once, all with prompts of n_prompt tokens and answers of n_new tokens, the
 * model's end tokens ignored. */
struct generation {
	uint32_t n_prompt, n_new;
	unsigned streams;
	bool polls; /* the client never sleeps */
	uint32_t salt;
	/* results */
	double first_s; /* from submit to the last stream's first token */
	double rate;    /* tokens a second of all streams together, while all are decoding */
};

enum { BENCH_STREAMS_MAX = 64 };

enum exit_code bench_generate(struct bench *bench, struct generation *generation);

#endif
