/* What answers at once must not wait for what computes: echo, cancel and refusal of one client while the
 * only engine is in a long prompt of another. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/bench_rounds.h"
#include "tools/cli/connect.h"

enum {
	SAMPLES = 200,
	CANCELS = 40,
	PAUSE_US = 30,
	START_US = 30000,
	PROMPT_TOKENS = 4096,
	LONG_PAUSE_US = 1000
};

/* The long prompt, of a client of its own. */
struct prefill {
	struct tr_client *client;
	uint32_t *tokens; /* (n_tokens) */
	uint32_t n_tokens, salt;
	uint64_t id; /* 0: none runs */
};

enum probe_kind { PROBE_ECHO, PROBE_REFUSAL, PROBE_CANCEL };

struct probe {
	struct tr_client *client;
	struct prefill *prefill; /* NULL: the engine is idle */
	enum probe_kind kind;
	uint32_t vocab;
};

static int start(const struct ring *ring, struct prefill *p)
{
	struct tr_request_extra extra = {
	    .size = sizeof extra, .n_tokens = p->n_tokens, .tokens = p->tokens, .max_new = 1};
	const struct tr_request request = {.size = sizeof request, .op = TR_GENERATE, .extra = &extra};
	bench_fill_prompt(&ring->bench, p->tokens, p->n_tokens, p->salt++);
	int r = tr_submit(p->client, &request, &p->id);
	if (r)
		p->id = 0;
	else
		usleep(START_US); /* it is in the engine's steps by then */
	return r;
}

/* Whether the prompt is still being computed; its answer ends it. */
static int look(struct prefill *p)
{
	struct tr_event event = {.size = sizeof event};
	int r = p->id ? tr_poll(p->client, &event, 1) : 0;
	if (r == 1 && event.kind == TR_EVENT_REFUSED)
		return -EBADMSG;
	if (r == 1)
		p->id = 0;
	return r < 0 ? r : p->id != 0;
}

static int await_end(struct tr_client *client)
{
	struct tr_event event = {.size = sizeof event, .kind = TR_EVENT_TOKENS};
	int r = 0;
	while (r >= 0 && event.kind == TR_EVENT_TOKENS)
		r = tr_wait(client, &event, 1, -1);
	return r < 0 ? r : 0;
}

/* The cancel is answered while the step goes on; a request behind it ends when the engine is idle. */
static int stop(struct prefill *p)
{
	const struct tr_request behind = {
	    .size = sizeof behind, .op = TR_GENERATE, .n_tokens = 1, .max_new = 1, .tokens = {1}};
	uint64_t id;
	int r = p->id ? tr_cancel(p->client, p->id) : 0;
	if (!r && p->id)
		r = await_end(p->client);
	p->id = r ? p->id : 0;
	if (!r)
		r = tr_submit(p->client, &behind, &id);
	return r ? r : await_end(p->client);
}

static struct tr_request request_of(const struct probe *probe)
{
	struct tr_request request = {
	    .size = sizeof request, .op = TR_GENERATE, .n_tokens = 1, .max_new = 1, .tokens = {1}};
	if (probe->kind == PROBE_ECHO)
		request.op = TR_ECHO;
	if (probe->kind == PROBE_REFUSAL)
		request.tokens[0] = probe->vocab;
	return request;
}

static bool is_expected(const struct probe *probe, const struct tr_event *event)
{
	switch (probe->kind) {
	case PROBE_ECHO:
		return event->kind == TR_EVENT_ECHO;
	case PROBE_REFUSAL:
		return event->kind == TR_EVENT_REFUSED;
	default: /* an idle engine may have answered before it heard of the cancel */
		return event->kind == TR_EVENT_FINAL;
	}
}

/* Submit (and, after a while, cancel) to terminal event. */
static int one_probe(const struct probe *probe, uint64_t *ret_ticks, uint64_t *ret_polls)
{
	struct tr_request request = request_of(probe);
	struct tr_event event = {.size = sizeof event};
	uint64_t id, begun = floor_ticks(), polls = 1;
	int r = tr_submit(probe->client, &request, &id);
	if (!r && probe->kind == PROBE_CANCEL) {
		usleep(LONG_PAUSE_US); /* the engine knows of it */
		begun = floor_ticks();
		r = tr_cancel(probe->client, id);
	}
	while (!r) {
		r = tr_poll(probe->client, &event, 1);
		if (r == 1 && event.kind == TR_EVENT_TOKENS)
			r = 0;
		polls++;
	}
	*ret_ticks = floor_ticks() - begun;
	*ret_polls = polls;
	return r < 0 ? r : is_expected(probe, &event) ? 0 : -EBADMSG;
}

/* Shorter than the daemon's spinning: nobody sleeps meanwhile. */
static void pause_awake(const struct ring *ring)
{
	uint64_t until = floor_ticks() + (uint64_t)(1e3 * PAUSE_US / ring->ns_per_tick);
	while (floor_ticks() < until)
		;
}

/* Only probes during all of which the prompt was being computed count. */
static int probe_trips(const struct ring *ring, const struct contender *self, uint64_t n,
		       struct floor_trips *ret)
{
	const struct probe *probe = self->context;
	struct prefill *prefill = probe->prefill;
	int r = 0;
	for (uint64_t done = 0, tries = 0; done < n && tries < 20 * n && r >= 0; tries++) {
		uint64_t ticks, polls;
		if (prefill && !prefill->id && (r = start(ring, prefill)))
			break;
		pause_awake(ring);
		r = one_probe(probe, &ticks, &polls);
		if (r >= 0 && prefill)
			r = look(prefill);
		if (r < 0 || (prefill && !r))
			continue;
		floor_trips_add(ret, ticks, polls, ring->ns_per_tick, self->ticks_per_poll);
		done++;
	}
	int stopped = prefill ? stop(prefill) : 0;
	return r < 0 ? r : stopped;
}

static enum exit_code run_probes(const struct ring *ring, const struct contender *self, uint64_t n,
				 struct floor_trips *ret)
{
	const struct probe *probe = self->context;
	int r = probe_trips(ring, self, n, ret);
	if (!r && !ret->all.n)
		return complain("a prompt of %u tokens is over before anything can be asked beside it",
				probe->prefill ? probe->prefill->n_tokens : 0);
	if (r == -EBADMSG)
		return complain("the daemon answered something else while a long prompt ran");
	return r ? complain_call(probe->client, "what is asked beside a long prompt breaks off", r)
		 : EXIT_DONE;
}

static enum exit_code measure(struct ring *ring, struct prefill *prefill)
{
	static struct rounds rounds;
	static struct contender contenders[4];
	static const char *const names[] = {"idle_echo", "prefill_echo", "prefill_refusal", "prefill_cancel"};
	const uint32_t vocab = ring->bench.model.vocab;
	struct tr_client *client = ring->bench.client;
	struct probe probes[] = {
	    {client, NULL, PROBE_ECHO, vocab},
	    {client, prefill, PROBE_ECHO, vocab},
	    {client, prefill, PROBE_REFUSAL, vocab},
	    {client, prefill, PROBE_CANCEL, vocab},
	};
	struct contender *list[4];
	rounds_init(&rounds, ring, "floor", ring->bench.options->n / 4,
		    (ring->bench.options->rounds + 4) / 5);
	for (int i = 0; i < 4; i++) {
		contenders[i] = (struct contender){.metric = names[i],
						   .run = run_probes,
						   .context = &probes[i],
						   .n = probes[i].kind == PROBE_CANCEL ? CANCELS : SAMPLES,
						   .reference = i ? &contenders[0] : &rounds.walk,
						   .polls = true};
		list[i] = &contenders[i];
	}
	enum exit_code code = rounds_run(&rounds, list, 4);
	for (int i = 0; i < 4 && !code; i++)
		rounds_print(&rounds, list[i]);
	if (!code) {
		bench_note(
		    &ring->bench,
		    "%d us apart while a prompt of %u tokens of another client is computed; cancel: "
		    "of a request sent %d us before, to its last event; reference: the same echo while "
		    "the engine is idle",
		    PAUSE_US, prefill->n_tokens, LONG_PAUSE_US);
		rounds_note(&rounds);
	}
	rounds_free(&rounds);
	return code;
}

enum exit_code ring_bench_prefill(struct ring *ring)
{
	struct prefill prefill = {.n_tokens = PROMPT_TOKENS};
	uint32_t context = ring->bench.model.context;
	if (context && prefill.n_tokens > context / 2)
		prefill.n_tokens = context / 2;
	enum exit_code code = ring_open_client(ring, 0, &prefill.client);
	if (code)
		return code;
	prefill.tokens = calloc(prefill.n_tokens + 1, sizeof *prefill.tokens);
	code = prefill.tokens ? measure(ring, &prefill) : complain("no memory for a prompt");
	free(prefill.tokens);
	tr_close(prefill.client);
	return code;
}
