/* Request blocks: what a valid one means, and that every way to break one is refused with its own reason. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/admit.h"
#include "daemon/engine/block.h"

enum { ARENA_OFF = 81920, ARENA_BYTES = 65536, BLOCK_AT = ARENA_OFF + 128, REPLY_AT = ARENA_OFF + 8192 };

struct built {
	_Alignas(64) uint8_t bytes[4096];
	uint32_t used; /* options so far, from byte 72 */
};

static struct wire_block *head(struct built *built)
{
	return (struct wire_block *)built->bytes;
}

static uint8_t *add_option(struct built *built, uint16_t type, const void *payload, uint32_t bytes)
{
	uint8_t *at = built->bytes + sizeof(struct wire_block) + built->used;
	struct wire_tlv tlv = {.type = type, .bytes = bytes};

	memcpy(at, &tlv, sizeof tlv);
	if (bytes)
		memcpy(at + sizeof tlv, payload, bytes);
	built->used += (uint32_t)sizeof tlv + ((bytes + 7) & ~7u);
	return at;
}

static const uint32_t prompt[] = {5, 6, 7, 8, 9};

static void finish(struct built *built)
{
	struct wire_block *block = head(built);

	block->tokens_off = (uint32_t)sizeof *block + built->used;
	block->n_tokens = 5;
	block->bytes = block->tokens_off + (uint32_t)sizeof prompt;
	memcpy(built->bytes + block->tokens_off, prompt, sizeof prompt);
}

static void begin(struct built *built)
{
	memset(built, 0, sizeof *built);
	*head(built) = (struct wire_block){
	    .version = WIRE_BLOCK_VERSION,
	    .max_new = 20,
	    .seed = 99,
	    .temperature = 0.7f,
	    .top_p = 0.9f,
	    .min_p = 0.1f,
	    .penalty = 1.1f,
	    .top_k = 40,
	    .n_logprobs = 3,
	    .reply_off = REPLY_AT / 64,
	    .reply_cap = 16 + 20 * 4 * 8,
	};
}

static const uint32_t stop_ids[] = {11, 12, 13}, allowed[] = {1, 5, 900};
static const struct bias_entry bias[] = {{3, 1.5f}, {4, -INFINITY}};

static void build_generate(struct built *built)
{
	uint32_t flags = WIRE_BLOCK_IGNORE_EOS;

	begin(built);
	add_option(built, WIRE_TLV_STOP_IDS, stop_ids, sizeof stop_ids);
	add_option(built, WIRE_TLV_BIAS, bias, sizeof bias);
	add_option(built, WIRE_TLV_ALLOWED, allowed, sizeof allowed);
	add_option(built, WIRE_TLV_FLAGS, &flags, sizeof flags);
	finish(built);
}

static void build_score(struct built *built, uint16_t type, const void *payload, uint32_t bytes,
			uint32_t records)
{
	begin(built);
	head(built)->max_new = 0;
	head(built)->n_logprobs = 0;
	head(built)->reply_cap = 16 + records * 8;
	add_option(built, type, payload, bytes);
	finish(built);
}

static struct block_context context = {
    .arena_off = ARENA_OFF, .arena_bytes = ARENA_BYTES, .uid = 1000, .op = WIRE_OP_GENERATE};

/* What the front does: the head first, then the whole. */
static uint32_t reason_of(const struct built *built, uint8_t op, struct request *request)
{
	struct refusal refusal = {0};
	uint64_t reply_off;
	struct wire_block first;
	uint8_t *exact;

	context.op = op;
	memcpy(&first, built->bytes, sizeof first);
	if (!block_head_check(&first, BLOCK_AT, &context, &refusal))
		return refusal.reason;
	assert_true(first.bytes <= ARENA_BYTES);
	/* An exact copy lets AddressSanitizer see a read one byte past the block. */
	exact = aligned_alloc(8, (first.bytes + 7) & ~7u);
	memcpy(exact, built->bytes, first.bytes < sizeof built->bytes ? first.bytes : sizeof built->bytes);
	if (block_parse(exact, first.bytes, &context, request, &reply_off, &refusal))
		assert_int_equal(refusal.reason, WIRE_REASON_NONE);
	else
		assert_int_not_equal(refusal.reason, WIRE_REASON_NONE);
	free(exact);
	return refusal.reason;
}

#define assert_reason(built, op, expected)                                                 \
	do {                                                                               \
		struct request request_ = {0};                                             \
		assert_int_equal(reason_of(built, op, &request_), WIRE_REASON_##expected); \
	} while (0)

static void test_valid(void **state)
{
	struct built built;
	struct request request = {0};
	struct refusal refusal = {0};
	uint64_t reply_off = 0;

	(void)state;
	build_generate(&built);
	context.op = WIRE_OP_GENERATE;
	assert_true(block_head_check(head(&built), BLOCK_AT, &context, &refusal));
	assert_true(block_parse(built.bytes, head(&built)->bytes, &context, &request, &reply_off, &refusal));
	assert_int_equal(request.n_tokens, 5);
	assert_memory_equal(request.tokens, prompt, sizeof prompt);
	assert_int_equal(request.max_new, 20);
	assert_int_equal(request.tenant, 1000);
	assert_int_equal(request.sampling.seed, 99);
	assert_int_equal(request.sampling.top_k, 40);
	assert_true(request.sampling.temperature == 0.7f && request.sampling.min_p == 0.1f);
	assert_int_equal(request.sampling.ignore_eos, 1);
	assert_int_equal(request.n_stop, 3);
	assert_memory_equal(request.stop, stop_ids, sizeof stop_ids);
	assert_int_equal(request.n_bias, 2);
	assert_memory_equal(request.bias, bias, sizeof bias);
	assert_int_equal(request.n_allowed, 3);
	assert_memory_equal(request.allowed, allowed, sizeof allowed);
	assert_int_equal(request.logprobs, 1);
	assert_int_equal(request.n_logprobs, 3);
	assert_int_equal(request.reply_cap, 16 + 20 * 4 * 8);
	assert_int_equal(reply_off, REPLY_AT);
}

static void test_score(void **state)
{
	static const uint32_t candidates[] = {4, 4, 2}, continuations[] = {2, 1, 3, 50, 60, 61, 62};
	struct built built;
	struct request request = {0};

	(void)state;
	build_score(&built, WIRE_TLV_CANDIDATES, candidates, sizeof candidates, 3);
	assert_int_equal(reason_of(&built, WIRE_OP_SCORE, &request), 0);
	assert_int_equal(request.n_candidates, 3);
	assert_int_equal(request.logprobs, 0);
	head(&built)->reply_cap--;
	assert_reason(&built, WIRE_OP_SCORE, BAD_REPLY);
	build_score(&built, WIRE_TLV_CANDIDATES, candidates, sizeof candidates, 3);
	assert_reason(&built, WIRE_OP_GENERATE, BAD_TLV);

	build_score(&built, WIRE_TLV_CONTINUATIONS, continuations, sizeof continuations, 4);
	assert_int_equal(reason_of(&built, WIRE_OP_SCORE, &request), 0);
	assert_int_equal(request.n_continuations, 2);
	head(&built)->reply_cap--;
	assert_reason(&built, WIRE_OP_SCORE, BAD_REPLY);

	begin(&built);
	head(&built)->n_logprobs = 0;
	finish(&built);
	assert_reason(&built, WIRE_OP_SCORE, BAD_TLV); /* neither */
	begin(&built);
	head(&built)->n_logprobs = 0;
	add_option(&built, WIRE_TLV_CANDIDATES, candidates, sizeof candidates);
	add_option(&built, WIRE_TLV_CONTINUATIONS, continuations, sizeof continuations);
	finish(&built);
	assert_reason(&built, WIRE_OP_SCORE, BAD_TLV); /* both */
	begin(&built);
	head(&built)->n_logprobs = 0;
	add_option(&built, WIRE_TLV_CANDIDATES, candidates, sizeof candidates);
	add_option(&built, WIRE_TLV_STOP_IDS, stop_ids, sizeof stop_ids);
	finish(&built);
	assert_reason(&built, WIRE_OP_SCORE, BAD_TLV);
}

/* An embedding takes the choice of pooling, and nothing else. */
static void test_embed(void **state)
{
	static const uint32_t mean = WIRE_BLOCK_MEAN, other = WIRE_BLOCK_IGNORE_EOS, both = 3, beyond = 4;
	struct built built;
	struct request request = {.mean = true};

	(void)state;
	begin(&built);
	head(&built)->max_new = head(&built)->n_logprobs = 0;
	finish(&built);
	assert_int_equal(reason_of(&built, WIRE_OP_EMBED, &request), 0);
	assert_false(request.mean);
	assert_int_equal(request.max_new, 0);
	assert_int_equal(request.logprobs, 0);
	head(&built)->n_logprobs = 1;
	assert_reason(&built, WIRE_OP_EMBED, BAD_REPLY);
	head(&built)->n_logprobs = 0;
	head(&built)->reply_cap = 16 + 3;
	assert_reason(&built, WIRE_OP_EMBED, BAD_REPLY);
	head(&built)->reply_cap = head(&built)->reply_off = 0;
	assert_reason(&built, WIRE_OP_EMBED, BAD_REPLY);
	build_score(&built, WIRE_TLV_FLAGS, &mean, sizeof mean, 100);
	assert_int_equal(reason_of(&built, WIRE_OP_EMBED, &request), 0);
	assert_true(request.mean);
	assert_reason(&built, WIRE_OP_GENERATE, BAD_FLAG);
	assert_reason(&built, WIRE_OP_SCORE, BAD_FLAG);
	build_score(&built, WIRE_TLV_FLAGS, &other, sizeof other, 100);
	assert_reason(&built, WIRE_OP_EMBED, BAD_FLAG);
	build_score(&built, WIRE_TLV_FLAGS, &both, sizeof both, 100);
	assert_reason(&built, WIRE_OP_EMBED, BAD_FLAG);
	build_score(&built, WIRE_TLV_FLAGS, &beyond, sizeof beyond, 100);
	assert_reason(&built, WIRE_OP_EMBED, BAD_FLAG);
	build_score(&built, WIRE_TLV_STOP_IDS, stop_ids, sizeof stop_ids, 100);
	assert_reason(&built, WIRE_OP_EMBED, BAD_TLV);
	build_score(&built, WIRE_TLV_CANDIDATES, stop_ids, sizeof stop_ids, 100);
	assert_reason(&built, WIRE_OP_EMBED, BAD_TLV);
}

static void test_continuation_shapes(void **state)
{
	static const struct {
		uint32_t words[6], n;
	} bad[] = {
	    {{0, 1, 2}, 3},
	    {{1, 0, 2}, 3},
	    {{1, 2, 7}, 3},
	    {{1, 1, 7, 8}, 4},
	    {{3, 1, 1}, 3},
	    {{UINT32_MAX, 1, 1}, 3},
	    {{2, UINT32_MAX, 2, 7}, 4},
	    {{1, 1}, 2},
	    {{2, 1, 1, 7}, 4},
	};
	struct built built;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		build_score(&built, WIRE_TLV_CONTINUATIONS, bad[i].words, bad[i].n * 4, 100);
		assert_reason(&built, WIRE_OP_SCORE, BAD_TLV);
	}
	build_score(&built, WIRE_TLV_CONTINUATIONS, bad[0].words, 13, 100);
	assert_reason(&built, WIRE_OP_SCORE, BAD_TLV);
}

#define breaks(change, expected)                                   \
	do {                                                       \
		build_generate(&built);                            \
		change;                                            \
		assert_reason(&built, WIRE_OP_GENERATE, expected); \
	} while (0)

static void test_head_fields(void **state)
{
	struct built built;
	struct wire_block *block = head(&built);

	(void)state;
	breaks(block->bytes = 0, BAD_BLOCK);
	breaks(block->bytes = 71, BAD_BLOCK);
	breaks(block->bytes = UINT32_MAX, BAD_BLOCK);
	breaks(block->bytes = WIRE_BLOCK_BYTES_MAX, BAD_BLOCK);
	breaks(block->bytes = ARENA_BYTES - 127, BAD_BLOCK);
	breaks(block->bytes -= 1, BAD_BLOCK);
	breaks(block->version = 0, BAD_BLOCK);
	breaks(block->version = 2, BAD_BLOCK);
	breaks(block->n_tokens = 0, NO_TOKENS);
	breaks(block->n_tokens = 6, BAD_BLOCK);
	breaks(block->n_tokens = 0x40000001, BAD_BLOCK);
	breaks(block->tokens_off = 64, BAD_BLOCK);
	breaks(block->tokens_off += 4, BAD_BLOCK);
	breaks(block->tokens_off = block->bytes + 8, BAD_BLOCK);
	breaks(block->tokens_off = 0xfffffff8, BAD_BLOCK);
	breaks(block->tokens_off -= 8, BAD_TLV);
	breaks(block->max_new = 0, BAD_MAX_NEW);
	breaks(block->session = 1, NOT_SUPPORTED);
	breaks(block->adapter = 1, NOT_SUPPORTED);
	breaks(block->tenant = 1001, TENANT);
	breaks(block->tenant = 1000, NONE);
}

static void test_sampling_fields(void **state)
{
	struct built built;
	struct wire_block *block = head(&built);
	const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, -0.001f, 1e9f};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		breaks(block->temperature = bad[i], BAD_PARAMETER);
		breaks(block->top_p = bad[i], BAD_PARAMETER);
		breaks(block->min_p = bad[i], BAD_PARAMETER);
		breaks(block->penalty = bad[i], BAD_PARAMETER);
	}
	breaks(block->top_p = 0, BAD_PARAMETER);
	breaks(block->top_p = 1.0001f, BAD_PARAMETER);
	breaks(block->min_p = 1.0001f, BAD_PARAMETER);
	breaks(block->penalty = 0, BAD_PARAMETER);
	breaks(block->penalty = 10.01f, BAD_PARAMETER);
	breaks(block->temperature = 0, NONE);
	breaks(block->top_p = 1, NONE);
	breaks(block->min_p = 0, NONE);
}

static void test_reply_fields(void **state)
{
	struct built built;
	struct wire_block *block = head(&built);

	(void)state;
	breaks(block->n_logprobs = 33, BAD_PARAMETER);
	breaks(block->n_logprobs = 4, BAD_REPLY);
	breaks(block->reply_cap -= 1, BAD_REPLY);
	breaks(block->max_new += 1, BAD_REPLY);
	breaks(block->reply_cap = 0, BAD_REPLY);
	breaks((block->reply_cap = 0, block->n_logprobs = 0), BAD_REPLY);
	breaks((block->reply_cap = 0, block->n_logprobs = 0, block->reply_off = 0), NONE);
	breaks(block->reply_off = 0, BAD_REPLY);
	breaks(block->reply_off = ARENA_OFF / 64 - 1, BAD_REPLY);
	breaks(block->reply_off = UINT32_MAX, BAD_REPLY);
	breaks(block->reply_off = (ARENA_OFF + ARENA_BYTES) / 64 - 10, BAD_REPLY);
	breaks(block->reply_off = (ARENA_OFF + ARENA_BYTES) / 64 - 11, NONE);
	breaks((block->reply_cap = UINT32_MAX), BAD_REPLY);
}

static struct wire_tlv *first_option(struct built *built)
{
	return (struct wire_tlv *)(built->bytes + sizeof(struct wire_block));
}

static void test_options(void **state)
{
	struct built built;
	uint32_t *payload = (uint32_t *)(first_option(&built) + 1);

	(void)state;
	breaks(first_option(&built)->type = 0, BAD_TLV);
	breaks(first_option(&built)->type = 7, BAD_TLV);
	breaks(first_option(&built)->type = 65535, BAD_TLV);
	breaks(first_option(&built)->type = WIRE_TLV_CANDIDATES, BAD_TLV);
	breaks(first_option(&built)->type = WIRE_TLV_FLAGS, BAD_TLV);
	breaks(first_option(&built)->zero = 1, BAD_TLV);
	breaks(first_option(&built)->bytes = 0, BAD_TLV);
	breaks((first_option(&built)->bytes = 8 + 1, payload[2] = UINT32_MAX), BAD_PADDING);
	breaks(first_option(&built)->bytes = 13, BAD_TLV);
	breaks(first_option(&built)->bytes = 4096, BAD_TLV);
	breaks(first_option(&built)->bytes = UINT32_MAX, BAD_TLV);
	breaks(payload[3] = 1, BAD_PADDING);
}

static void test_option_contents(void **state)
{
	static const uint32_t ids[REQUEST_STOP_MAX + 1];
	static const struct bias_entry not_a_number = {1, NAN}, infinite = {1, INFINITY};
	static const uint32_t falling[] = {5, 4}, equal[] = {5, 5}, flags = 2;
	struct {
		uint16_t type;
		const void *payload;
		uint32_t bytes, reason;
	} cases[] = {
	    {WIRE_TLV_STOP_IDS, ids, REQUEST_STOP_MAX * 4, WIRE_REASON_NONE},
	    {WIRE_TLV_STOP_IDS, ids, sizeof ids, WIRE_REASON_BAD_TLV},
	    {WIRE_TLV_BIAS, &not_a_number, 8, WIRE_REASON_BAD_PARAMETER},
	    {WIRE_TLV_BIAS, &infinite, 8, WIRE_REASON_BAD_PARAMETER},
	    {WIRE_TLV_BIAS, bias, 4, WIRE_REASON_BAD_TLV},
	    {WIRE_TLV_ALLOWED, falling, 8, WIRE_REASON_BAD_TLV},
	    {WIRE_TLV_ALLOWED, equal, 8, WIRE_REASON_BAD_TLV},
	    {WIRE_TLV_ALLOWED, falling, 4, WIRE_REASON_NONE},
	    {WIRE_TLV_FLAGS, &flags, 4, WIRE_REASON_BAD_FLAG},
	    {WIRE_TLV_FLAGS, equal, 8, WIRE_REASON_BAD_TLV},
	};
	struct built built;
	struct request request = {0};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		begin(&built);
		add_option(&built, cases[i].type, cases[i].payload, cases[i].bytes);
		finish(&built);
		assert_int_equal(reason_of(&built, WIRE_OP_GENERATE, &request), cases[i].reason);
		/* The same option twice. */
		begin(&built);
		add_option(&built, WIRE_TLV_STOP_IDS, stop_ids, 4);
		add_option(&built, WIRE_TLV_STOP_IDS, stop_ids, 4);
		finish(&built);
		assert_reason(&built, WIRE_OP_GENERATE, BAD_TLV);
	}
}

/* Every bit of the block flipped, and random garbage: refused or accepted, nothing is read beyond it. */
static void test_corruption(void **state)
{
	struct built built;
	struct request request = {0};
	uint32_t bytes;

	(void)state;
	build_generate(&built);
	bytes = head(&built)->bytes;
	for (uint32_t bit = 0; bit < bytes * 8; bit++) {
		build_generate(&built);
		built.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		reason_of(&built, WIRE_OP_GENERATE, &request);
	}
	srand(3);
	for (int round = 0; round < 200000; round++) {
		build_generate(&built);
		for (int i = rand() % 4; i >= 0; i--)
			built.bytes[(unsigned)rand() % bytes] = (uint8_t)rand();
		reason_of(&built, (uint8_t)(WIRE_OP_GENERATE + rand() % 3), &request);
	}
}

static void test_place(void **state)
{
	struct built built;
	struct refusal refusal;

	(void)state;
	build_generate(&built);
	context.op = WIRE_OP_GENERATE;
	assert_true(block_head_check(head(&built), ARENA_OFF, &context, &refusal));
	assert_false(block_head_check(head(&built), ARENA_OFF - 64, &context, &refusal));
	assert_int_equal(refusal.reason, WIRE_REASON_BAD_BLOCK);
	assert_false(block_head_check(head(&built), 0, &context, &refusal));
	assert_false(block_head_check(head(&built), ARENA_OFF + ARENA_BYTES, &context, &refusal));
	assert_false(block_head_check(head(&built), (uint64_t)UINT32_MAX * 64, &context, &refusal));
	head(&built)->bytes = ARENA_BYTES;
	assert_true(block_head_check(head(&built), ARENA_OFF, &context, &refusal));
	assert_false(block_head_check(head(&built), ARENA_OFF + 64, &context, &refusal));
	assert_int_equal(refusal.asked, ARENA_BYTES);
}

/* ---- slots ---- */

static uint32_t slot_reason(const struct wire_submission *slot)
{
	struct refusal refusal = {0};
	bool admitted = admit_slot(slot, &refusal);

	assert_int_equal(admitted, refusal.reason == 0);
	return refusal.reason;
}

#define slot_breaks(change, expected)                                         \
	do {                                                                  \
		struct wire_submission slot = valid;                          \
		change;                                                       \
		assert_int_equal(slot_reason(&slot), WIRE_REASON_##expected); \
	} while (0)

static void test_slot(void **state)
{
	const struct wire_submission valid = {
	    .op = WIRE_OP_GENERATE, .n_tok = 2, .flags = 7, .id = 1 << 16, .tok = {1, 2}};

	(void)state;
	slot_breaks(slot.op = WIRE_OP_GENERATE, NONE);
	slot_breaks(slot.op = WIRE_OP_ECHO, NONE);
	slot_breaks(slot.op = 0, BAD_OP);
	slot_breaks(slot.op = 7, BAD_OP);
	slot_breaks(slot.op = 255, BAD_OP);
	slot_breaks(slot.op = WIRE_OP_CANCEL, BAD_OP);
	slot_breaks(slot.op = WIRE_OP_EMBED, BAD_BLOCK);
	slot_breaks((slot.op = WIRE_OP_EMBED, slot.block = 5, slot.n_tok = 0, slot.tok[0] = slot.tok[1] = 0),
		    NONE);
	slot_breaks(slot.op = WIRE_OP_SESSION_FORK, NOT_SUPPORTED);
	slot_breaks(slot.op = WIRE_OP_SCORE, BAD_BLOCK);
	slot_breaks(slot.flags = 8, BAD_FLAG);
	slot_breaks(slot.flags = 255, BAD_FLAG);
	slot_breaks(slot.n_tok = 9, BAD_PADDING);
	slot_breaks(slot.n_tok = 1, BAD_PADDING);
	slot_breaks(slot.tok[7] = 1, BAD_PADDING);
	slot_breaks((slot.n_tok = 0, slot.tok[0] = slot.tok[1] = 0), NO_TOKENS);
	slot_breaks(slot.model = 1, BAD_MODEL);
	slot_breaks(slot.block = 5, BAD_BLOCK);
	slot_breaks((slot.block = 5, slot.n_tok = 0, slot.tok[0] = slot.tok[1] = 0), NONE);
	slot_breaks((slot.block = 5, slot.op = WIRE_OP_ECHO, slot.n_tok = 0, slot.tok[0] = slot.tok[1] = 0),
		    BAD_BLOCK);
}

/* ---- the model's limits ---- */

static void test_limits(void **state)
{
	static const struct engine_limits limits = {
	    .vocab = 100, .width = 7, .context = 64, .max_prompt = 40, .kv_tokens = 50};
	uint32_t tokens[41] = {0};
	struct request request = {.op = WIRE_OP_GENERATE, .tokens = tokens, .n_tokens = 30, .max_new = 20};
	struct refusal refusal = {0};

	(void)state;
	assert_true(admit_model(&request, &limits, false, &refusal));
	request.max_new = 21;
	assert_false(admit_model(&request, &limits, false, &refusal));
	assert_int_equal(refusal.reason, WIRE_REASON_KV_NEVER_FITS);
	assert_int_equal(refusal.asked, 51);
	assert_int_equal(refusal.limit, 50);
	request.max_new = 35;
	assert_false(admit_model(&request, &limits, false, &refusal));
	assert_int_equal(refusal.reason, WIRE_REASON_CONTEXT);
	request.max_new = UINT32_MAX;
	assert_false(admit_model(&request, &limits, false, &refusal));
	assert_int_equal(refusal.reason, WIRE_REASON_CONTEXT);
	request.n_tokens = 41;
	assert_false(admit_model(&request, &limits, false, &refusal));
	assert_int_equal(refusal.reason, WIRE_REASON_PROMPT_TOO_LONG);
	request.n_tokens = 40;
	request.max_new = 10;
	tokens[39] = 100;
	assert_false(admit_model(&request, &limits, false, &refusal));
	assert_int_equal(refusal.reason, WIRE_REASON_BAD_TOKEN);
	assert_int_equal(refusal.asked, 100);
	tokens[39] = 99;
	assert_true(admit_model(&request, &limits, false, &refusal));
	request.op = WIRE_OP_EMBED;
	request.max_new = 0;
	request.reply_cap = 16 + 7 * 4;
	assert_true(admit_model(&request, &limits, false, &refusal));
	request.reply_cap--;
	assert_false(admit_model(&request, &limits, false, &refusal));
	assert_int_equal(refusal.reason, WIRE_REASON_BAD_REPLY);
	assert_int_equal(refusal.asked, 16 + 7 * 4 - 1);
	assert_int_equal(refusal.limit, 16 + 7 * 4);
}

static void test_shorten(void **state)
{
	static const struct engine_limits limits = {
	    .vocab = 100, .context = 64, .max_prompt = 64, .kv_tokens = 64};
	uint32_t tokens[64] = {0};
	struct request request = {.op = WIRE_OP_GENERATE, .tokens = tokens, .n_tokens = 60, .max_new = 256};
	struct refusal refusal = {0};

	(void)state;
	assert_true(admit_model(&request, &limits, true, &refusal));
	assert_int_equal(request.max_new, 4);
	request.n_tokens = 64;
	assert_false(admit_model(&request, &limits, true, &refusal));
	assert_int_equal(refusal.reason, WIRE_REASON_CONTEXT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_valid),           cmocka_unit_test(test_score),
	    cmocka_unit_test(test_embed),           cmocka_unit_test(test_continuation_shapes),
	    cmocka_unit_test(test_head_fields),     cmocka_unit_test(test_sampling_fields),
	    cmocka_unit_test(test_reply_fields),    cmocka_unit_test(test_options),
	    cmocka_unit_test(test_option_contents), cmocka_unit_test(test_corruption),
	    cmocka_unit_test(test_place),           cmocka_unit_test(test_slot),
	    cmocka_unit_test(test_limits),          cmocka_unit_test(test_shorten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
