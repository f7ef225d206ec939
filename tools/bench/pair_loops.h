/* The loops of a pair's two ends, made once for each transport so that its calls are inlined: a bare ring of
 * some nanoseconds must not pay for being called through a pointer. For C and C++. */
#ifndef TOKENRING_TOOLS_BENCH_PAIR_LOOPS_H
#define TOKENRING_TOOLS_BENCH_PAIR_LOOPS_H

#include <errno.h>
#include <string.h>
#include <time.h>

#include "tools/bench/pair.h"
#include "tools/bench_floor.h"

struct pair_message {
	uint64_t number, stamp, fill[6];
};

/* One message. 1: done; 0: not now, only if not `block`; or a negative errno. */
typedef int pair_send_fn(const void *message, bool block);
typedef int pair_receive_fn(void *message, bool block);

static inline bool pair_blocks_in(const struct pair_order *order)
{
	return order->mode == PAIR_BLOCK || order->mode == PAIR_WAKE;
}

static inline int pair_send_one(pair_send_fn *send, const struct pair_message *message, bool block,
				uint64_t *polls)
{
	int r;
	while (!(r = send(message, block)))
		++*polls;
	return r < 0 ? r : 0;
}

static inline int pair_receive_one(pair_receive_fn *receive, struct pair_message *message, bool block,
				   uint64_t *polls)
{
	int r;
	while (!(r = receive(message, block)))
		++*polls;
	return r < 0 ? r : 0;
}

/* Keeps the CPU for the pause of an order and reads as much memory meanwhile, for ever anew, as it says:
 * after that the caches hold nothing of what a wake-up needs, as after a step of a model. */
static inline int pair_compute(const struct pair_order *order)
{
	enum { PIECE_BYTES = 1 << 16, LINE_BYTES = 64 };
	static volatile const char *memory;
	uint64_t until = floor_ticks() + (uint64_t)(1000.0 * order->pause_us / order->ns_per_tick), at = 0;
	if (order->read_bytes && !memory)
		memory = (const char *)pair_memory(order->read_bytes);
	if (order->read_bytes && !memory)
		return -ENOMEM;
	while (floor_ticks() < until)
		for (unsigned i = 0; i < PIECE_BYTES && order->read_bytes; i += LINE_BYTES) {
			(void)memory[at];
			at = (at + LINE_BYTES) % order->read_bytes;
		}
	return 0;
}

/* ---- the far end: every message back ---- */

static inline int pair_answer(pair_send_fn *send, pair_receive_fn *receive, const struct pair_order *order)
{
	struct pair_message message;
	uint64_t polls = 0;
	int r = 0;
	for (uint32_t i = 0; i <= order->n && !r; i++) {
		r = pair_receive_one(receive, &message, pair_blocks_in(order), &polls);
		if (order->mode == PAIR_WAKE) {
			if (!r)
				r = pair_compute(order);
			message.stamp = floor_ticks();
		}
		if (!r)
			r = pair_send_one(send, &message, pair_blocks_in(order), &polls);
	}
	return r;
}

/* ---- the near end ---- */

static inline void pair_pause_between(const struct pair_order *order)
{
	struct timespec time = {0, 1000l * order->pause_us};
	if (order->pause_us)
		nanosleep(&time, NULL);
}

static inline int pair_ping(pair_send_fn *send, pair_receive_fn *receive, const struct pair_order *order,
			    struct floor_trips *ret)
{
	struct pair_message message = {0, 0, {0}};
	uint64_t last = 0, begun;
	for (uint64_t i = 0; i <= order->n; i++) {
		uint64_t polls = 1;
		pair_pause_between(order);
		begun = order->pause_us ? floor_ticks() : last;
		message.number = i;
		int r = pair_send_one(send, &message, pair_blocks_in(order), &polls);
		if (!r)
			r = pair_receive_one(receive, &message, pair_blocks_in(order), &polls);
		uint64_t now = floor_ticks();
		if (r || message.number != i)
			return r ? r : -EBADMSG;
		if (order->mode == PAIR_WAKE)
			begun = message.stamp;
		if (i) /* the first one waited for the other end to wake up */
			floor_trips_add(ret, now - begun, polls, order->ns_per_tick, order->ticks_per_poll);
		last = now;
	}
	return 0;
}

/* Defines NAME_near and NAME_far, the loops of struct pair_transport, over the two calls. */
#define PAIR_LOOPS(name, send, receive)                                                 \
	static int name##_near(const struct pair_order *order, struct floor_trips *ret) \
	{                                                                               \
		return pair_ping(send, receive, order, ret);                            \
	}                                                                               \
	static int name##_far(const struct pair_order *order)                           \
	{                                                                               \
		return pair_answer(send, receive, order);                               \
	}

#endif
