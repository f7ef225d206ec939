/* Larger payloads, and echoes at a fixed rate. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/bench_pair.h"
#include "tools/cli/bench_rounds.h"
#include "tools/cli/connect.h"

enum { PAYLOAD_TOKENS = 4096 };

/* ---- 4,096 tokens ---- */

/* The last token is outside the vocabulary: the daemon copies and judges all of the block before it says so,
 * which is all that a prompt costs outside the engine. An echo has no room for more than 8 tokens. */
struct payload {
	struct tr_client *client;
	uint32_t *tokens; /* (n_tokens) */
	uint32_t n_tokens;
};

static int payload_trips(const struct payload *payload, uint64_t n, const struct ring *ring,
			 double ticks_per_poll, struct floor_trips *ret)
{
	struct tr_request_extra extra = {
	    .size = sizeof extra, .n_tokens = payload->n_tokens, .tokens = payload->tokens, .max_new = 1};
	const struct tr_request request = {.size = sizeof request, .op = TR_GENERATE, .extra = &extra};
	struct tr_event event = {.size = sizeof event};
	uint64_t last = 0, id;
	for (uint64_t i = 0; i <= n; i++) {
		uint64_t polls = 1;
		int r = tr_submit(payload->client, &request, &id);
		while (!r && (r = tr_poll(payload->client, &event, 1)) == 0)
			polls++;
		uint64_t now = floor_ticks();
		if (r < 0)
			return r;
		if (event.kind != TR_EVENT_REFUSED || event.id != id ||
		    tr_reason_errno(event.reason) != EINVAL)
			return -EBADMSG;
		if (i)
			floor_trips_add(ret, now - last, polls, ring->ns_per_tick, ticks_per_poll);
		last = now;
	}
	return 0;
}

static enum exit_code run_payload(const struct ring *ring, const struct contender *self, uint64_t n,
				  struct floor_trips *ret)
{
	const struct payload *payload = self->context;
	int r = payload_trips(payload, n, ring, self->ticks_per_poll, ret);
	if (r == -EBADMSG)
		return complain("a prompt with a token outside the vocabulary is not refused for that");
	return r ? complain_call(payload->client, "a large request breaks off", r) : EXIT_DONE;
}

static enum exit_code measure_payload(struct ring *ring, struct payload *payload, struct pair *pair)
{
	static struct rounds rounds;
	static struct contender large, bare;
	const struct bench_options *o = ring->bench.options;
	struct pair_run run = {.pair = pair, .mode = PAIR_SPIN};
	rounds_init(&rounds, ring, "floor", o->n / 4, o->rounds);
	bare = (struct contender){"slot_rings_16k", ring_run_pair, &run, o->n / 10, NULL, .polls = true};
	large =
	    (struct contender){"payload_4096_tokens", run_payload, payload, o->n / 10, &bare, .polls = true};
	enum exit_code code = rounds_run(&rounds, (struct contender *[]){&large, &bare}, 2);
	if (!code) {
		rounds_print(&rounds, &large);
		rounds_print(&rounds, &bare);
		bench_note(
		    &ring->bench,
		    "payload: a prompt of %u tokens in the arena, copied and judged by the daemon, then "
		    "refused for its last token; slot_rings_16k: as many bytes copied in and out beside a "
		    "bare pair of the same rings",
		    PAYLOAD_TOKENS);
		rounds_note(&rounds);
	}
	rounds_free(&rounds);
	return code;
}

enum exit_code ring_bench_payload(struct ring *ring)
{
	struct payload payload = {.client = ring->bench.client, .n_tokens = PAYLOAD_TOKENS};
	uint32_t context = ring->bench.model.context;
	struct pair *pair = NULL;
	if (context > 1 && context <= PAYLOAD_TOKENS)
		payload.n_tokens = context - 1; /* a longer one is refused unread */
	payload.tokens = calloc(payload.n_tokens, sizeof *payload.tokens);
	if (!payload.tokens)
		return complain("no memory for a prompt");
	bench_fill_prompt(&ring->bench, payload.tokens, payload.n_tokens, 0);
	payload.tokens[payload.n_tokens - 1] = ring->bench.model.vocab;
	enum exit_code code = ring_start_pair(&pair_blocks, &pair);
	if (!code)
		code = measure_payload(ring, &payload, pair);
	pair_stop(pair);
	free(payload.tokens);
	return code;
}

/* ---- a fixed rate ---- */

struct paced {
	struct tr_client *client;
	double rate;
	bool from_due; /* the time runs from when the echo was due, whenever it could be sent */
};

static enum exit_code run_paced(const struct ring *ring, const struct contender *self, uint64_t n,
				struct floor_trips *ret)
{
	const struct paced *paced = self->context;
	const double interval = 1e9 / paced->rate / ring->ns_per_tick;
	const struct tr_request request = {
	    .size = sizeof request, .op = TR_ECHO, .n_tokens = TR_INLINE_TOKENS};
	struct tr_event event = {.size = sizeof event};
	uint64_t id, first = floor_ticks() + (uint64_t)interval;
	for (uint64_t i = 0; i <= n; i++) {
		uint64_t polls = 1, due = first + (uint64_t)((double)i * interval), begun;
		while ((begun = floor_ticks()) < due)
			;
		int r = tr_submit(paced->client, &request, &id);
		while (!r && (r = tr_poll(paced->client, &event, 1)) == 0)
			polls++;
		uint64_t now = floor_ticks();
		if (r < 0 || event.kind != TR_EVENT_ECHO || event.id != id)
			return complain_echo(paced->client, r < 0 ? r : -EBADMSG);
		if (i)
			floor_trips_add(ret, now - (paced->from_due ? due : begun), polls, ring->ns_per_tick,
					self->ticks_per_poll);
	}
	return EXIT_DONE;
}

/* What the correction for coordinated omission makes of the times that ran from the sending. */
static void print_corrected(const struct ring *ring, const struct contender *plain, uint64_t rate)
{
	static struct histogram corrected;
	memset(&corrected, 0, sizeof corrected);
	histogram_correct(&corrected, &plain->sum.all, 1000000000 / rate);
	struct figure f = figure_of_histogram(&corrected);
	f.bench = "ring";
	f.metric = "paced_corrected";
	f.unit = "ns";
	bench_print(&ring->bench, &f);
}

enum exit_code ring_bench_paced(struct ring *ring)
{
	static struct rounds rounds;
	static struct contender corrected, plain;
	const struct bench_options *o = ring->bench.options;
	struct paced from_due = {ring->bench.client, (double)o->rate, true}, from_sent = from_due;
	uint64_t n = o->rate / 10 ? o->rate / 10 : 1; /* 100 ms */
	from_sent.from_due = false;
	rounds_init(&rounds, ring, "floor", o->n / 4, (o->rounds + 4) / 5);
	plain =
	    (struct contender){"paced_uncorrected", run_paced, &from_sent, n, &rounds.walk, .polls = false};
	corrected = (struct contender){"paced", run_paced, &from_due, n, &rounds.walk, .polls = false};
	enum exit_code code = rounds_run(&rounds, (struct contender *[]){&corrected, &plain}, 2);
	if (!code) {
		rounds_print(&rounds, &corrected);
		rounds_print(&rounds, &plain);
		print_corrected(ring, &plain, o->rate);
		bench_note(
		    &ring->bench,
		    "%llu echoes a second; paced: from when each was due, so that those which a gap held "
		    "up count too; paced_uncorrected: from when it was sent; paced_corrected: those, "
		    "corrected for coordinated omission",
		    (unsigned long long)o->rate);
		rounds_note(&rounds);
	}
	rounds_free(&rounds);
	return code;
}
