/* Building a request block, with its options and its reply area, in the arena. */
#include <errno.h>
#include <string.h>

#include "libclient/client.h"

enum { EXTRA_BYTES_LEAST = 16, SAMPLING_BYTES_LEAST = offsetof(struct tr_sampling, ignore_eos) };

/* What goes into a block, gathered before its size is known. */
struct plan {
	struct tr_request_extra extra;
	struct tr_sampling sampling;
	const uint32_t *tokens, *stop_ids;
	uint32_t n_tokens, n_stop_ids, max_new;
	uint32_t flags;
	uint32_t n_continued; /* tokens of all continuations */
	uint32_t tokens_off, bytes;
	uint32_t reply_bytes, records; /* reply_bytes 0: none */
};

static const struct tr_sampling greedy = {.top_p = 1, .penalty = 1};

static uint64_t option_bytes(uint64_t payload)
{
	return payload ? sizeof(struct wire_tlv) + ((payload + 7) & ~UINT64_C(7)) : 0;
}

/* What only embedding takes is wrong elsewhere, and it takes nothing of what changes or stops tokens. */
static int plan_pool(struct plan *plan, uint8_t op)
{
	const struct tr_request_extra *extra = &plan->extra;

	if (op != TR_EMBED)
		return extra->pool || extra->n_embedding ? -EINVAL : 0;
	if (extra->pool > TR_POOL_MEAN || extra->n_embedding == 0 || extra->sampling || extra->n_stop_ids ||
	    extra->n_bias || extra->n_allowed || extra->n_candidates || extra->n_continuations ||
	    extra->logprobs || extra->n_logprobs)
		return -EINVAL;
	plan->sampling = greedy;
	plan->n_stop_ids = 0;
	plan->flags = extra->pool == TR_POOL_MEAN ? WIRE_BLOCK_MEAN : 0;
	return 0;
}

static int plan_sampling(struct plan *plan, const struct profile *profile)
{
	plan->sampling = profile ? profile->sampling : greedy;
	if (plan->extra.sampling && copy_versioned(&plan->sampling, sizeof plan->sampling,
						   plan->extra.sampling, SAMPLING_BYTES_LEAST) < 0)
		return -EINVAL;
	if (plan->sampling.reserved || plan->sampling.ignore_eos > 1)
		return -EINVAL;
	plan->flags = plan->sampling.ignore_eos ? WIRE_BLOCK_IGNORE_EOS : 0;
	plan->stop_ids = plan->extra.stop_ids;
	plan->n_stop_ids = plan->extra.n_stop_ids;
	if (profile && plan->n_stop_ids == 0) {
		plan->stop_ids = profile->stop_ids;
		plan->n_stop_ids = profile->n_stop_ids;
	}
	return 0;
}

/* max_new: the block's, else the request's, else the profile's; only generating needs one. */
static int plan_length(struct plan *plan, const struct tr_request *request, const struct profile *profile)
{
	plan->max_new = plan->extra.max_new ? plan->extra.max_new : request->max_new;
	if (plan->max_new == 0 && profile)
		plan->max_new = profile->max_new;
	if (plan->max_new == 0 && request->op == TR_GENERATE)
		return -EINVAL;
	if (plan->max_new == 0)
		plan->max_new = 1;
	return 0;
}

static int plan_lists(struct plan *plan, const struct tr_request *request)
{
	const struct tr_request_extra *extra = &plan->extra;
	uint64_t n_continued = 0;

	plan->tokens = extra->n_tokens ? extra->tokens : request->tokens;
	plan->n_tokens = extra->n_tokens ? extra->n_tokens : request->n_tokens;
	if ((extra->n_tokens && !extra->tokens) || (plan->n_stop_ids && !plan->stop_ids) ||
	    (extra->n_bias && !extra->bias) || (extra->n_allowed && !extra->allowed) ||
	    (extra->n_candidates && !extra->candidates) ||
	    (extra->n_continuations && (!extra->continuation_lengths || !extra->continuations)))
		return -EINVAL;
	if (plan->n_stop_ids > WIRE_LIST_MAX || extra->n_bias > WIRE_LIST_MAX ||
	    extra->n_allowed > WIRE_LIST_MAX || extra->n_candidates > WIRE_LIST_MAX ||
	    extra->n_continuations > WIRE_LIST_MAX || extra->n_logprobs > WIRE_LOGPROBS_MAX ||
	    extra->logprobs > 1 || extra->reserved)
		return -EINVAL;
	for (uint32_t i = 0; i < extra->n_continuations; i++)
		n_continued += extra->continuation_lengths[i];
	if (n_continued > WIRE_BLOCK_BYTES_MAX / sizeof(uint32_t))
		return -E2BIG;
	plan->n_continued = (uint32_t)n_continued;
	return 0;
}

static int plan_reply(struct plan *plan, uint8_t op)
{
	uint64_t records = 0;
	size_t record_bytes = op == TR_EMBED ? sizeof(float) : sizeof(struct wire_scored);

	plan->records = op != TR_EMBED;
	if (op == TR_EMBED) {
		records = plan->extra.n_embedding;
	} else if (op == TR_SCORE) {
		if (plan->extra.n_candidates && plan->extra.n_continuations)
			return -EINVAL;
		records = plan->extra.n_candidates + (uint64_t)plan->n_continued;
	} else if (op == TR_GENERATE && (plan->extra.logprobs || plan->extra.n_logprobs)) {
		plan->records = 1 + plan->extra.n_logprobs;
		records = (uint64_t)plan->max_new * plan->records;
	}
	if (records > WIRE_BLOCK_BYTES_MAX)
		return -E2BIG;
	plan->reply_bytes = records ? (uint32_t)(sizeof(struct wire_reply) + records * record_bytes) : 0;
	return 0;
}

static int plan_size(struct plan *plan)
{
	const struct tr_request_extra *extra = &plan->extra;
	uint64_t continued =
	    extra->n_continuations
		? sizeof(uint32_t) * (1 + (uint64_t)extra->n_continuations + plan->n_continued)
		: 0;
	uint64_t tokens_off = sizeof(struct wire_block) + option_bytes(plan->n_stop_ids * sizeof(uint32_t)) +
			      option_bytes(extra->n_bias * sizeof(struct tr_bias)) +
			      option_bytes(extra->n_allowed * sizeof(uint32_t)) +
			      option_bytes(extra->n_candidates * sizeof(uint32_t)) + option_bytes(continued) +
			      option_bytes(plan->flags ? sizeof plan->flags : 0);
	uint64_t bytes = tokens_off + (uint64_t)plan->n_tokens * sizeof(uint32_t);

	if (bytes > WIRE_BLOCK_BYTES_MAX)
		return -E2BIG;
	plan->tokens_off = (uint32_t)tokens_off;
	plan->bytes = (uint32_t)bytes;
	return 0;
}

static int plan_block(struct plan *plan, const struct tr_client *client, const struct tr_request *request)
{
	const struct profile *profile = client->profiles[request->profile];
	int error = copy_versioned(&plan->extra, sizeof plan->extra, request->extra, EXTRA_BYTES_LEAST);

	if (request->profile && !profile)
		return -EINVAL;
	if (error == 0)
		error = plan_sampling(plan, profile);
	if (error == 0)
		error = plan_pool(plan, request->op);
	if (error == 0)
		error = plan_length(plan, request, profile);
	if (error == 0)
		error = plan_lists(plan, request);
	if (error == 0)
		error = plan_reply(plan, request->op);
	return error == 0 ? plan_size(plan) : error;
}

static unsigned char *put(unsigned char *at, const void *from, size_t bytes)
{
	if (bytes)
		memcpy(at, from, bytes);
	return at + bytes;
}

static unsigned char *put_padding(unsigned char *at, size_t payload)
{
	size_t padding = -payload & 7;

	memset(at, 0, padding);
	return at + padding;
}

static unsigned char *put_option(unsigned char *at, uint16_t type, const void *from, size_t bytes)
{
	struct wire_tlv option = {.type = type, .bytes = (uint32_t)bytes};

	if (bytes == 0)
		return at;
	at = put(at, &option, sizeof option);
	at = put(at, from, bytes);
	return put_padding(at, bytes);
}

static unsigned char *put_continuations(unsigned char *at, const struct plan *plan)
{
	const struct tr_request_extra *extra = &plan->extra;
	size_t bytes = sizeof(uint32_t) * (1 + (size_t)extra->n_continuations + plan->n_continued);
	struct wire_tlv option = {.type = WIRE_TLV_CONTINUATIONS, .bytes = (uint32_t)bytes};

	if (extra->n_continuations == 0)
		return at;
	at = put(at, &option, sizeof option);
	at = put(at, &extra->n_continuations, sizeof extra->n_continuations);
	at = put(at, extra->continuation_lengths, sizeof(uint32_t) * extra->n_continuations);
	at = put(at, extra->continuations, sizeof(uint32_t) * plan->n_continued);
	return put_padding(at, bytes);
}

static void write_block(unsigned char *at, const struct plan *plan, uint32_t reply_units)
{
	const struct tr_request_extra *extra = &plan->extra;
	const struct tr_sampling *sampling = &plan->sampling;
	struct wire_block block = {
	    .bytes = plan->bytes,
	    .version = WIRE_BLOCK_VERSION,
	    .n_tokens = plan->n_tokens,
	    .tokens_off = plan->tokens_off,
	    .max_new = plan->max_new,
	    .session = extra->session,
	    .tenant = extra->tenant,
	    .adapter = extra->adapter,
	    .seed = sampling->seed,
	    .temperature = sampling->temperature,
	    .top_p = sampling->top_p,
	    .min_p = sampling->min_p,
	    .penalty = sampling->penalty,
	    .top_k = sampling->top_k,
	    .n_logprobs = extra->n_logprobs,
	    .reply_off = reply_units,
	    .reply_cap = plan->reply_bytes,
	};

	at = put(at, &block, sizeof block);
	at = put_option(at, WIRE_TLV_STOP_IDS, plan->stop_ids, plan->n_stop_ids * sizeof(uint32_t));
	at = put_option(at, WIRE_TLV_BIAS, extra->bias, extra->n_bias * sizeof(struct tr_bias));
	at = put_option(at, WIRE_TLV_ALLOWED, extra->allowed, extra->n_allowed * sizeof(uint32_t));
	at = put_option(at, WIRE_TLV_CANDIDATES, extra->candidates, extra->n_candidates * sizeof(uint32_t));
	at = put_continuations(at, plan);
	at = put_option(at, WIRE_TLV_FLAGS, &plan->flags, plan->flags ? sizeof plan->flags : 0);
	put(at, plan->tokens, (size_t)plan->n_tokens * sizeof(uint32_t));
}

static uint32_t units(uint32_t bytes)
{
	return bytes / ARENA_UNIT_BYTES + (bytes % ARENA_UNIT_BYTES != 0);
}

int block_build(struct tr_client *client, const struct tr_request *request, struct flight *flight)
{
	struct plan plan = {0};
	int error = plan_block(&plan, client, request);
	uint32_t first, block_units, all_units, reply_units = 0;
	uint64_t arena_units = client->layout.arena_off / ARENA_UNIT_BYTES;

	if (error < 0)
		return error;
	block_units = units(plan.bytes);
	all_units = block_units + units(plan.reply_bytes);
	if (all_units > client->arena.n_units)
		return -E2BIG;
	first = arena_take(&client->arena, all_units);
	if (first == ARENA_NONE)
		return -EAGAIN;
	if (plan.reply_bytes)
		reply_units = (uint32_t)arena_units + first + block_units;
	flight->block = first + 1;
	flight->reply_off = reply_units;
	flight->reply_cap = plan.reply_bytes;
	flight->records = plan.records;
	write_block(client->segment.base + (arena_units + first) * ARENA_UNIT_BYTES, &plan, reply_units);
	return 0;
}
