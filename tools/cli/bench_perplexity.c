/* tokenring bench perplexity: how well the model that is served foretells a text.
 *
 * The text is cut into chunks, each a context of its own (after begin-of-sequence where the model wants one);
 * every token but a chunk's first is judged by `score`. Perplexity is exp of the mean of -log(p). A peer that
 * cuts the same tokens in the same way can be compared: `tokenring tokenize --ids --bos` prints them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/cli/answer.h"
#include "tools/cli/bench.h"
#include "tools/cli/connect.h"
#include "tools/cli/input.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/json.h"
#include "tools/cli/patience.h"
#include "tools/cli/prompt.h"

enum { EVENTS = 4 };

struct perplexity_options {
	struct common common;
	bool json;
	const char *text;
	uint64_t n, chunk;
};

struct perplexity {
	const struct perplexity_options *options;
	struct tr_client *client;
	struct tr_model_info model;
	struct tokens tokens;
	bool bos; /* tokens.id[0] is begin-of-sequence: every chunk gets it */
	/* results */
	double nll; /* sum of -log(p) */
	uint64_t scored;
	double seconds;
};

/* Reads the text and cuts it to the tokens asked for. */
static enum exit_code read_tokens(struct perplexity *p)
{
	struct input in;
	enum exit_code code = input_read_file(p->options->text, &in);
	if (code)
		return code;
	code = tokens_append_text(p->client, &p->tokens, in.text, in.bytes, TR_TEXT_BOS);
	input_free(&in);
	if (code)
		return code;
	p->bos = p->tokens.n && p->model.bos != TR_NO_TOKEN && p->tokens.id[0] == p->model.bos;
	if (p->options->n && p->options->n + p->bos < p->tokens.n)
		p->tokens.n = p->options->n + p->bos;
	if (p->tokens.n < 2)
		return complain("the text has %zu tokens; it takes two at least", p->tokens.n);
	return EXIT_DONE;
}

static enum exit_code take(struct perplexity *p, const struct tr_event *event, uint32_t wanted)
{
	if (event->kind == TR_EVENT_REFUSED || event->status)
		return complain_event(event);
	if (event->n_scored != wanted)
		return complain("the daemon scored %u of %u tokens", event->n_scored, wanted);
	for (uint32_t i = 0; i < event->n_scored; i++)
		p->nll -= (double)event->scored[i].value;
	p->scored += event->n_scored;
	return EXIT_DONE;
}

static enum exit_code await(struct perplexity *p, uint64_t id, uint32_t wanted)
{
	struct tr_event events[EVENTS] = {{.size = sizeof events[0]}};
	struct patience patience = {0};
	for (;;) {
		if (interrupt_count())
			return complain("interrupted");
		int n = patient_wait(&patience, p->client, events, EVENTS, 100000000);
		if (n < 0 && n != -EINTR)
			return complain_call(p->client, "an answer breaks off", n);
		for (int i = 0; i < n; i++)
			if (events[i].id == id)
				return take(p, &events[i], wanted);
	}
}

/* Scores ids[1 ..] after ids[0]. */
static enum exit_code score(struct perplexity *p, const uint32_t *ids, uint32_t n)
{
	uint32_t length = n - 1;
	struct tr_request_extra extra = {
	    .size = sizeof extra,
	    .n_tokens = 1,
	    .tokens = ids,
	    .n_continuations = 1,
	    .continuation_lengths = &length,
	    .continuations = ids + 1,
	};
	struct tr_request request = {.size = sizeof request, .op = TR_SCORE, .extra = &extra};
	uint64_t id;
	int r = tr_submit(p->client, &request, &id);
	return r ? complain_call(p->client, "cannot submit a request", r) : await(p, id, length);
}

/* A chunk is options->chunk ids long, begin-of-sequence included. */
static enum exit_code score_all(struct perplexity *p)
{
	uint32_t step = (uint32_t)p->options->chunk - p->bos;
	enum exit_code code = EXIT_DONE;
	uint64_t started = answer_now_ns();
	for (size_t at = p->bos; at < p->tokens.n && !code; at += step) {
		uint32_t n = p->tokens.n - at < step ? (uint32_t)(p->tokens.n - at) : step;
		uint32_t *ids = p->tokens.id + at - p->bos;
		if (p->bos) /* over the last token of the chunk before, which has been scored */
			ids[0] = p->model.bos;
		if (n + p->bos > 1)
			code = score(p, ids, n + p->bos);
	}
	p->seconds = 1e-9 * (double)(answer_now_ns() - started);
	return code;
}

static void report(const struct perplexity *p)
{
	double mean = p->nll / (double)p->scored;
	if (!p->options->json) {
		printf("perplexity %.5f (%.6f nat a token) of %llu tokens in chunks of %llu\n", exp(mean),
		       mean, (unsigned long long)p->scored, (unsigned long long)p->options->chunk);
		printf("%s; %s, %s; %.1f s\n", p->model.name, p->model.isa, p->model.numerics, p->seconds);
		return;
	}
	printf("{\"bench\":\"perplexity\",\"perplexity\":%.9g,\"nll\":%.9g,\"scored\":%llu,\"chunk\":%llu,"
	       "\"seconds\":%.4g,\"isa\":",
	       exp(mean), mean, (unsigned long long)p->scored, (unsigned long long)p->options->chunk,
	       p->seconds);
	json_print_text(stdout, p->model.isa);
	printf(",\"numerics\":");
	json_print_text(stdout, p->model.numerics);
	printf("}\n");
}

static enum exit_code run_bench_perplexity(const void *options, const struct positionals *arguments)
{
	struct perplexity p = {.options = options};
	interrupt_watch();
	if (!p.options->text)
		return complain_usage(&verb_bench_perplexity, "--text FILE is missing");
	enum exit_code code = connect_ready(p.options->common.socket, &p.client, &p.model);
	if (!code)
		code = read_tokens(&p);
	if (!code)
		code = score_all(&p);
	if (!code)
		report(&p);
	tokens_free(&p.tokens);
	tr_close(p.client);
	return code;
}

#define FIELD(name) offsetof(struct perplexity_options, name)
static const struct option_row rows[] = {
    {"text", 0, OPTION_TEXT, FIELD(text), "FILE", 0, 0, "what to foretell; - for standard input"},
    {"json", 0, OPTION_FLAG, FIELD(json), NULL, 0, 0, "one JSON object on one line"},
    {"tokens", 'n', OPTION_NUMBER, FIELD(n), "N", 2, 1e8, "of the text; else all of it"},
    {"chunk", 0, OPTION_NUMBER, FIELD(chunk), "N", 2, 1e6, "tokens of a context of its own"},
    COMMON_OPTIONS,
};

const struct verb verb_bench_perplexity = {
    .name = "bench perplexity",
    .arguments = "--text FILE",
    .summary = "how well the model foretells a text",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct perplexity_options){.chunk = 512},
    .bytes = sizeof(struct perplexity_options),
    .handler = run_bench_perplexity,
};
