/* One echo at a time, beside the raw ping-pong over the ring's own lines and beside a ring with a head and a
 * tail; and many at a time, beside a bare pair of slot rings. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/bench_pair.h"
#include "tools/cli/bench_rounds.h"
#include "tools/cli/connect.h"
#include "tools/cli/patience.h"

enum { WINDOW = 64, WINDOW_TRIPS_A_TRIP = 5 };

static int one_answer(const struct echo *echo, struct patience *patience, struct tr_event *event,
		      uint64_t *polls)
{
	int r = 0;
	if (echo->waits)
		return patient_wait(patience, echo->client, event, 1, -1);
	while ((r = patient_poll(patience, echo->client, event, 1)) == 0)
		++*polls;
	return r;
}

int echo_trips(const struct echo *echo, uint64_t n, double ns_per_tick, double ticks_per_poll,
	       struct floor_trips *ret)
{
	struct tr_request request = {
	    .size = sizeof request, .op = TR_ECHO, .n_tokens = (uint8_t)echo->n_tokens};
	struct tr_event event = {.size = sizeof event};
	struct patience patience = {0};
	uint64_t last = 0, id;
	for (uint64_t i = 0; i <= n; i++) {
		uint64_t polls = 1;
		if (echo->pause_us) {
			usleep(echo->pause_us);
			last = floor_ticks();
		}
		request.tokens[0] = (uint32_t)(i & 1);
		int r = tr_submit(echo->client, &request, &id);
		if (!r)
			r = one_answer(echo, &patience, &event, &polls);
		uint64_t now = floor_ticks();
		if (r < 0)
			return r;
		if (r != 1 || event.id != id || event.kind != TR_EVENT_ECHO ||
		    event.n_tokens != echo->n_tokens || event.tokens[0] != request.tokens[0])
			return -EBADMSG;
		if (i) /* the first one may have had to wake the daemon */
			floor_trips_add(ret, now - last, polls, ns_per_tick, ticks_per_poll);
		last = now;
	}
	return 0;
}

enum exit_code complain_echo(struct tr_client *client, int error)
{
	if (error == -EBADMSG)
		return complain("the daemon answered an echo with something else");
	return complain_call(client, "an echo breaks off", error);
}

enum exit_code ring_run_echo(const struct ring *ring, const struct contender *self, uint64_t n,
			     struct floor_trips *ret)
{
	const struct echo *echo = self->context;
	int r = echo_trips(echo, n, ring->ns_per_tick, self->ticks_per_poll, ret);
	return r ? complain_echo(echo->client, r) : EXIT_DONE;
}

enum exit_code ring_run_pair(const struct ring *ring, const struct contender *self, uint64_t n,
			     struct floor_trips *ret)
{
	const struct pair_run *run = self->context;
	const struct pair_order order = {
	    .mode = run->mode,
	    .near_cpu = ring->near_cpu,
	    .far_cpu = ring->far_cpu,
	    .window = run->window,
	    .pause_us = run->pause_us,
	    .read_bytes = run->read_bytes,
	    .n = (uint32_t)n,
	    .ns_per_tick = ring->ns_per_tick,
	    .ticks_per_poll = self->ticks_per_poll,
	};
	int r = pair_run(run->pair, &order, ret);
	return r ? complain("%s cannot be measured: %s", self->metric, strerror(-r)) : EXIT_DONE;
}

enum exit_code ring_start_pair(const struct pair_transport *transport, struct pair **ret)
{
	int r = pair_start(transport, ret);
	return r ? complain("cannot start two processes beside the daemon: %s", strerror(-r)) : EXIT_DONE;
}

enum exit_code ring_bench_echo(struct ring *ring)
{
	const struct bench_options *o = ring->bench.options;
	static struct rounds rounds;
	static struct contender echo, spsc;
	struct pair_run pair = {.mode = PAIR_SPIN};
	enum exit_code code = ring_start_pair(&pair_spsc, &pair.pair);
	if (code)
		return code;
	rounds_init(&rounds, ring, "floor", o->n, o->rounds);
	struct echo one = {.client = ring->bench.client, .n_tokens = TR_INLINE_TOKENS};
	echo = (struct contender){"echo", ring_run_echo, &one, o->n, &rounds.walk, .polls = true};
	spsc = (struct contender){"spsc", ring_run_pair, &pair, o->n, &echo, .polls = true};
	code = rounds_run(&rounds, (struct contender *[]){&echo, &spsc}, 2);
	if (!code) {
		rounds_print(&rounds, &echo);
		rounds_print(&rounds, &rounds.walk);
		rounds_print(&rounds, &spsc);
		bench_note(&ring->bench,
			   "one echo of 8 tokens in flight, CPU %d to the daemon on CPU %d; floor: raw "
			   "ping-pong walking %u and %u lines; spsc: head and tail, 64-byte messages, two "
			   "processes, its ratio is how many times slower than the echo it is",
			   ring->near_cpu, ring->far_cpu, ring->bench.sq_slots, ring->bench.cq_slots);
		rounds_note(&rounds);
	}
	pair_stop(pair.pair);
	rounds_free(&rounds);
	return code;
}

/* ---- many at a time ---- */

struct stream {
	struct tr_client *client;
	unsigned window;
	bool many; /* tr_submit_many */
};

static int fill_window(const struct stream *s, const struct tr_request *requests, unsigned room)
{
	uint64_t ids[WINDOW];
	if (s->many)
		return room ? tr_submit_many(s->client, requests, room, ids) : 0;
	for (unsigned i = 0; i < room; i++) {
		int r = tr_submit(s->client, requests, ids);
		if (r)
			return i ? (int)i : r;
	}
	return (int)room;
}

static int stream_echoes(const struct stream *s, uint64_t n)
{
	struct tr_request requests[WINDOW];
	struct tr_event events[WINDOW] = {{.size = sizeof *events}};
	struct patience patience = {0};
	uint64_t sent = 0, got = 0;
	for (unsigned i = 0; i < WINDOW; i++)
		requests[i] = (struct tr_request){
		    .size = sizeof *requests, .op = TR_ECHO, .n_tokens = TR_INLINE_TOKENS};
	while (got < n) {
		uint64_t room = s->window - (sent - got);
		int r = fill_window(s, requests, (unsigned)(room < n - sent ? room : n - sent));
		if (r < 0 && r != -EAGAIN)
			return r;
		sent += r > 0 ? (uint64_t)r : 0;
		r = patient_poll(&patience, s->client, events, WINDOW);
		if (r < 0)
			return r;
		for (int i = 0; i < r; i++)
			if (events[i].kind != TR_EVENT_ECHO || events[i].n_tokens != TR_INLINE_TOKENS)
				return -EBADMSG;
		got += (uint64_t)r;
	}
	return 0;
}

static enum exit_code run_stream(const struct ring *ring, const struct contender *self, uint64_t n,
				 struct floor_trips *ret)
{
	const struct stream *s = self->context;
	int r = stream_echoes(s, s->window); /* the daemon may have gone to sleep */
	uint64_t begun = floor_ticks();
	if (!r)
		r = stream_echoes(s, n);
	ret->ticks = floor_ticks() - begun;
	return r ? complain_echo(s->client, r) : EXIT_DONE;
}

enum exit_code ring_bench_throughput(struct ring *ring)
{
	const struct bench_options *o = ring->bench.options;
	static struct rounds rounds;
	static struct contender bare, batched, single, many;
	uint64_t n = WINDOW_TRIPS_A_TRIP * o->n;
	unsigned window = tr_max_inflight(ring->bench.client);
	window = window < WINDOW ? window : WINDOW;
	struct pair_run pair = {.mode = PAIR_WINDOW, .window = window}, batches;
	enum exit_code code = ring_start_pair(&pair_slots, &pair.pair);
	if (code)
		return code;
	batches = pair;
	batches.mode = PAIR_BATCH;
	struct stream by_one = {ring->bench.client, window, false}, by_many = by_one;
	by_many.many = true;
	rounds_init(&rounds, ring, "floor", o->n / 4, o->rounds);
	bare = (struct contender){"slot_rings", ring_run_pair, &pair, n, NULL, .is_rate = true};
	batched = (struct contender){"slot_rings_batched", ring_run_pair, &batches, n, NULL, .is_rate = true};
	single = (struct contender){"throughput_submit", run_stream, &by_one, n, &bare, .is_rate = true};
	many = (struct contender){"throughput_submit_many", run_stream, &by_many, n, &bare, .is_rate = true};
	code = rounds_run(&rounds, (struct contender *[]){&single, &bare, &many, &batched}, 4);
	if (!code) {
		if (series_median(&batched.rate) > series_median(&bare.rate))
			single.reference = many.reference = &batched;
		rounds_print(&rounds, &single);
		rounds_print(&rounds, &many);
		rounds_print(&rounds, &bare);
		rounds_print(&rounds, &batched);
		bench_note(&ring->bench,
			   "%u echoes of 8 tokens in flight on one channel; slot_rings: a bare pair of the "
			   "same rings in two processes, the same window, each message answered at once; "
			   "slot_rings_batched: both ends take what is there before they send; the faster is "
			   "the reference",
			   window);
		rounds_note(&rounds);
	}
	pair_stop(pair.pair);
	rounds_free(&rounds);
	return code;
}
