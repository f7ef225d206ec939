/* Parses request blocks: a pure function of a private copy and its length.
 *
 * The bytes come from a hostile client. Whatever is wrong is refused with a reason of its own and, for sizes,
 * the numbers. What depends on the model (vocabulary, context) is checked by admit.h, because a block may
 * arrive before the model is loaded.
 *
 * Thread rule: any thread; no state, no allocation, no system call. Source of the format: shm/wire.h. */
#ifndef TOKENRING_DAEMON_ENGINE_BLOCK_H
#define TOKENRING_DAEMON_ENGINE_BLOCK_H

#include "daemon/engine/request.h"

/* Why a request was refused: what a REFUSED completion carries. */
struct refusal {
	uint32_t reason; /* enum wire_reason; NONE: not refused */
	uint32_t asked, limit;
	uint64_t predicted_ns, retry_ns;
};

/* Writes the refusal and returns false, so that a check reads `return refuse(...)`. */
static inline bool refuse(struct refusal *refusal, uint32_t reason, uint64_t asked, uint64_t limit)
{
	*refusal = (struct refusal){
	    .reason = reason,
	    .asked = asked > UINT32_MAX ? UINT32_MAX : (uint32_t)asked,
	    .limit = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit,
	};
	return false;
}

/* What the parser may know of the channel and of the request. */
struct block_context {
	uint64_t arena_off, arena_bytes; /* of the channel; from the daemon's private copy of the layout */
	uint32_t uid;
	bool may_name_tenants;
	uint8_t op; /* WIRE_OP_GENERATE, WIRE_OP_SCORE or WIRE_OP_EMBED */
};

/* Whether `head`, copied from the arena at `offset`, describes a block that lies in the arena, whose parts
 * lie within it: what must hold before the rest may be copied. */
bool block_head_check(const struct wire_block *head, uint64_t offset, const struct block_context *context,
		      struct refusal *ret_refusal);

/* Parses `copy`, 8-aligned, head->bytes long, whose head passed block_head_check. On success sets in
 * *ret_request n_tokens, max_new, tenant, sampling, logprobs and all lists (pointers into `copy`, which must
 * outlive the request) and reply_cap, and in *ret_reply_off the offset of the reply area from the channel's
 * start, 0: none. On refusal *ret_request is half written. */
bool block_parse(const uint8_t *copy, size_t bytes, const struct block_context *context,
		 struct request *ret_request, uint64_t *ret_reply_off, struct refusal *ret_refusal);

/* Sampling parameters from any source: numbers, in range. Shared with profiles. */
bool sampling_check(const struct sampling *sampling, struct refusal *ret_refusal);

#endif
