/* Request blocks as the front takes them: the head, then the whole. The first byte chooses the operation: its
 * lowest bit generates, its third embeds, else it scores. */
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/admit.h"
#include "daemon/engine/block.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct engine_limits limits = {
    .vocab = 1000, .width = 64, .context = 4096, .max_prompt = 2048, .kv_tokens = 3000};

static void parse(const struct block_context *context, const uint8_t *copy, size_t size)
{
	struct request request = {0};
	struct refusal refusal = {0};
	struct wire_block head;
	uint64_t reply_off = 0;

	memcpy(&head, copy, sizeof head);
	/* Where the head check refuses, the parser alone must be safe too. */
	if (block_head_check(&head, context->arena_off, context, &refusal) && head.bytes <= size)
		size = head.bytes;
	if (!block_parse(copy, size, context, &request, &reply_off, &refusal))
		return;
	if (reply_off && (reply_off < context->arena_off ||
			  reply_off + request.reply_cap > context->arena_off + context->arena_bytes))
		__builtin_trap();
	admit_model(&request, &limits, false, &refusal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct block_context context = {.arena_off = 81920, .arena_bytes = 65536, .uid = 1};
	uint8_t *copy;

	if (size < 1 + sizeof(struct wire_block))
		return 0;
	context.op = data[0] & 1 ? WIRE_OP_GENERATE : data[0] & 4 ? WIRE_OP_EMBED : WIRE_OP_SCORE;
	context.may_name_tenants = data[0] & 2;
	copy = malloc(size - 1);
	if (!copy)
		return 0;
	memcpy(copy, data + 1, size - 1);
	parse(&context, copy, size - 1);
	free(copy);
	return 0;
}
