/* One client's channel as the daemon sees it: the mapping, the private views of its rings, the table of what
 * is in flight.
 *
 * The control thread makes it (channel_create), sets it up, and hands it to the front, which owns it until it
 * sets `returned`; then the control thread frees it. What both touch meanwhile are the words and the queue
 * grouped below.
 *
 * Thread rule: beside each group. No function here allocates but channel_create. */
#ifndef TOKENRING_DAEMON_ENGINE_CHANNEL_H
#define TOKENRING_DAEMON_ENGINE_CHANNEL_H

#include "daemon/engine/admit.h"
#include "shm/queue.h"
#include "shm/segment.h"
#include "shm/wake.h"

enum {
	CHANNEL_MAILBOX_SLOTS = 4,
	CHANNEL_NO_REQUEST = UINT32_MAX,
};

/* A control message as it came from the socket. */
struct control_envelope {
	uint32_t bytes;
	unsigned char data[WIRE_CONTROL_BYTES_MAX];
};

/* A block that is being copied, over several turns if it is large. */
struct block_copy {
	uint32_t request; /* CHANNEL_NO_REQUEST: none in progress */
	uint8_t op;
	uint32_t bytes;  /* of the block, from its head as first read */
	uint32_t copied; /* of them */
	uint64_t offset; /* from the channel's start */
};

/* What one user has in use, over all its channels. The control thread makes it, with the user's first
 * channel, and frees it after the last has been returned; the front alone reads and writes it between. */
struct account {
	uint32_t n_requests;
	uint64_t block_bytes;
};

struct channel {
	/* ---- the front's, hot ---- */
	struct ring_reader submissions;
	struct ring_writer completions;
	uint64_t last_order;    /* the high 48 bits of the last id */
	uint32_t n_in_flight;   /* ids without a terminal: so many completion slots are reserved */
	uint32_t max_in_flight; /* of the layout */
	uint32_t *table;        /* (max_in_flight) request index, or CHANNEL_NO_REQUEST */
	bool served;            /* something was picked up since the last rotation of the parked */
	bool unwoken;           /* published since the last fenced look at the client's sleep word */
	bool muted;             /* the mailbox was full: its socket is not read */
	bool active;            /* in the list of active channels, else among the parked */
	uint32_t doomed;        /* enum wire_reason: ends after this phase of the turn; 0: lives */
	struct waker waker;
	struct wire_header *header;

	/* ---- the front's, cold ---- */
	uint32_t position;      /* in the front's list of its kind */
	uint32_t first_request; /* chain through the front's request states; CHANNEL_NO_REQUEST: none */
	uint64_t slow_until_ns; /* until then wakes are the control thread's */
	bool slow_before;       /* the last wake took long */
	uint32_t number;        /* for the engine's statistics */
	uint64_t block_bytes;   /* of blocks that the client may not use yet; at most the arena's */
	struct block_copy copy;
	struct account *account; /* of its user */

	/* ---- fixed before front_attach ---- */
	uint32_t uid;
	bool may_name_tenants;
	bool peek_first; /* the kernel may deliver passed descriptors: look before reading */
	int fd;          /* closed by the control thread only, after `ended_reason` is set */
	struct segment segment;
	struct segment_layout layout;

	/* ---- written by the control thread, read by the front ---- */
	struct profile *profiles[PROFILE_COUNT]; /* [0] unused; never changed once counted */
	_Alignas(64) shared_u32 n_profiles;      /* release; entries 1 to n_profiles exist */

	/* ---- written by the front, read by the control thread ---- */
	_Alignas(64)
	    shared_u32 ended_reason; /* release; 0 while it lives; the fd is out of the front's epoll */
	shared_u32 returned;         /* release; 1: the front and the engine hold nothing of it */
	shared_u32 end_taken;        /* release; 1: a front_end_channel was seen */
	shared_u32 wakes_asked;      /* release; counts wakes that the control thread must do */
	shared_u32 n_refused, last_refusal; /* requests, and the reason of the last */
	struct queue mailbox;               /* control messages, front to control thread */

	void *connection; /* the control thread's own */
};

/* Allocates what the channel needs in private memory and the memfd and its mapping; fd stays -1. -ENOMEM and
 * the errors of segment_create, with a sentence. Control thread. */
int channel_create(struct channel **ret, struct segment_layout *layout, enum segment_pages pages, char *why,
		   size_t why_bytes);

/* NULL is allowed. Does not close the socket. Control thread. */
void channel_free(struct channel *channel);

/* Builds the private views and writes the header, once the segment is sealed and populated. */
void channel_open(struct channel *channel);

/* The negative errno of a reason. */
int32_t channel_status(uint32_t reason);

/* ---- the front's ---- */

/* Whether a completion slot is free beyond those reserved for what is in flight. `*ret_bad`: the client wrote
 * an impossible cq_consumed. */
static inline bool channel_has_room(struct channel *channel, bool *ret_bad)
{
	if (ring_room(&channel->completions) > channel->n_in_flight)
		return true;
	if (!ring_writer_refresh(&channel->completions)) { /* [D1] */
		*ret_bad = true;
		return false;
	}
	return ring_room(&channel->completions) > channel->n_in_flight;
}

/* Whether a submission waits, or a block whose copy goes on. */
static inline bool channel_has_work(const struct channel *channel)
{
	return ring_ready(&channel->submissions) || channel->copy.request != CHANNEL_NO_REQUEST;
}

/* Whether the id's table index exists and is not in use. */
static inline bool channel_lookup_free(const struct channel *channel, uint64_t id)
{
	uint32_t index = id & 0xffff;

	return index < channel->max_in_flight && channel->table[index] == CHANNEL_NO_REQUEST;
}

/* The request under a table index; a cancel may name any number. */
static inline uint32_t channel_lookup(const struct channel *channel, uint64_t id)
{
	uint32_t index = id & 0xffff;

	return index < channel->max_in_flight ? channel->table[index] : CHANNEL_NO_REQUEST;
}

#endif
