/* Judges requests: the private copy of a submission slot, and what a request asks of the model.
 *
 * Thread rule: pure functions; any thread. */
#ifndef TOKENRING_DAEMON_ENGINE_ADMIT_H
#define TOKENRING_DAEMON_ENGINE_ADMIT_H

#include "daemon/engine/block.h"

enum {
	PROFILE_COUNT = 256,
	PROFILE_GREEDY_MAX_NEW =
	    256, /* profile 0, when the slot does not say; less if the context is short */
};

/* Sampling parameters registered under a number. Profile 0, greedy, exists on every channel. */
struct profile {
	struct sampling sampling;
	uint32_t max_new; /* 1 to 65,535 */
	uint32_t n_stop;
	uint32_t stop[REQUEST_STOP_MAX];
};

extern const struct profile profile_greedy;

/* Whether the slot is well-formed: operation, flags, padding, token count, model. Everything but cancel,
 * which has no answer. */
bool admit_slot(const struct wire_submission *slot, struct refusal *ret_refusal);

/* Fills a generate request from a slot without a block. `tokens` ((8), the request's own) receives the
 * prompt. */
void admit_inline(const struct wire_submission *slot, const struct profile *profile, uint32_t *tokens,
		  struct request *ret_request);

/* Tokens below the vocabulary? */
bool admit_tokens(const uint32_t *tokens, uint64_t n, uint32_t vocab, struct refusal *ret_refusal);

/* Whether the model, once ready, can serve the request at all: vocabulary, prompt, reply area, context, KV
 * pool. Shortens max_new to the context if `may_shorten` (the client did not ask for a number). */
bool admit_model(struct request *request, const struct engine_limits *limits, bool may_shorten,
		 struct refusal *ret_refusal);

#endif
