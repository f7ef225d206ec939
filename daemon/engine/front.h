/* The front: channels, validation, admission, and the way back of answers.
 *
 * It polls the submission rings of all channels, judges private copies of what it reads, refuses or hands
 * requests to the engine (request.h), and turns the engine's events into completions. It never blocks outside
 * front_idle, allocates nothing after front_create, and never closes a client's socket: a control thread
 * (control/server.h) creates channels, answers control messages and takes ended channels apart.
 *
 * Thread rule: front_turn and front_idle belong to one thread, the front's: the engine's own (front_turn is
 * then called (as front_poll) from the backend's poll callback too) or another. Everything else says who may
 * call it.
 *
 *     while (!front_drained(front))
 *             if (front_turn(front) + engine_turn(engine) == 0)
 *                     front_idle(front, 0);
 */
#ifndef TOKENRING_DAEMON_ENGINE_FRONT_H
#define TOKENRING_DAEMON_ENGINE_FRONT_H

#include "daemon/engine/request.h"

struct channel;
struct front;

/* What one user may take of what all share; 0: the default of the option. */
struct front_shares {
	uint32_t queue_per_uid;    /* requests; of the memory for blocks a user gets the same share */
	uint32_t queue_per_tenant; /* requests of one tenant that a user names */
};

struct front_config {
	uint32_t max_clients;     /* channels at once; sizes the tables */
	uint64_t block_bytes;     /* private memory for the request blocks in flight, all channels together */
	bool huge_pages;          /* that memory may be made of transparent huge pages */
	uint64_t spin_ns;         /* front_idle polls this long after the last activity before it sleeps */
	uint64_t client_stall_ns; /* a request whose tokens find no room this long is ended */
	struct front_shares shares;
	/* Wakes an engine that has a thread of its own: called in front_turn after commands were pushed. NULL
	 * when the engine shares the front's thread. */
	void (*engine_wake)(void *engine);
	void *engine;
};

/* What status shows; counters since the start, and what is in use now. Written by the front's thread. */
struct front_counts {
	shared_u64 channels, in_flight, held; /* now; held: waiting for a model that loads */
	shared_u64 picked_up, echoes, submitted, refused, finished, tokens, cancels;
	shared_u64 channels_opened, channels_ended, wakes, slow_wakes, sleeps;
	/* By enum wire_reason: channels that ended, requests that were refused, and that ended with an error.
	 */
	shared_u64 ended_for[WIRE_REASON_LIMIT], refused_for[WIRE_REASON_LIMIT],
	    failed_for[WIRE_REASON_LIMIT];
};

/* Allocates everything that the front will ever use. `link` is initialised and outlives the front. -ENOMEM,
 * -EINVAL, or the error of epoll and eventfd, with a sentence in `why`. Any thread. */
int front_create(struct front **ret, const struct front_config *config, struct engine_link *link, char *why,
		 size_t why_bytes);

/* Puts the pages of its memory in, on a thread of its own; waits for that. Both once at most and in this
 * order, before READY; any thread, and front_free may do the waiting. */
void front_fill(struct front *front);
void front_settle(struct front *front);

/* After the last turn, when the server is stopped. NULL is allowed. */
void front_free(struct front *front);

/* One bounded turn: messages of the control thread, submission rings, the engine's events, deadlines of held
 * requests, heartbeats. Returns how much it did; 0: nothing. Cheap when there is nothing (tens of ns), at
 * most tens of microseconds else; call it every 100 us at least while a step runs. Never blocks; not from
 * within itself. Front's thread. */
unsigned front_turn(struct front *front);

/* A turn between two pieces of a step, where turns come some 50 us apart: it leaves nothing that a client
 * waits for to the next one but half of the parked channels. Front's thread; not from within a turn. */
void front_poll(struct front *front);

/* Call when front_turn and the engine both found nothing to do. Returns at once during the first spin_ns
 * after the last activity; then sleeps until a client, the control thread or front_wake has something,
 * `until_ns` (absolute CLOCK_MONOTONIC, 0: none) is reached or the next heartbeat is due. Front's thread. */
void front_idle(struct front *front, uint64_t until_ns);

/* Ends front_idle soon; an engine on its own thread calls it after it has pushed events. A fence and a load
 * while the front is awake, one system call when it sleeps. Any thread, async-signal-safe. */
void front_wake(struct front *front);

/* Refuses what is new from here on, lets what runs finish until `deadline_ns` (absolute CLOCK_MONOTONIC),
 * then ends it, then ends all channels with SHUTDOWN. Any thread, async-signal-safe. */
void front_drain(struct front *front, uint64_t deadline_ns);

/* Whether a drain is complete: no channel and no request is left. Any thread. */
bool front_drained(const struct front *front);

/* Takes new values of the options. Any thread. */
void front_reload(struct front *front, uint64_t spin_ns, uint64_t client_stall_ns,
		  const struct front_shares *shares);

const struct front_counts *front_counts(const struct front *front);

/* ---- for the control thread ---- */

/* The front adds 1 to this eventfd when a channel needs the control thread. */
void front_set_control_fd(struct front *front, int eventfd);

/* Hands a sealed, populated channel over; the front owns it until channel->returned is set. -EAGAIN: the
 * queue is full, try again. */
int front_attach(struct front *front, struct channel *channel);

/* Asks the front to end a channel. -EAGAIN as above. */
int front_end_channel(struct front *front, struct channel *channel, uint32_t reason);

#endif
