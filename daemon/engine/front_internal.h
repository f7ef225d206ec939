/* What the files of the front share: front.c turns, pickup.c reads submissions, deliver.c writes completions,
 * ending.c takes requests and channels apart, sleep.c reads sockets, sleeps and wakes.
 *
 * Thread rule: the front's thread, save the group that says otherwise. */
#ifndef TOKENRING_DAEMON_ENGINE_FRONT_INTERNAL_H
#define TOKENRING_DAEMON_ENGINE_FRONT_INTERNAL_H

#include <pthread.h>
#include <time.h>

#include "daemon/engine/channel.h"
#include "daemon/engine/front.h"
#include "daemon/engine/tenants.h"
#include "shm/arena.h"

enum {
	TURN_CHANNEL_SLOTS = 64,
	TURN_CHANNEL_BLOCK_BYTES = 64 << 10,
	TURN_SLOTS = 1024,            /* all channels together */
	TURN_BLOCK_BYTES = 256 << 10, /* all channels together */
	TURN_EVENTS = 1024,
	TURNS_A_CLOCK = 8,          /* turns between two looks at the clock while nobody needs it */
	RARE_PARKED = 16,           /* parked channels polled in each rare turn, beside half of all */
	CLOSE_LOOKS = 256,          /* loads between two turns that find nothing */
	SCAN_NS = 1000000,          /* parked channels, deadlines of held requests */
	SOCKETS_NS = 2000000,       /* between two looks at the sockets while busy */
	WAITING_SLEEP_NS = 1000000, /* longest sleep while something waits for completion room */
	SLOW_WAKE_NS = 200000,      /* two wakes in a row that took longer are somebody's attack */
	HOSTILE_WAKE_NS = 2000000,  /* one that took longer */
	SLOW_FORGIVEN_S = 10,
	SOCKET_EVENTS = 64,
	SOCKET_MESSAGES = 16,   /* read from one socket in one look */
	BLOCK_UNIT_BYTES = 256, /* of the private memory of blocks */
	UNPLACED_TOKENS = 128,  /* power of two, more than REQUEST_UNDELIVERED_MAX + 1 */
	NOWHERE = UINT32_MAX,
};

enum pending_state {
	PENDING_FREE,
	PENDING_COPYING,  /* its block is on the way to private memory */
	PENDING_HELD,     /* waits for the model */
	PENDING_RUNNING,  /* the engine's */
	PENDING_ANSWERED, /* cancelled: the client has its terminal, the engine does not know yet */
	PENDING_FINISHED, /* its terminal waits for the tokens before it to find room */
};

/* The front's side of a request; same index as link->requests. */
struct pending {
	struct channel *channel; /* NULL: free */
	uint8_t state;           /* enum pending_state */
	uint8_t end_finish;      /* why its end was asked; 0: it was not */
	uint16_t end_reason;
	bool end_sent;                       /* to the engine */
	bool may_shorten;                    /* the client named no max_new */
	uint32_t next, previous;             /* in the channel's chain; next also in the free list */
	uint32_t index;                      /* of the channel's table */
	uint32_t place;                      /* in front->held or front->outbox; NOWHERE */
	uint64_t turn;                       /* of pickup */
	uint32_t unit, block_bytes;          /* private memory of the block; bytes 0: none */
	uint32_t tenant;                     /* in front->tenants; NOWHERE: its user names none */
	uint64_t blocked_since_ns;           /* tokens found no room; 0: not blocked */
	uint32_t first_unplaced, n_unplaced; /* token indices of the stream */
	uint32_t reply_bytes;                /* of the last token's event */
	struct engine_event terminal;
	uint32_t unplaced[UNPLACED_TOKENS]; /* by token index & (UNPLACED_TOKENS - 1) */
	uint32_t inline_tokens[WIRE_SLOT_TOKENS];
};

/* A bag of request indices with removal by place. */
struct request_list {
	uint32_t *items;
	uint32_t n;
};

/* Where a channel's next submission will appear, apart from the channel: whoever looks at hundreds that are
 * silent touches nothing else. */
struct lookout {
	const shared_u64 *word;
	uint32_t seq; /* as in ring_ready */
};

struct channel_list {
	struct channel **items;
	struct lookout *lookouts; /* (n) of the parked, who read nothing while they are; else NULL */
	uint32_t n, next;         /* next: where the rotation goes on */
};

enum front_message_kind { FRONT_ATTACH, FRONT_END };

struct front_message {
	struct channel *channel;
	uint32_t kind, reason;
};

struct front {
	struct front_config config;
	struct engine_link *link;

	struct channel_list active, parked;
	struct channel_list unwoken; /* published since their last fenced look */
	struct channel_list doomed;
	struct pending *pending; /* (link->n_requests) */
	uint32_t first_free;     /* chain through pending.next */
	uint32_t n_requests;     /* not free */
	struct request_list held, outbox;
	struct tenants tenants;
	struct arena blocks;
	uint8_t *block_memory;
	pthread_t filler; /* touches it; whose it is to join: see front_settle */
	bool filling;

	uint64_t turn;
	uint64_t now_ns; /* of this turn; 0: not read yet */
	uint64_t next_scan_ns, next_sockets_ns, next_beat_ns, last_active_ns;
	uint64_t last_finish_ns, finish_gap_ns; /* smoothed: when a place in the queue may come free */
	uint32_t turns_to_clock;                /* down to 1 */
	uint32_t slots_left, block_bytes_left;  /* of this turn */
	bool did_something;                     /* since the clock was last read in front_idle */
	bool pickup_waits;                      /* a submission waits for completion room */
	bool commands_pushed, control_wanted;
	bool ends_owed; /* the queue to the engine had no room for a COMMAND_END */
	bool draining, drain_ended;
	struct sleeper sleeper;
	int epoll_fd, wake_fd, control_fd;
	uint32_t n_muted;

	/* ---- shared with other threads ---- */
	struct queue messages; /* control thread to front */
	_Alignas(64) shared_u32 asleep;
	shared_u64 drain_deadline_ns; /* 0: no drain */
	shared_u32 drained;
	shared_u64 spin_ns, client_stall_ns;
	shared_u32 queue_per_uid, queue_per_tenant;
	_Alignas(64) struct front_counts counts;

	struct control_envelope envelope; /* a message on its way to a mailbox */
};

static inline uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The clock, read once a turn at most. */
static inline uint64_t front_now(struct front *front)
{
	if (front->now_ns == 0)
		front->now_ns = clock_ns();
	return front->now_ns;
}

/* Counters have one writer: a plain load and store, no locked instruction. */
static inline void count(shared_u64 *counter, uint64_t more)
{
	store_relaxed_u64(counter, load_relaxed_u64(counter) + more);
}

static inline struct request *front_request(const struct front *front, uint32_t request)
{
	return &front->link->requests[request];
}

static inline bool lookout_ready(const struct lookout *lookout)
{
	return (uint32_t)load_acquire_u64(lookout->word) == lookout->seq;
}

/* ---- lists ---- */
void channels_add(struct channel_list *list, struct channel *channel);
void channels_remove(struct channel_list *list, struct channel *channel);
void requests_add(struct front *front, struct request_list *list, uint32_t request);
void requests_remove(struct front *front, struct request_list *list, uint32_t request);

/* ---- pickup.c ---- */

/* Picks up what the channel submitted, within the budgets; returns how many slots (or block pieces). */
unsigned pickup_channel(struct front *front, struct channel *channel);

/* The model became ready or failed, or time passed: submits, refuses or leaves each held request. */
unsigned pickup_held(struct front *front);

/* ---- share.c ---- */

/* Refuses with the time after which it may be worth another try; returns false. */
bool refuse_for_now(const struct front *front, uint32_t reason, uint64_t asked, uint64_t limit,
		    struct refusal *ret_refusal);

/* Whether the user may have one request more, a block of so many bytes more, and the request's tenant one
 * request more with its block, which are then counted. */
bool share_of_queue(const struct front *front, const struct account *account, struct refusal *ret_refusal);
bool share_of_blocks(const struct front *front, const struct account *account, uint32_t bytes,
		     struct refusal *ret_refusal);
bool share_of_tenant(struct front *front, uint32_t request, struct refusal *ret_refusal);

/* ---- deliver.c ---- */

/* Publishes a completion (64 bytes) in a slot that is known to be free. */
static inline void deliver(struct front *front, struct channel *channel, const void *completion)
{
	ring_publish(&channel->completions, completion); /* [D2] */
	if (channel->unwoken)
		return;
	channel->unwoken = true;
	front->unwoken.items[front->unwoken.n++] = channel;
}

void deliver_refusal(struct front *front, struct channel *channel, uint64_t id, uint32_t since,
		     const struct refusal *refusal);

/* Takes events of the engine; returns how many. */
unsigned deliver_events(struct front *front);

/* Tries to place what the outbox holds; returns how many completions. */
unsigned deliver_outbox(struct front *front);

/* Units of 100 ns since pickup; 0 in the turn of pickup. */
uint32_t deliver_since(struct front *front, uint32_t request);

/* ---- ending.c ---- */

/* A free request for the channel under a table index, in state COPYING, or NOWHERE. */
uint32_t request_take(struct front *front, struct channel *channel, const struct wire_submission *slot);

/* Frees the table index, the private memory and the request, before its terminal is published. */
void request_release(struct front *front, uint32_t request);

/* Asks the engine to end a request that it runs, once. */
void request_end(struct front *front, uint32_t request, uint32_t finish, uint32_t reason);

/* Sends the ends that the queue had no room for. */
void request_end_owed(struct front *front);

/* Ends a request in whatever state: by the engine, or at once with a FINAL. */
void request_cancel(struct front *front, uint32_t request, uint32_t finish, uint32_t reason);

/* Ends the channel at the end of this phase; the first reason counts. */
void channel_doom(struct front *front, struct channel *channel, uint32_t reason);
void bury_doomed(struct front *front);
void drain_step(struct front *front);
/* Why channels and requests end: SHUTDOWN, or MODEL_FAILED. */
uint32_t drain_reason(const struct front *front);

/* ---- sleep.c ---- */

/* Reads what the sockets hold. What comes from them is no activity: a flood of wake-ups must not keep the
 * front from sleeping. */
void sockets_look(struct front *front);
int sockets_watch(struct front *front, struct channel *channel);
void sockets_forget(struct front *front, struct channel *channel);

/* Wakes clients whose sleep words say so. `fenced`: a fence lies between the last publish and this call,, so
 * that channels leave the list. */
void wake_clients(struct front *front, bool fenced);
void control_notify(struct front *front);

/* Tells all clients that the front is awake; front_idle leaves that to the turn after it. */
void end_sleep(struct front *front);

#endif
