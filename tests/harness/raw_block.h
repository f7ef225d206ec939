/* A request block in a raw client's arena: right in all parts, for a test to break one.
 *
 * Thread rule: that of the client. */
#ifndef TOKENRING_TESTS_HARNESS_RAW_BLOCK_H
#define TOKENRING_TESTS_HARNESS_RAW_BLOCK_H

#include "tests/harness/raw_client.h"

/* At `unit` x 64 bytes from the arena's start; its tokens are zeros. */
static inline struct wire_block raw_block(uint32_t n_tokens, uint32_t max_new)
{
	return (struct wire_block){
	    .bytes = (uint32_t)sizeof(struct wire_block) + n_tokens * 4,
	    .version = WIRE_BLOCK_VERSION,
	    .n_tokens = n_tokens,
	    .tokens_off = sizeof(struct wire_block),
	    .max_new = max_new,
	    .top_p = 1,
	    .penalty = 1,
	};
}

/* A slot that asks for it. */
static inline struct wire_submission raw_slot_with(struct raw_client *client, uint32_t index, uint32_t unit,
						   const struct wire_block *block)
{
	struct wire_submission slot = raw_slot(client, WIRE_OP_GENERATE, index);

	memcpy(client->segment.base + client->layout.arena_off + (uint64_t)unit * 64, block, sizeof *block);
	slot.n_tok = 0;
	slot.max_new = 0;
	slot.tok[0] = 0;
	slot.block = (uint32_t)(client->layout.arena_off / 64 + unit);
	return slot;
}

#endif
