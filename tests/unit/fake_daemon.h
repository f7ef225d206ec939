/* The daemon's end of one channel at a time, on a thread of the test: handshake, rings, wake-ups, heartbeat
 * and control messages, with no engine behind them. A test replaces what it wants to misbehave.
 *
 * Thread rule: the callbacks run on the daemon's thread; `flags` and `wakes_received` may be used by both. */
#ifndef TOKENRING_TESTS_FAKE_DAEMON_H
#define TOKENRING_TESTS_FAKE_DAEMON_H

#include <pthread.h>

#include "libclient/client.h"

enum fake_flag {
	FAKE_STOP = 1,       /* the thread ends and closes its sockets */
	FAKE_HANG = 2,       /* nothing moves, the heartbeat included */
	FAKE_NO_CONSUME = 4, /* submissions stay in the ring */
	FAKE_REFUSE = 8,     /* END instead of an offer */
	FAKE_BAD_HEADER = 16,
	FAKE_END = 32,    /* END with fake->end_reason, then hang up */
	FAKE_AWAKE = 64,  /* never sleeps */
	FAKE_HANGS = 128, /* set by the thread when it does */
};

struct fake_daemon;
typedef void fake_submission(struct fake_daemon *, const struct wire_submission *);
typedef void fake_control(struct fake_daemon *, const struct message *);

struct fake_daemon {
	char path[108];
	int listener, socket; /* -1: none */
	pthread_t thread;
	struct segment segment;
	struct segment_layout layout;
	struct ring_reader submissions;
	struct ring_writer completions;
	struct waker waker;
	struct sleeper sleeper;
	uint64_t first_index;
	uint32_t sq_slots, cq_slots, max_inflight, end_reason;
	uint64_t arena_bytes;
	/* A daemon of another version: what it adds to the two numbers, in the offer and in the header, and
	 * to the offer's size. */
	uint32_t later_major, later_minor;
	int offer_bytes;
	fake_submission *on_submission; /* NULL: fake_answer */
	fake_control *on_control;       /* NULL: fake_control_echo */
	bool is_shared;                 /* the client uses the same mapping */
	shared_u32 flags;
	shared_u64 sleeps; /* times the daemon went to sleep */
};

/* Listens at a fresh path and starts the thread. The fields from first_index on may be set before. */
void fake_start(struct fake_daemon *fake);
/* Without a socket path: a client with the same mapping as the daemon, so that ThreadSanitizer sees both
 * ends. */
struct tr_client *fake_start_shared(struct fake_daemon *fake, const struct tr_open_options *options);
/* Stops the thread, frees what the daemon holds and removes the path. */
void fake_stop(struct fake_daemon *fake);

void fake_set(struct fake_daemon *fake, uint32_t flags);
void fake_clear(struct fake_daemon *fake, uint32_t flags);
/* Sets FAKE_HANG and returns when nothing moves any more. */
void fake_hang(struct fake_daemon *fake);

/* Publishes a completion; waits for room. Wakes at the end of the turn. */
void fake_publish(struct fake_daemon *fake, const struct wire_completion *completion);
/* Echo returns its tokens; generate streams max_new tokens that count up from the last prompt token, three an
 * event; score gives id / 2 for each candidate; token 666 is refused with numbers. */
void fake_answer(struct fake_daemon *fake, const struct wire_submission *submission);
/* Sends a reply of any length in parts. */
void fake_reply(struct fake_daemon *fake, const struct message *to, const void *bytes, size_t n);
void fake_send(struct fake_daemon *fake, const struct message *message);

#endif
