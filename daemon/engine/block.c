#include "daemon/engine/block.h"

#include <math.h>

enum {
	TEMPERATURE_MAX = 100,
	PENALTY_MAX = 10,
};

/* Whether [offset, offset + bytes) lies in the arena. */
static bool in_arena(uint64_t offset, uint64_t bytes, const struct block_context *context)
{
	uint64_t end;

	return offset >= context->arena_off && !__builtin_add_overflow(offset, bytes, &end) &&
	       end <= context->arena_off + context->arena_bytes;
}

bool block_head_check(const struct wire_block *head, uint64_t offset, const struct block_context *context,
		      struct refusal *ret_refusal)
{
	if (head->bytes > WIRE_BLOCK_BYTES_MAX)
		return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, head->bytes, WIRE_BLOCK_BYTES_MAX);
	if (head->bytes < sizeof *head || !in_arena(offset, head->bytes, context))
		return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, head->bytes, context->arena_bytes);
	if (head->version != WIRE_BLOCK_VERSION)
		return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, head->version, WIRE_BLOCK_VERSION);
	if (head->n_tokens == 0)
		return refuse(ret_refusal, WIRE_REASON_NO_TOKENS, 0, 0);
	/* Options are padded to 8 bytes, so that tokens begin at a multiple of 8. */
	if (head->tokens_off < sizeof *head || head->tokens_off > head->bytes || head->tokens_off % 8)
		return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, head->tokens_off, head->bytes);
	if (head->n_tokens > (head->bytes - head->tokens_off) / sizeof(uint32_t))
		return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, head->n_tokens,
			      (head->bytes - head->tokens_off) / sizeof(uint32_t));
	return true;
}

/* Written so that NaN fails: it compares false with everything. */
static bool within(float value, float lower, float upper)
{
	return value >= lower && value <= upper;
}

bool sampling_check(const struct sampling *sampling, struct refusal *ret_refusal)
{
	if (within(sampling->temperature, 0, TEMPERATURE_MAX) && within(sampling->top_p, 0, 1) &&
	    sampling->top_p > 0 && within(sampling->min_p, 0, 1) &&
	    within(sampling->penalty, 0, PENALTY_MAX) && sampling->penalty > 0)
		return true;
	return refuse(ret_refusal, WIRE_REASON_BAD_PARAMETER, 0, 0);
}

static bool list_check(const struct wire_tlv *tlv, size_t entry_bytes, uint32_t most,
		       struct refusal *ret_refusal)
{
	uint32_t n = (uint32_t)(tlv->bytes / entry_bytes);

	if (n == 0 || tlv->bytes % entry_bytes)
		return refuse(ret_refusal, WIRE_REASON_BAD_TLV, tlv->bytes, 0);
	return n <= most || refuse(ret_refusal, WIRE_REASON_BAD_TLV, n, most);
}

static bool take_stop_ids(const struct wire_tlv *tlv, const uint32_t *payload, struct request *request,
			  struct refusal *ret_refusal)
{
	if (!list_check(tlv, sizeof(uint32_t), REQUEST_STOP_MAX, ret_refusal))
		return false;
	request->n_stop = tlv->bytes / sizeof(uint32_t);
	memcpy(request->stop, payload, tlv->bytes);
	return true;
}

static bool take_bias(const struct wire_tlv *tlv, const uint32_t *payload, struct request *request,
		      struct refusal *ret_refusal)
{
	const struct bias_entry *bias = (const struct bias_entry *)payload;

	if (!list_check(tlv, sizeof *bias, WIRE_LIST_MAX, ret_refusal))
		return false;
	request->n_bias = tlv->bytes / sizeof *bias;
	request->bias = bias;
	/* Minus infinity forbids an id; plus infinity would make two of them incomparable. */
	for (uint32_t i = 0; i < request->n_bias; i++)
		if (isnan(bias[i].bias) || bias[i].bias == INFINITY)
			return refuse(ret_refusal, WIRE_REASON_BAD_PARAMETER, i, request->n_bias);
	return true;
}

static bool take_allowed(const struct wire_tlv *tlv, const uint32_t *payload, struct request *request,
			 struct refusal *ret_refusal)
{
	if (!list_check(tlv, sizeof(uint32_t), WIRE_LIST_MAX, ret_refusal))
		return false;
	request->n_allowed = tlv->bytes / sizeof(uint32_t);
	request->allowed = payload;
	for (uint32_t i = 1; i < request->n_allowed; i++)
		if (payload[i] <= payload[i - 1])
			return refuse(ret_refusal, WIRE_REASON_BAD_TLV, payload[i], payload[i - 1]);
	return true;
}

static bool take_candidates(const struct wire_tlv *tlv, const uint32_t *payload, struct request *request,
			    struct refusal *ret_refusal)
{
	if (!list_check(tlv, sizeof(uint32_t), WIRE_LIST_MAX, ret_refusal))
		return false;
	request->n_candidates = tlv->bytes / sizeof(uint32_t);
	request->candidates = payload;
	return true;
}

/* Payload: the count n, n lengths, then as many tokens as the lengths say together. */
static bool take_continuations(const struct wire_tlv *tlv, const uint32_t *payload, struct request *request,
			       struct refusal *ret_refusal)
{
	uint64_t words = tlv->bytes / sizeof(uint32_t), tokens = 0;

	if (tlv->bytes % sizeof(uint32_t) || words < 3)
		return refuse(ret_refusal, WIRE_REASON_BAD_TLV, tlv->bytes, 0);
	if (payload[0] == 0 || payload[0] > WIRE_LIST_MAX || payload[0] > words - 1)
		return refuse(ret_refusal, WIRE_REASON_BAD_TLV, payload[0], WIRE_LIST_MAX);
	for (uint32_t i = 1; i <= payload[0]; i++) {
		if (payload[i] == 0)
			return refuse(ret_refusal, WIRE_REASON_BAD_TLV, 0, 0);
		tokens += payload[i];
	}
	if (tokens != words - 1 - payload[0])
		return refuse(ret_refusal, WIRE_REASON_BAD_TLV, tokens, words - 1 - payload[0]);
	request->n_continuations = payload[0];
	request->continuation_lengths = payload + 1;
	request->continuations = payload + 1 + payload[0];
	return true;
}

static bool take_flags(const struct wire_tlv *tlv, const uint32_t *payload, struct request *request,
		       struct refusal *ret_refusal)
{
	uint32_t known = request->op == WIRE_OP_EMBED ? WIRE_BLOCK_MEAN : WIRE_BLOCK_IGNORE_EOS;

	if (tlv->bytes != sizeof(uint32_t))
		return refuse(ret_refusal, WIRE_REASON_BAD_TLV, tlv->bytes, sizeof(uint32_t));
	if (payload[0] & ~known)
		return refuse(ret_refusal, WIRE_REASON_BAD_FLAG, payload[0], known);
	request->sampling.ignore_eos = payload[0] & WIRE_BLOCK_IGNORE_EOS;
	request->mean = (payload[0] & WIRE_BLOCK_MEAN) != 0;
	return true;
}

typedef bool take_function(const struct wire_tlv *tlv, const uint32_t *payload, struct request *request,
			   struct refusal *ret_refusal);

enum { GENERATE = 1 << WIRE_OP_GENERATE, SCORE = 1 << WIRE_OP_SCORE, EMBED = 1 << WIRE_OP_EMBED };

static const struct {
	take_function *take;
	unsigned ops; /* that take it */
} options[] = {
    [WIRE_TLV_STOP_IDS] = {take_stop_ids, GENERATE},
    [WIRE_TLV_BIAS] = {take_bias, GENERATE},
    [WIRE_TLV_ALLOWED] = {take_allowed, GENERATE},
    [WIRE_TLV_CANDIDATES] = {take_candidates, SCORE},
    [WIRE_TLV_CONTINUATIONS] = {take_continuations, SCORE},
    [WIRE_TLV_FLAGS] = {take_flags, GENERATE | SCORE | EMBED},
};

enum { N_OPTIONS = sizeof options / sizeof options[0] };

static bool option_known(const struct wire_tlv *tlv, uint8_t op, uint32_t seen)
{
	if (tlv->zero || tlv->type >= N_OPTIONS || !options[tlv->type].take || seen & 1U << tlv->type)
		return false;
	return options[tlv->type].ops >> op & 1;
}

static bool padding_is_zero(const uint8_t *bytes, size_t from, size_t to)
{
	while (from < to)
		if (bytes[from++])
			return false;
	return true;
}

/* `list` holds `bytes` of options, one after the other, to its very end. */
static bool parse_options(const uint8_t *list, size_t bytes, uint8_t op, struct request *request,
			  struct refusal *ret_refusal)
{
	uint32_t seen = 0;

	for (size_t at = 0; at < bytes;) {
		struct wire_tlv tlv;
		size_t payload = at + sizeof tlv, end;

		if (bytes - at < sizeof tlv)
			return refuse(ret_refusal, WIRE_REASON_BAD_TLV, bytes - at, sizeof tlv);
		memcpy(&tlv, list + at, sizeof tlv);
		if (!option_known(&tlv, op, seen))
			return refuse(ret_refusal, WIRE_REASON_BAD_TLV, tlv.type, N_OPTIONS - 1);
		if (tlv.bytes > bytes - payload)
			return refuse(ret_refusal, WIRE_REASON_BAD_TLV, tlv.bytes, bytes - payload);
		end = payload + (((size_t)tlv.bytes + 7) & ~(size_t)7);
		if (end > bytes || !padding_is_zero(list, payload + tlv.bytes, end))
			return refuse(ret_refusal, WIRE_REASON_BAD_PADDING, 0, 0);
		if (!options[tlv.type].take(&tlv, (const uint32_t *)(list + payload), request, ret_refusal))
			return false;
		seen |= 1U << tlv.type;
		at = end;
	}
	return true;
}

/* Bytes that the engine will write to the reply area at most; 0: none asked. Of an embedding only the least:
 * its size is the model's (admit.h). */
static uint64_t reply_bytes(const struct request *request)
{
	uint64_t records = 0;

	if (request->op == WIRE_OP_GENERATE && request->logprobs)
		records = (uint64_t)request->max_new * (1 + request->n_logprobs);
	for (uint32_t i = 0; i < request->n_continuations; i++)
		records += request->continuation_lengths[i];
	records += request->n_candidates;
	if (request->op == WIRE_OP_EMBED)
		return sizeof(struct wire_reply) + sizeof(float);
	return records ? sizeof(struct wire_reply) + records * sizeof(struct wire_scored) : 0;
}

/* A reply area beside a generate request asks for log-probabilities: of the chosen token, and of n_logprobs
 * more. */
static bool check_reply(const struct wire_block *head, const struct block_context *context,
			struct request *request, uint64_t *ret_reply_off, struct refusal *ret_refusal)
{
	uint64_t offset = (uint64_t)head->reply_off * 64, needed;

	if (head->n_logprobs > WIRE_LOGPROBS_MAX)
		return refuse(ret_refusal, WIRE_REASON_BAD_PARAMETER, head->n_logprobs, WIRE_LOGPROBS_MAX);
	request->n_logprobs = head->n_logprobs;
	request->logprobs = request->op == WIRE_OP_GENERATE && head->reply_cap > 0;
	request->reply_cap = head->reply_cap;
	needed = reply_bytes(request);
	if ((head->n_logprobs && !request->logprobs) || head->reply_cap < needed)
		return refuse(ret_refusal, WIRE_REASON_BAD_REPLY, head->reply_cap, needed);
	if ((head->reply_cap == 0) != (head->reply_off == 0) ||
	    (head->reply_cap && !in_arena(offset, head->reply_cap, context)))
		return refuse(ret_refusal, WIRE_REASON_BAD_REPLY, head->reply_cap, context->arena_bytes);
	*ret_reply_off = offset;
	return true;
}

static bool check_owner(const struct wire_block *head, const struct block_context *context,
			struct request *request, struct refusal *ret_refusal)
{
	if (head->session || head->adapter)
		return refuse(ret_refusal, WIRE_REASON_NOT_SUPPORTED, 0, 0);
	if (head->tenant && head->tenant != context->uid && !context->may_name_tenants)
		return refuse(ret_refusal, WIRE_REASON_TENANT, head->tenant, context->uid);
	request->tenant = head->tenant ? head->tenant : context->uid;
	return true;
}

static bool check_work(const struct wire_block *head, struct request *request, struct refusal *ret_refusal)
{
	if (request->op == WIRE_OP_GENERATE) {
		request->max_new = head->max_new;
		return head->max_new || refuse(ret_refusal, WIRE_REASON_BAD_MAX_NEW, 0, 0);
	}
	request->max_new = 0;
	if (request->op == WIRE_OP_EMBED)
		return true;
	/* One forward pass answers either question, not both. */
	return !request->n_candidates != !request->n_continuations ||
	       refuse(ret_refusal, WIRE_REASON_BAD_TLV, 0, 0);
}

bool block_parse(const uint8_t *copy, size_t bytes, const struct block_context *context,
		 struct request *ret_request, uint64_t *ret_reply_off, struct refusal *ret_refusal)
{
	struct wire_block head;

	if (bytes < sizeof head)
		return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, bytes, sizeof head);
	memcpy(&head, copy, sizeof head);
	if (head.bytes != bytes || head.tokens_off < sizeof head || head.tokens_off > bytes ||
	    head.tokens_off % 8 || head.n_tokens == 0 ||
	    head.n_tokens > (bytes - head.tokens_off) / sizeof(uint32_t))
		return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, head.bytes, bytes);
	ret_request->op = context->op;
	ret_request->mean = false;
	ret_request->n_stop = ret_request->n_bias = ret_request->n_allowed = 0;
	ret_request->n_candidates = ret_request->n_continuations = 0;
	ret_request->sampling = (struct sampling){
	    .seed = head.seed,
	    .temperature = head.temperature,
	    .top_p = head.top_p,
	    .min_p = head.min_p,
	    .penalty = head.penalty,
	    .top_k = head.top_k,
	};
	ret_request->n_tokens = head.n_tokens;
	ret_request->tokens = (const uint32_t *)(copy + head.tokens_off);
	return check_owner(&head, context, ret_request, ret_refusal) &&
	       sampling_check(&ret_request->sampling, ret_refusal) &&
	       parse_options(copy + sizeof head, head.tokens_off - sizeof head, context->op, ret_request,
			     ret_refusal) &&
	       check_work(&head, ret_request, ret_refusal) &&
	       check_reply(&head, context, ret_request, ret_reply_off, ret_refusal);
}
