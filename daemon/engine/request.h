/* A request on its way through the daemon, and the messages between the front and the engine.
 *
 * The front (front.c) owns channels, validation and admission; the engine (engine.c) owns sequences, KV and
 * steps. They talk through two in-process queues (shm/queue.h): commands to the engine, events to the front;
 * so they may share a thread (the front then runs from the backend's poll callback) or have one each. All
 * requests live in one table that is allocated at start.
 *
 * Life: the front fills an entry, sends COMMAND_SUBMIT; from then the engine owns it (save the fields grouped
 * under the front) until it sends an event with a finish or a refusal, which gives it back. Whatever happens,
 * each submitted request gets exactly one such event, so that the front can free it and, when a channel has
 * died, its memory. */
#ifndef TOKENRING_DAEMON_ENGINE_REQUEST_H
#define TOKENRING_DAEMON_ENGINE_REQUEST_H

#include <stdbool.h>

#include "shm/queue.h"
#include "shm/wire.h"

enum {
	REQUEST_UNDELIVERED_MAX = 64, /* tokens; the engine pauses a request that has this many */
	REQUEST_STOP_MAX = 64,
};

struct sampling {
	uint64_t seed;
	float temperature, top_p, min_p, penalty;
	uint32_t top_k;
	uint32_t ignore_eos;
};

struct bias_entry {
	uint32_t id;
	float bias;
};

struct request {
	/* ---- written by the front before COMMAND_SUBMIT, read-only afterwards ---- */
	uint32_t index; /* in the table */
	uint8_t op;     /* enum wire_op: GENERATE, SCORE or EMBED */
	bool mean;      /* EMBED: of all tokens, not of the last */
	uint8_t priority;
	uint16_t model;
	uint32_t uid, tenant;
	uint64_t arrival_ns;  /* CLOCK_MONOTONIC, of the turn of pickup */
	uint64_t deadline_ns; /* 0: none */
	uint32_t n_tokens, max_new;
	const uint32_t *tokens; /* (n_tokens) private memory, all below the vocabulary */
	struct sampling sampling;
	uint32_t n_stop, n_bias, n_allowed, n_candidates, n_continuations;
	uint32_t stop[REQUEST_STOP_MAX];
	const struct bias_entry *bias;        /* (n_bias) private */
	const uint32_t *allowed;              /* (n_allowed) ascending */
	const uint32_t *candidates;           /* (n_candidates) */
	const uint32_t *continuation_lengths; /* (n_continuations), each 1 at least */
	const uint32_t *continuations;        /* (sum) */
	uint32_t n_logprobs;
	uint32_t logprobs; /* 1: records are written for each token */
	/* The client's memory, mapped while the request lives, or NULL. The engine writes struct wire_reply
	 * and records here, at most reply_cap bytes, before it sends the event that counts them. Never read
	 * back. */
	uint8_t *reply;
	uint32_t reply_cap;

	/* ---- written by the front while the engine runs the request ---- */
	shared_u32 delivered; /* tokens placed in the completion ring */

	/* ---- the front's own ---- */
	uint32_t channel;   /* slot of the channel table */
	uint64_t client_id; /* the id in the client's slots */
	void *front_state;

	/* ---- the engine's own ---- */
	void *engine_state;
};

/* Of the reply with an embedding of `width` floats. */
static inline uint64_t embedding_bytes(uint32_t width)
{
	return sizeof(struct wire_reply) + (uint64_t)width * sizeof(float);
}

enum command_kind {
	COMMAND_SUBMIT = 1,
	COMMAND_END = 2, /* end it as soon as possible; its event carries `finish` and `reason` */
};

struct engine_command {
	uint8_t kind;
	uint8_t finish;  /* END: enum wire_finish: CANCELLED, STALL, SHUTDOWN */
	uint16_t reason; /* END: enum wire_reason */
	uint32_t request;
};

enum event_kind {
	EVENT_TOKEN = 1,   /* one token more; its records, if asked, are in the reply area */
	EVENT_FINISH = 2,  /* terminal; may carry the last token */
	EVENT_REFUSED = 3, /* terminal; nothing was computed */
};

struct engine_event {
	uint8_t kind;
	uint8_t has_token;
	uint8_t finish; /* enum wire_finish */
	uint8_t zero;
	uint32_t request;
	uint32_t token;
	uint32_t reason;      /* enum wire_reason */
	uint32_t reply_bytes; /* written to the reply area so far */
	uint32_t asked, limit;
	uint64_t predicted_ns, retry_ns;
};

/* What the front needs to know of the engine to refuse without asking it. Written once when the model is
 * ready; published by the release store of `state`. */
struct engine_limits {
	shared_u32 state;                               /* enum wire_model_state; acquire before the rest */
	uint32_t vocab, context, max_prompt, kv_tokens; /* kv_tokens: what the whole pool holds */
	uint32_t width;                                 /* floats of an embedding */
	uint32_t n_eos;
	uint32_t eos[32];
};

struct engine_link {
	struct request *requests; /* (n_requests) */
	uint32_t n_requests;
	struct queue commands; /* front to engine; room for 2 a request, so a push never fails */
	struct queue events;   /* engine to front; room for REQUEST_UNDELIVERED_MAX + 2 a request */
	struct engine_limits limits;
};

#endif
