/* What the files of the client library share: the client object, its gate, and the socket.
 *
 * Thread rule: as tokenring.h: one thread at a time for each client. */
#ifndef TOKENRING_LIBCLIENT_CLIENT_H
#define TOKENRING_LIBCLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "libclient/include/tokenring/tokenring.h"
#include "shm/arena.h"
#include "shm/ring.h"
#include "shm/segment.h"
#include "shm/wake.h"

enum {
	ARENA_UNIT_BYTES = WIRE_SLOT_BYTES, /* offsets in slots and blocks count these */
	DEFAULT_SPIN_NS = 50000,
	DEFAULT_TIMEOUT_MS = 5000,
	SLEEP_SLICE_NS = 250000000, /* the longest sleep without a look at the heartbeat */
	SOCKET_LOOK_NS = 2000000,   /* between two looks at the socket while spinning */
	POLLS_A_CLOCK_MAX = 64,     /* empty polls between two reads of the clock, at most */
	PROFILES = 256,
	PROFILE_STOP_IDS_MAX = 64,
};

enum { ID_STEP = 1 << 16, ID_INDEX = ID_STEP - 1 }; /* an id: a rising count above a table index */
#define NO_ID UINT64_MAX                            /* its table index is above any */

/* What a call looks at before it touches anything else: the first page of the client, which the kernel zeroes
 * in a forked child.
 *
 * A request needs a table entry and a slot. An answer to it means that its slot has been read, so that no
 * more slots are unread than there are requests in flight and cancellations; the latter are kept to the slots
 * that no entry has. So n_free alone tells whether an entry is free, a slot is free, and the gate is open. */
struct gate {
	_Alignas(4096) uint64_t n_free; /* table entries; zero while the gate is closed */
	uint32_t open;                  /* 1: the channel lives and this is the process that opened it */
	uint32_t present;               /* 1 in the process that opened it */
};

/* What a request in flight holds in the arena, by table index. */
struct flight {
	uint32_t block;     /* the arena's unit + 1; 0: none */
	uint32_t reply_off; /* in units of 64 bytes from the memfd's start; 0: no reply is asked */
	uint32_t reply_cap; /* bytes */
	uint32_t records;   /* records a token; 0: an embedding */
};

/* A registered profile, remembered so that a request block can repeat it. */
struct profile {
	struct tr_sampling sampling;
	uint32_t max_new, n_stop_ids;
	uint32_t stop_ids[PROFILE_STOP_IDS_MAX];
};

/* Where a sentence for the user goes; NULL: nowhere. */
struct why {
	char *text;
	size_t bytes;
};

struct tr_client {
	struct gate gate;

	/* Submitting. */
	struct ring_writer submissions;
	/* [n]: (TR_INLINE_TOKENS) keeps n tokens and clears the rest: what lies behind them in the caller's
	 * memory stays there. */
	const uint32_t *token_masks[TR_INLINE_TOKENS + 1];
	uint64_t id_base; /* the last request's id less its entry */
	/* (2 x max_inflight) A stack of free entries, gate.n_free high; above it the entries, which are its
	 * second half by table index: the id in flight, or NO_ID. An entry's number is its place in here. */
	uint64_t *table;
	struct waker waker;
	struct flight *flights; /* (max_inflight) */
	/* (sq_slots - max_inflight) A queue: indices of the cancels that are not known to be copied. */
	uint64_t *cancels;
	uint32_t first_cancel, n_cancels;

	/* Polling. */
	struct ring_reader completions;
	uint64_t *ids;   /* the second half of `table` */
	uint64_t fenced; /* the index of `submissions` at the last fence */
	uint32_t polls_left, polls_a_clock;
	uint32_t n_ended;
	uint32_t *ended; /* (max_inflight) arena units to give back at the next poll */
	struct sleeper sleeper;
	uint64_t clock_ns, quiet_since_ns, looked_ns;
	uint64_t judged; /* the index of `completions` at the last read of the clock */
	bool drain;      /* dead, but events that were published before may be read */

	/* The channel. */
	int socket; /* -1: none */
	int error;  /* why the gate is closed */
	uint32_t end_reason;
	uint32_t serial;
	struct segment segment;
	struct segment_layout layout;
	struct arena arena;
	struct profile *profiles[PROFILES];

	/* What tr_open was told. */
	char *address; /* NULL: the default */
	uint32_t spin_ns, timeout_ms;
	uint32_t spin_now_ns; /* of spin_ns, what the last waits left */
	struct why why;       /* until tr_open returns */
};

/* A connection after its handshake. */
struct channel {
	int socket;
	struct segment segment;
	struct segment_layout layout;
};

/* connect.c: resolves the address, connects, maps and checks. Blocks up to timeout_ms. On failure there is a
 * sentence in why. */
int channel_connect(struct channel *ret, const char *address, uint32_t timeout_ms, struct why why);
void channel_destroy(struct channel *channel);

/* open.c: an object without a channel; a channel that becomes the client's in any case. */
int client_create(struct tr_client **ret, const struct tr_open_options *options);
int client_adopt(struct tr_client *client, struct channel *channel);

void client_shut(struct tr_client *client);

/* Closes the gate for a reason that does not go away. drain: published events remain readable. Returns
 * `error`. */
int client_die(struct tr_client *client, int error, uint32_t reason, bool drain);

/* fork.c: a zeroed client whose gate is closed; NULL: no memory. */
struct tr_client *client_allocate(void);
void client_free(struct tr_client *client);

static inline bool client_forked(const struct tr_client *client)
{
	return !client->gate.present;
}

/* The error of a client whose gate is not open. */
int client_closed(const struct tr_client *client);

/* Copies the caller's struct of any known version into `to` (`to_bytes`): -EINVAL when it is shorter than
 * `least_bytes` or has a byte set beyond what is known. Missing fields are zero. */
int copy_versioned(void *to, size_t to_bytes, const void *from, size_t least_bytes);

/* block.c: fills a request block for request->extra in the arena. -EAGAIN, -E2BIG, -EINVAL. */
int block_build(struct tr_client *client, const struct tr_request *request, struct flight *flight);

/* socket.c */
struct message {
	struct wire_control head;
	unsigned char payload[WIRE_CONTROL_BYTES_MAX - sizeof(struct wire_control)];
};

enum received { RECEIVED_NOTHING = 0, RECEIVED_WAKE = 1, RECEIVED_CONTROL = 2 };

/* One message of `fd`, without blocking: enum received, -ECONNRESET at a hang-up, -EPROTO when malformed. A
 * descriptor that arrives with it is closed, or stored where ret_fd is not NULL. */
int socket_receive(int fd, struct message *ret, int *ret_fd);

/* Waits for `events` (POLLIN, POLLOUT) until deadline_ns: 1, 0 when it passed, -EINTR. */
int socket_wait(int fd, short events, uint64_t deadline_ns);

/* The same on a client; an END or a hang-up closes the gate, and reading disarms. */
int client_receive(struct tr_client *client, struct message *ret);

/* Reads all that waits and drops what is not an END (replies that came too late). 0 or why the client died.
 */
int client_drain(struct tr_client *client);

/* After a send failed: dies of the END that the daemon still sent, else of the hang-up. */
int client_hung_up(struct tr_client *client);

/* Looks for a hang-up or an END without taking a wake-up away from the caller's epoll. */
int client_peek(struct tr_client *client);

/* The heartbeat, with the clock read before it: 0 or -EHOSTDOWN. */
int client_heartbeat(const struct tr_client *client, uint64_t now_ns);

/* poll.c: events that are in the ring now, after `n` of the same call: a count, or -ECONNABORTED when the
 * first one does not add up. */
int client_collect(struct tr_client *client, struct tr_event *events, unsigned n, unsigned max);

/* After the end: what the daemon published before it comes first. */
int client_poll_closed(struct tr_client *client, struct tr_event *events, unsigned max);

/* What costs a clock: the state that the daemon left, its heartbeat, and the socket after 2 ms without
 * events. */
int client_look_at_health(struct tr_client *client, uint64_t now_ns);

int reason_to_error(uint32_t reason);

static inline bool client_open(const struct tr_client *client)
{
	return __builtin_expect(client->gate.open, 1);
}

static inline bool client_owes_fence(const struct tr_client *client)
{
	return client->fenced != client->submissions.index; /* [C2] */
}

/* Before a full fence: what it covers. */
static inline void client_fences(struct tr_client *client)
{
	client->fenced = client->submissions.index;
}

static inline uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#endif
