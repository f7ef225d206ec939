/* Requests that a benchmark times: their prompts, and when their tokens arrive. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/answer.h"
#include "tools/cli/bench.h"
#include "tools/cli/connect.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/patience.h"

enum { EVENTS = 64 };

struct stream {
	uint64_t id, first_ns, last_ns;
	uint32_t n_tokens;
	bool ended;
};

struct run {
	struct bench *bench;
	struct generation *generation;
	struct stream stream[BENCH_STREAMS_MAX];
	uint64_t submitted_ns;
	unsigned decoding, ended;
	/* the window in which all streams decode */
	uint64_t opened_ns, closed_ns;
	uint64_t in_window;
};

void bench_fill_prompt(const struct bench *b, uint32_t *tokens, size_t n, uint32_t salt)
{
	/* The middle of a vocabulary holds ordinary tokens; its ends may hold control tokens. */
	uint32_t low = b->model.vocab / 4, range = b->model.vocab / 2;
	uint32_t state = 2654435761u * (salt + 1);
	for (size_t i = 0; i < n; i++) {
		state = state * 1664525u + 1013904223u; /* Numerical Recipes, 7.1 */
		tokens[i] = low + (range ? (state >> 8) % range : 0);
	}
}

static enum exit_code submit_one(struct run *run, unsigned index, uint32_t *prompt)
{
	const struct generation *g = run->generation;
	struct tr_sampling sampling = {.size = sizeof sampling, .top_p = 1, .penalty = 1, .ignore_eos = 1};
	struct tr_request_extra extra = {
	    .size = sizeof extra,
	    .n_tokens = g->n_prompt,
	    .tokens = prompt,
	    .sampling = &sampling,
	    .max_new = g->n_new,
	};
	struct tr_request request = {.size = sizeof request, .op = TR_GENERATE, .extra = &extra};
	bench_fill_prompt(run->bench, prompt, g->n_prompt, g->salt * BENCH_STREAMS_MAX + index);
	int r = tr_submit(run->bench->client, &request, &run->stream[index].id);
	return r ? complain_call(run->bench->client, "cannot submit a request", r) : EXIT_DONE;
}

static enum exit_code submit_all(struct run *run)
{
	uint32_t *prompt = malloc(run->generation->n_prompt * sizeof *prompt);
	if (!prompt)
		return complain("no memory for a prompt of %u tokens", run->generation->n_prompt);
	enum exit_code code = EXIT_DONE;
	run->submitted_ns = answer_now_ns();
	for (unsigned i = 0; i < run->generation->streams && !code; i++)
		code = submit_one(run, i, prompt);
	free(prompt);
	return code;
}

static struct stream *find(struct run *run, uint64_t id)
{
	for (unsigned i = 0; i < run->generation->streams; i++)
		if (run->stream[i].id == id)
			return &run->stream[i];
	return NULL;
}

static enum exit_code take(struct run *run, const struct tr_event *event, uint64_t now)
{
	struct stream *s = find(run, event->id);
	if (!s || s->ended)
		return EXIT_DONE;
	if (event->kind == TR_EVENT_REFUSED || event->status)
		return complain_event(event);
	if (event->n_tokens && !s->n_tokens) {
		s->first_ns = now;
		if (++run->decoding == run->generation->streams)
			run->opened_ns = now;
	} else if (run->opened_ns && !run->closed_ns) {
		run->in_window += event->n_tokens;
	}
	s->n_tokens += event->n_tokens;
	if (event->kind == TR_EVENT_FINAL) {
		s->ended = true;
		run->ended++;
		if (!run->closed_ns)
			run->closed_ns = now;
	}
	return EXIT_DONE;
}

static enum exit_code collect(struct run *run)
{
	struct tr_event events[EVENTS] = {{.size = sizeof events[0]}};
	struct patience patience = {0};
	while (run->ended < run->generation->streams) {
		if (interrupt_count())
			return complain("interrupted");
		int n = run->generation->polls
			    ? patient_poll(&patience, run->bench->client, events, EVENTS)
			    : patient_wait(&patience, run->bench->client, events, EVENTS, 100000000);
		if (n < 0 && n != -EINTR)
			return complain_call(run->bench->client, "an answer breaks off", n);
		uint64_t now = answer_now_ns();
		for (int i = 0; i < n; i++) {
			enum exit_code code = take(run, &events[i], now);
			if (code)
				return code;
		}
	}
	return EXIT_DONE;
}

enum exit_code bench_generate(struct bench *bench, struct generation *g)
{
	struct run run = {.bench = bench, .generation = g};
	enum exit_code code = submit_all(&run);
	if (!code)
		code = collect(&run);
	if (code)
		return code;
	for (unsigned i = 0; i < g->streams; i++)
		if (run.stream[i].n_tokens != g->n_new)
			return complain("a stream ended after %u of %u tokens", run.stream[i].n_tokens,
					g->n_new);
	g->first_s = 1e-9 * (double)(run.opened_ns - run.submitted_ns);
	double window_s = 1e-9 * (double)(run.closed_ns - run.opened_ns);
	if (g->n_new > 1 && (window_s <= 0 || !run.in_window))
		return complain(
		    "the tokens came too fast to time them; ask for longer answers with --tokens");
	g->rate = g->n_new > 1 ? (double)run.in_window / window_s : 0;
	return EXIT_DONE;
}
