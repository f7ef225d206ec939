#include "daemon/engine/admit.h"

const struct profile profile_greedy = {
    .sampling = {.temperature = 0, .top_p = 1, .min_p = 0, .penalty = 1},
    .max_new = PROFILE_GREEDY_MAX_NEW,
};

static bool tail_is_zero(const struct wire_submission *slot)
{
	uint32_t any = 0;

	for (unsigned i = slot->n_tok; i < WIRE_SLOT_TOKENS; i++)
		any |= slot->tok[i];
	return any == 0;
}

/* Which operations take their request from the slot alone. */
static bool check_tokens_given(const struct wire_submission *slot, struct refusal *ret_refusal)
{
	if (slot->block) {
		if (slot->op == WIRE_OP_ECHO || slot->n_tok)
			return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, slot->n_tok, 0);
		return true;
	}
	if (slot->op == WIRE_OP_SCORE || slot->op == WIRE_OP_EMBED)
		return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, 0, 0);
	return slot->n_tok || refuse(ret_refusal, WIRE_REASON_NO_TOKENS, 0, 0);
}

bool admit_slot(const struct wire_submission *slot, struct refusal *ret_refusal)
{
	if (slot->op < WIRE_OP_GENERATE || slot->op > WIRE_OP_SESSION_FORK || slot->op == WIRE_OP_CANCEL)
		return refuse(ret_refusal, WIRE_REASON_BAD_OP, slot->op, WIRE_OP_SESSION_FORK);
	if (slot->op == WIRE_OP_SESSION_FORK)
		return refuse(ret_refusal, WIRE_REASON_NOT_SUPPORTED, slot->op, 0);
	if (slot->flags & ~WIRE_FLAG_PRIORITY)
		return refuse(ret_refusal, WIRE_REASON_BAD_FLAG, slot->flags, WIRE_FLAG_PRIORITY);
	if (slot->n_tok > WIRE_SLOT_TOKENS)
		return refuse(ret_refusal, WIRE_REASON_BAD_PADDING, slot->n_tok, WIRE_SLOT_TOKENS);
	if (!tail_is_zero(slot))
		return refuse(ret_refusal, WIRE_REASON_BAD_PADDING, 0, 0);
	if (slot->model)
		return refuse(ret_refusal, WIRE_REASON_BAD_MODEL, slot->model, 0);
	return check_tokens_given(slot, ret_refusal);
}

void admit_inline(const struct wire_submission *slot, const struct profile *profile, uint32_t *tokens,
		  struct request *ret_request)
{
	memcpy(tokens, slot->tok, sizeof slot->tok);
	ret_request->op = slot->op;
	ret_request->mean = false;
	ret_request->tokens = tokens;
	ret_request->n_tokens = slot->n_tok;
	ret_request->max_new = slot->max_new ? slot->max_new : profile->max_new;
	ret_request->sampling = profile->sampling;
	ret_request->n_stop = profile->n_stop;
	memcpy(ret_request->stop, profile->stop, profile->n_stop * sizeof profile->stop[0]);
	ret_request->n_bias = ret_request->n_allowed = 0;
	ret_request->n_candidates = ret_request->n_continuations = 0;
	ret_request->n_logprobs = ret_request->logprobs = 0;
	ret_request->reply = NULL;
	ret_request->reply_cap = 0;
}

bool admit_tokens(const uint32_t *tokens, uint64_t n, uint32_t vocab, struct refusal *ret_refusal)
{
	for (uint64_t i = 0; i < n; i++)
		if (tokens[i] >= vocab)
			return refuse(ret_refusal, WIRE_REASON_BAD_TOKEN, tokens[i], vocab);
	return true;
}

static uint64_t continuation_tokens(const struct request *request, uint32_t *ret_longest)
{
	uint64_t sum = 0;

	*ret_longest = 0;
	for (uint32_t i = 0; i < request->n_continuations; i++) {
		uint32_t length = request->continuation_lengths[i];

		sum += length;
		*ret_longest = length > *ret_longest ? length : *ret_longest;
	}
	return sum;
}

static bool admit_lists(const struct request *request, uint64_t continuations, uint32_t vocab,
			struct refusal *ret_refusal)
{
	for (uint32_t i = 0; i < request->n_bias; i++)
		if (request->bias[i].id >= vocab)
			return refuse(ret_refusal, WIRE_REASON_BAD_TOKEN, request->bias[i].id, vocab);
	return admit_tokens(request->tokens, request->n_tokens, vocab, ret_refusal) &&
	       admit_tokens(request->stop, request->n_stop, vocab, ret_refusal) &&
	       admit_tokens(request->allowed, request->n_allowed, vocab, ret_refusal) &&
	       admit_tokens(request->candidates, request->n_candidates, vocab, ret_refusal) &&
	       admit_tokens(request->continuations, continuations, vocab, ret_refusal);
}

bool admit_model(struct request *request, const struct engine_limits *limits, bool may_shorten,
		 struct refusal *ret_refusal)
{
	uint32_t longest;
	uint64_t continuations = continuation_tokens(request, &longest), total;

	if (!admit_lists(request, continuations, limits->vocab, ret_refusal))
		return false;
	if (request->n_tokens > limits->max_prompt)
		return refuse(ret_refusal, WIRE_REASON_PROMPT_TOO_LONG, request->n_tokens,
			      limits->max_prompt);
	if (request->op == WIRE_OP_EMBED && request->reply_cap < embedding_bytes(limits->width))
		return refuse(ret_refusal, WIRE_REASON_BAD_REPLY, request->reply_cap,
			      embedding_bytes(limits->width));
	if (may_shorten && request->n_tokens < limits->context &&
	    request->max_new > limits->context - request->n_tokens)
		request->max_new = limits->context - request->n_tokens;
	total = (uint64_t)request->n_tokens + (request->op == WIRE_OP_SCORE ? longest : request->max_new);
	if (total > limits->context)
		return refuse(ret_refusal, WIRE_REASON_CONTEXT, total, limits->context);
	if (total > limits->kv_tokens)
		return refuse(ret_refusal, WIRE_REASON_KV_NEVER_FITS, total, limits->kv_tokens);
	return true;
}
