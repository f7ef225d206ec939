/* The echo of a well-formed slot, from words to words.
 *
 * A round trip is made of this path, so it never takes a slot apart into a struct: fields stored narrow and
 * then read as words, or the other way about, wait until the stores have left the core's buffer. Whatever is
 * not plainly in order is left to pickup.c, which says what is wrong with it.
 *
 * Thread rule: the front's thread. Words are those of a private copy of a slot (shm/wire.h). */
#ifndef TOKENRING_DAEMON_ENGINE_ECHO_H
#define TOKENRING_DAEMON_ENGINE_ECHO_H

#include "daemon/engine/front_internal.h"

enum { ECHO_OP_SHIFT = 32, ECHO_TOKENS_SHIFT = 40, ECHO_FLAGS_SHIFT = 48, ECHO_FIRST_TOKEN_WORD = 4 };

/* What must be zero behind n tokens. */
static const uint64_t echo_tails[WIRE_SLOT_TOKENS + 1][4] = {
#define HIGH (UINT64_MAX << 32)
#define BOTH UINT64_MAX
    {BOTH, BOTH, BOTH, BOTH}, {HIGH, BOTH, BOTH, BOTH}, {0, BOTH, BOTH, BOTH},
    {0, HIGH, BOTH, BOTH},    {0, 0, BOTH, BOTH},       {0, 0, HIGH, BOTH},
    {0, 0, 0, BOTH},          {0, 0, 0, HIGH},          {0, 0, 0, 0},
#undef HIGH
#undef BOTH
};

/* Operation, 1 to 8 tokens, priority, profile 0; no deadline, block or model; zeros behind the tokens. */
static inline bool echo_is_plain(const uint64_t words[8])
{
	const uint64_t allowed = UINT64_C(15) << ECHO_TOKENS_SHIFT | (uint64_t)WIRE_FLAG_PRIORITY
									 << ECHO_FLAGS_SHIFT;
	uint64_t n = words[0] >> ECHO_TOKENS_SHIFT & 15;
	const uint64_t *tail, *tokens = words + ECHO_FIRST_TOKEN_WORD;

	if (((words[0] & ~allowed) >> ECHO_OP_SHIFT) != WIRE_OP_ECHO || n - 1 >= WIRE_SLOT_TOKENS)
		return false;
	tail = echo_tails[n];
	return (words[2] | words[3] << 16 | (tokens[0] & tail[0]) | (tokens[1] & tail[1]) |
		(tokens[2] & tail[2]) | (tokens[3] & tail[3])) == 0;
}

/* The highest bit of a difference tells a token that is not below the vocabulary. */
static inline bool echo_tokens_known(const uint64_t tokens[4], uint64_t vocab)
{
	uint64_t last = vocab - 1, any = 0;

	for (int i = 0; i < 4; i++)
		any |= (last - (uint32_t)tokens[i]) | (last - (tokens[i] >> 32));
	return any >> 63 == 0;
}

static inline bool echo_id_in_order(const struct channel *channel, uint64_t id)
{
	return channel_lookup_free(channel, id) && id >> 16 > channel->last_order;
}

/* Answers the slot if it is an echo with nothing wrong; there is room for the answer. False: nothing was
 * done. */
static inline bool echo_at_once(struct front *front, struct channel *channel, const uint64_t words[8])
{
	const struct engine_limits *limits = &front->link->limits;
	const uint64_t *tokens = words + ECHO_FIRST_TOKEN_WORD;
	uint64_t n = words[0] >> ECHO_TOKENS_SHIFT & 15;

	if (!echo_is_plain(words) || !echo_id_in_order(channel, words[1]) || front->draining)
		return false;
	/* Acquire: pairs with the engine's release; the vocabulary is visible with READY. */
	if (load_acquire_u32(&limits->state) == WIRE_MODEL_READY && !echo_tokens_known(tokens, limits->vocab))
		return false;
	channel->last_order = words[1] >> 16;
	deliver(front, channel,
		(const uint64_t[8]){(uint64_t)WIRE_KIND_ECHO << ECHO_OP_SHIFT | n << ECHO_TOKENS_SHIFT,
				    words[1], 0, 0, tokens[0], tokens[1], tokens[2], tokens[3]});
	count(&front->counts.echoes, 1);
	return true;
}

#endif
