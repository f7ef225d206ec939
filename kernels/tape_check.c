/* tape_check: one function an operation; each condition names what it wants in a sentence's end. */
#include "kernels/tape.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check {
	const struct tape *tape;
	const struct tape_op *op;
	char *why;
	size_t why_bytes;
	uint8_t *written; /* (n_buffers) 1: an operation has written to this buffer without a parent */
};

static const char *const op_names[TAPE_OP_COUNT] = {"EMBED",   "NORM", "MATMUL", "ROPE",  "KV_WRITE",
						    "ATTN",    "ACT",  "MUL",    "ADD",   "ROUTE",
						    "EXPERTS", "SCAN", "POOL",   "LOGITS"};

__attribute__((format(printf, 2, 3))) static int refuse(const struct check *c, const char *format, ...)
{
	char text[256];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	if (c->op)
		snprintf(c->why, c->why_bytes, "tape operation %u (%s, layer %u): %s.",
			 (unsigned)(c->op - c->tape->ops),
			 c->op->kind < TAPE_OP_COUNT ? op_names[c->op->kind] : "?", c->op->layer, text);
	else
		snprintf(c->why, c->why_bytes, "tape: %s.", text);
	return -EINVAL;
}

#define REQUIRE(condition, ...)                        \
	do {                                           \
		if (!(condition))                      \
			return refuse(c, __VA_ARGS__); \
	} while (0)
#define TRY(call)                    \
	do {                         \
		int err_ = (call);   \
		if (err_ < 0)        \
			return err_; \
	} while (0)

/* ---- parts ---- */

/* The buffer that owns the memory, and the first column in it. */
static uint16_t root_of(const struct tape *tape, uint16_t index, uint32_t *ret_column)
{
	*ret_column = 0;
	while (tape->buffers[index].parent != TAPE_NONE) {
		*ret_column += tape->buffers[index].column;
		index = tape->buffers[index].parent;
	}
	return index;
}

static int check_buffers(const struct check *c)
{
	for (uint32_t i = 0; i < c->tape->n_buffers; i++) {
		const struct tape_buffer *buffer = &c->tape->buffers[i];
		REQUIRE(buffer->width > 0 && buffer->width <= 1u << 28, "buffer %u has a width of %u", i,
			buffer->width);
		REQUIRE(buffer->rows <= ROW_SEQUENCE, "buffer %u has unknown rows", i);
		if (buffer->parent == TAPE_NONE) {
			REQUIRE(buffer->column == 0, "buffer %u has a column but no parent", i);
			continue;
		}
		REQUIRE(buffer->parent < i, "buffer %u views buffer %u, which does not come before it", i,
			buffer->parent);
		const struct tape_buffer *parent = &c->tape->buffers[buffer->parent];
		REQUIRE((uint64_t)buffer->column + buffer->width <= parent->width,
			"buffer %u reaches past the columns of its parent", i);
		REQUIRE(buffer->rows == parent->rows, "buffer %u has other rows than its parent", i);
	}
	return 0;
}

static int check_weights(const struct check *c)
{
	for (uint32_t i = 0; i < c->tape->n_weights; i++) {
		const struct tape_weight *weight = &c->tape->weights[i];
		REQUIRE((unsigned)weight->type < TYPE_COUNT, "weight %u has an unknown type", i);
		REQUIRE(memchr(weight->name, 0, sizeof weight->name), "the name of weight %u has no end", i);
		REQUIRE(weight->experts && weight->n && weight->k && weight->k <= 1u << 28,
			"weight %s has the shape (%u, %u, %u)", weight->name, weight->experts, weight->n,
			weight->k);
		REQUIRE((uint64_t)weight->experts * weight->n <= UINT32_MAX, "weight %s has too many rows",
			weight->name);
		REQUIRE(weight->k % weight_type_info[weight->type].block_weights == 0,
			"weight %s has %u columns, not a multiple of the %u of a %s block", weight->name,
			weight->k, weight_type_info[weight->type].block_weights,
			weight_type_info[weight->type].name);
	}
	return 0;
}

static int check_groups_and_tables(const struct check *c)
{
	REQUIRE(c->tape->n_groups <= TAPE_GROUPS_MAX, "%u cache groups; at most %d", c->tape->n_groups,
		TAPE_GROUPS_MAX);
	for (uint32_t g = 0; g < c->tape->n_groups; g++) {
		const struct tape_group *group = &c->tape->groups[g];
		REQUIRE(group->kind <= KV_STATE && group->layers && group->kv_heads && group->dk && group->dv,
			"cache group %u is empty or of an unknown kind", g);
		REQUIRE(group->kv_heads <= 1u << 16 && group->dk <= 1u << 16 && group->dv <= 1u << 16,
			"cache group %u is larger than 65,536 heads or columns", g);
		REQUIRE((group->kind == KV_WINDOW) == (group->window > 0),
			"cache group %u needs a window exactly if its kind is WINDOW", g);
	}
	for (uint32_t i = 0; i < c->tape->n_tables; i++) {
		REQUIRE(c->tape->tables[i].values && c->tape->tables[i].n, "table %u is empty", i);
		for (uint32_t j = 0; j < c->tape->tables[i].n; j++)
			REQUIRE(isfinite(c->tape->tables[i].values[j]), "table %u is not finite at %u", i, j);
	}
	return 0;
}

/* ---- operands ---- */

static const struct tape_buffer *buffer_of(const struct check *c, uint16_t index)
{
	return &c->tape->buffers[index];
}

static int check_input(const struct check *c, int which)
{
	uint16_t index = c->op->in[which];
	uint32_t column;

	REQUIRE(index < c->tape->n_buffers, "input %d is buffer %u of %u", which, index, c->tape->n_buffers);
	REQUIRE(c->written[root_of(c->tape, index, &column)], "input %d, buffer %u, has not been written",
		which, index);
	return 0;
}

static int check_output(const struct check *c)
{
	REQUIRE(c->op->out[0] < c->tape->n_buffers, "the output is buffer %u of %u", c->op->out[0],
		c->tape->n_buffers);
	return 0;
}

/* The output shares no column with the input, or (may_equal) is the very same columns. */
static int check_overlap(const struct check *c, int which, bool may_equal)
{
	uint32_t in_column, out_column;
	uint16_t in_root = root_of(c->tape, c->op->in[which], &in_column);
	uint16_t out_root = root_of(c->tape, c->op->out[0], &out_column);
	uint32_t in_width = buffer_of(c, c->op->in[which])->width;
	uint32_t out_width = buffer_of(c, c->op->out[0])->width;

	if (in_root != out_root || in_column + in_width <= out_column || out_column + out_width <= in_column)
		return 0;
	REQUIRE(may_equal && in_column == out_column && in_width == out_width, "the output overlaps input %d",
		which);
	return 0;
}

static int check_same_shape(const struct check *c, int which)
{
	const struct tape_buffer *in = buffer_of(c, c->op->in[which]), *out = buffer_of(c, c->op->out[0]);

	REQUIRE(in->width == out->width, "input %d has %u columns, the output %u", which, in->width,
		out->width);
	REQUIRE(in->rows == out->rows, "input %d and the output have different rows", which);
	return 0;
}

static int check_rows(const struct check *c, uint16_t buffer, enum row_kind rows)
{
	REQUIRE(buffer_of(c, buffer)->rows == rows, "buffer %u has rows of the wrong kind", buffer);
	return 0;
}

static int check_weight(const struct check *c, uint16_t index, uint64_t experts, uint64_t n, uint64_t k)
{
	REQUIRE(index < c->tape->n_weights, "needs weight %u of %u", index, c->tape->n_weights);
	const struct tape_weight *weight = &c->tape->weights[index];
	REQUIRE(weight->experts == experts && weight->n == n && weight->k == k,
		"weight %s has the shape (%u, %u, %u), wanted (%llu, %llu, %llu)", weight->name,
		weight->experts, weight->n, weight->k, (unsigned long long)experts, (unsigned long long)n,
		(unsigned long long)k);
	return 0;
}

/* A vector that is used as f32; TAPE_NONE passes. */
static int check_vector(const struct check *c, uint16_t index, uint64_t k)
{
	if (index == TAPE_NONE)
		return 0;
	TRY(check_weight(c, index, 1, 1, k));
	REQUIRE(weight_type_info[c->tape->weights[index].type].block_weights == 1,
		"vector %s has the quantised type %s", c->tape->weights[index].name,
		weight_type_info[c->tape->weights[index].type].name);
	return 0;
}

/* ---- operations ---- */

static int check_embed(const struct check *c)
{
	const struct tape_op *op = c->op;
	uint32_t rows = op->u.embed.positions ? c->tape->context : c->tape->vocab;

	TRY(check_output(c));
	TRY(check_rows(c, op->out[0], ROW_TOKEN));
	REQUIRE(op->weight < c->tape->n_weights, "needs weight %u of %u", op->weight, c->tape->n_weights);
	const struct tape_weight *weight = &c->tape->weights[op->weight];
	REQUIRE(weight->experts == 1 && weight->n >= rows && weight->k == buffer_of(c, op->out[0])->width,
		"weight %s has the shape (%u, %u), wanted at least (%u, %u)", weight->name, weight->n,
		weight->k, rows, buffer_of(c, op->out[0])->width);
	REQUIRE(isfinite(op->u.embed.scale), "the scale is not finite");
	return 0;
}

static int check_norm(const struct check *c)
{
	const struct tape_op *op = c->op;

	TRY(check_input(c, 0));
	TRY(check_output(c));
	const struct tape_buffer *in = buffer_of(c, op->in[0]), *out = buffer_of(c, op->out[0]);
	REQUIRE(in->width == out->width, "the input has %u columns, the output %u", in->width, out->width);
	REQUIRE(in->rows == out->rows || (in->rows == ROW_TOKEN && out->rows == ROW_OUTPUT),
		"rows of the input do not become rows of the output");
	TRY(check_overlap(c, 0, true));
	REQUIRE(op->u.norm.kind <= NORM_LAYER, "unknown norm %u", op->u.norm.kind);
	REQUIRE(isfinite(op->u.norm.eps) && op->u.norm.eps >= 0, "the epsilon is negative or not finite");
	REQUIRE(op->u.norm.groups && in->width % op->u.norm.groups == 0, "%u columns do not make %u groups",
		in->width, op->u.norm.groups);
	TRY(check_vector(c, op->weight, in->width / op->u.norm.groups));
	return check_vector(c, op->bias, in->width / op->u.norm.groups);
}

static int check_matmul(const struct check *c)
{
	const struct tape_op *op = c->op;
	uint32_t heads = op->u.matmul.heads;

	TRY(check_input(c, 0));
	TRY(check_output(c));
	TRY(check_overlap(c, 0, false));
	const struct tape_buffer *in = buffer_of(c, op->in[0]), *out = buffer_of(c, op->out[0]);
	REQUIRE(in->rows == out->rows, "input and output have different rows");
	REQUIRE(heads && in->width % heads == 0 && out->width % heads == 0,
		"%u heads do not divide %u and %u columns", heads, in->width, out->width);
	REQUIRE(op->u.matmul.shard <= 2, "unknown shard axis %u", op->u.matmul.shard);
	TRY(check_weight(c, op->weight, heads, out->width / heads, in->width / heads));
	return check_vector(c, op->bias, out->width);
}

static int check_rope(const struct check *c)
{
	const struct tape_op *op = c->op;

	TRY(check_input(c, 0));
	REQUIRE(op->out[0] == op->in[0], "works in place: the output must be the input");
	TRY(check_rows(c, op->in[0], ROW_TOKEN));
	REQUIRE(op->u.rope.style <= ROPE_HALF, "unknown style %u", op->u.rope.style);
	REQUIRE((uint64_t)op->u.rope.heads * op->u.rope.head_dim == buffer_of(c, op->in[0])->width,
		"%u heads of %u do not make %u columns", op->u.rope.heads, op->u.rope.head_dim,
		buffer_of(c, op->in[0])->width);
	REQUIRE(op->u.rope.dims && op->u.rope.dims % 2 == 0 &&
		    (uint64_t)op->u.rope.first + op->u.rope.dims <= op->u.rope.head_dim,
		"cannot turn columns %u to %u of heads of %u", op->u.rope.first,
		op->u.rope.first + op->u.rope.dims, op->u.rope.head_dim);
	REQUIRE(op->u.rope.table < c->tape->n_tables &&
		    c->tape->tables[op->u.rope.table].n == op->u.rope.dims / 2,
		"needs a table of %u frequencies", op->u.rope.dims / 2);
	return 0;
}

static int check_cache(const struct check *c)
{
	REQUIRE(c->op->u.attn.group < c->tape->n_groups, "needs cache group %u of %u", c->op->u.attn.group,
		c->tape->n_groups);
	REQUIRE(c->op->u.attn.layer < c->tape->groups[c->op->u.attn.group].layers,
		"needs layer %u of cache group %u, which has %u", c->op->u.attn.layer, c->op->u.attn.group,
		c->tape->groups[c->op->u.attn.group].layers);
	return 0;
}

static int check_kv_write(const struct check *c)
{
	const struct tape_op *op = c->op;

	TRY(check_cache(c));
	const struct tape_group *group = &c->tape->groups[op->u.attn.group];
	for (int i = 0; i < (op->u.attn.v_is_k ? 1 : 2); i++) {
		uint64_t width = (uint64_t)group->kv_heads * (i ? group->dv : group->dk);
		TRY(check_input(c, i));
		TRY(check_rows(c, op->in[i], ROW_TOKEN));
		REQUIRE(buffer_of(c, op->in[i])->width == width, "input %d has %u columns, wanted %llu", i,
			buffer_of(c, op->in[i])->width, (unsigned long long)width);
	}
	return 0;
}

static int check_attn(const struct check *c)
{
	const struct tape_op *op = c->op;

	TRY(check_cache(c));
	TRY(check_input(c, 0));
	TRY(check_output(c));
	TRY(check_overlap(c, 0, false));
	TRY(check_rows(c, op->in[0], ROW_TOKEN));
	TRY(check_rows(c, op->out[0], ROW_TOKEN));
	const struct tape_group *group = &c->tape->groups[op->u.attn.group];
	uint32_t heads = op->u.attn.heads;
	REQUIRE(heads && heads % group->kv_heads == 0, "%u query heads are no multiple of %u", heads,
		group->kv_heads);
	REQUIRE((uint64_t)heads * group->dk == buffer_of(c, op->in[0])->width &&
		    (uint64_t)heads * group->dv == buffer_of(c, op->out[0])->width,
		"%u heads do not make %u and %u columns", heads, buffer_of(c, op->in[0])->width,
		buffer_of(c, op->out[0])->width);
	REQUIRE(!op->u.attn.v_is_k || group->dv <= group->dk, "values of %u columns are no view of %u",
		group->dv, group->dk);
	REQUIRE(isfinite(op->u.attn.scale) && isfinite(op->u.attn.softcap) && op->u.attn.softcap >= 0,
		"scale or softcap is not finite");
	return check_vector(c, op->u.attn.sinks, heads);
}

static int check_elementwise(const struct check *c, int inputs)
{
	TRY(check_output(c));
	for (int i = 0; i < inputs; i++) {
		TRY(check_input(c, i));
		TRY(check_same_shape(c, i));
		TRY(check_overlap(c, i, true));
	}
	return 0;
}

static int check_act(const struct check *c)
{
	REQUIRE(c->op->u.act.kind <= ACT_RELU2, "unknown activation %u", c->op->u.act.kind);
	REQUIRE(isfinite(c->op->u.act.limit) && c->op->u.act.limit >= 0,
		"the limit is negative or not finite");
	return check_elementwise(c, c->op->u.act.gated ? 2 : 1);
}

static int check_route_parameters(const struct check *c)
{
	const struct tape_op *op = c->op;

	REQUIRE(op->u.route.experts && op->u.route.used && op->u.route.used <= op->u.route.experts &&
		    op->u.route.experts <= 1u << 16,
		"cannot choose %u of %u experts", op->u.route.used, op->u.route.experts);
	REQUIRE(op->u.route.groups <= 1 ||
		    (op->u.route.experts % op->u.route.groups == 0 && op->u.route.top_groups &&
		     op->u.route.top_groups <= op->u.route.groups),
		"cannot choose %u of %u groups", op->u.route.top_groups, op->u.route.groups);
	REQUIRE(isfinite(op->u.route.scale), "the scale is not finite");
	return 0;
}

static int check_route(const struct check *c)
{
	const struct tape_op *op = c->op;

	TRY(check_input(c, 0));
	TRY(check_output(c));
	TRY(check_overlap(c, 0, false));
	TRY(check_rows(c, op->in[0], ROW_TOKEN));
	TRY(check_rows(c, op->out[0], ROW_TOKEN));
	TRY(check_route_parameters(c));
	REQUIRE(buffer_of(c, op->out[0])->width == 2 * op->u.route.used,
		"the output has %u columns, wanted %u", buffer_of(c, op->out[0])->width,
		2 * op->u.route.used);
	TRY(check_weight(c, op->weight, 1, op->u.route.experts, buffer_of(c, op->in[0])->width));
	return check_vector(c, op->bias, op->u.route.experts);
}

static int check_experts(const struct check *c)
{
	const struct tape_op *op = c->op;
	uint32_t experts = op->u.route.experts;

	TRY(check_output(c));
	for (int i = 0; i < 2; i++) {
		TRY(check_input(c, i));
		TRY(check_overlap(c, i, false));
		TRY(check_rows(c, op->in[i], ROW_TOKEN));
	}
	TRY(check_rows(c, op->out[0], ROW_TOKEN));
	TRY(check_route_parameters(c));
	REQUIRE(buffer_of(c, op->in[1])->width == 2 * op->u.route.used, "input 1 has %u columns, wanted %u",
		buffer_of(c, op->in[1])->width, 2 * op->u.route.used);
	REQUIRE(op->weights[0] < c->tape->n_weights, "needs weight %u of %u", op->weights[0],
		c->tape->n_weights);
	uint32_t hidden = c->tape->weights[op->weights[0]].n, k = buffer_of(c, op->in[0])->width;
	TRY(check_weight(c, op->weights[0], experts, hidden, k));
	TRY(check_weight(c, op->weights[1], experts, hidden, k));
	return check_weight(c, op->weights[2], experts, buffer_of(c, op->out[0])->width, hidden);
}

static int check_pool(const struct check *c)
{
	TRY(check_input(c, 0));
	TRY(check_output(c));
	TRY(check_rows(c, c->op->in[0], ROW_TOKEN));
	TRY(check_rows(c, c->op->out[0], ROW_SEQUENCE));
	REQUIRE(buffer_of(c, c->op->in[0])->width == buffer_of(c, c->op->out[0])->width,
		"input and output have different columns");
	REQUIRE(c->op->u.pool.kind <= POOL_MEAN, "unknown pooling %u", c->op->u.pool.kind);
	return 0;
}

static int check_logits(const struct check *c)
{
	TRY(check_input(c, 0));
	TRY(check_rows(c, c->op->in[0], ROW_OUTPUT));
	TRY(check_weight(c, c->op->weight, 1, c->tape->vocab, buffer_of(c, c->op->in[0])->width));
	REQUIRE(c->tape->width == buffer_of(c, c->op->in[0])->width, "the tape's width is not %u",
		buffer_of(c, c->op->in[0])->width);
	REQUIRE(isfinite(c->op->u.logits.scale) && isfinite(c->op->u.logits.softcap) &&
		    c->op->u.logits.softcap >= 0,
		"scale or softcap is not finite");
	for (const struct tape_op *op = c->tape->ops; op < c->op; op++)
		REQUIRE(op->kind != TAPE_LOGITS, "a tape has one LOGITS operation");
	return check_vector(c, c->op->bias, c->tape->vocab);
}

static int check_op(const struct check *c)
{
	switch (c->op->kind) {
	case TAPE_EMBED:
		return check_embed(c);
	case TAPE_NORM:
		return check_norm(c);
	case TAPE_MATMUL:
		return check_matmul(c);
	case TAPE_ROPE:
		return check_rope(c);
	case TAPE_KV_WRITE:
		return check_kv_write(c);
	case TAPE_ATTN:
		return check_attn(c);
	case TAPE_ACT:
		return check_act(c);
	case TAPE_MUL:
	case TAPE_ADD:
		return check_elementwise(c, 2);
	case TAPE_ROUTE:
		return check_route(c);
	case TAPE_EXPERTS:
		return check_experts(c);
	case TAPE_SCAN:
		return refuse(c, "recurrent operations are not defined yet");
	case TAPE_POOL:
		return check_pool(c);
	case TAPE_LOGITS:
		return check_logits(c);
	default:
		return refuse(c, "unknown kind %u", c->op->kind);
	}
}

static bool has_output(const struct tape_op *op)
{
	return op->kind != TAPE_KV_WRITE && op->kind != TAPE_LOGITS;
}

static int check_ops(struct check *c)
{
	uint16_t segment = 0;
	uint32_t column;

	for (uint32_t i = 0; i < c->tape->n_ops; i++) {
		c->op = &c->tape->ops[i];
		REQUIRE(c->op->segment == segment || c->op->segment == segment + 1,
			"segment %u follows segment %u", c->op->segment, segment);
		segment = c->op->segment;
		TRY(check_op(c));
		if (has_output(c->op))
			c->written[root_of(c->tape, c->op->out[0], &column)] = 1;
	}
	return 0;
}

int tape_check(const struct tape *tape, char *why, size_t why_bytes)
{
	struct check check = {.tape = tape, .why = why, .why_bytes = why_bytes}, *c = &check;

	REQUIRE(tape->vocab && tape->context, "vocabulary or context is 0");
	REQUIRE(tape->n_ops && tape->n_buffers, "it has no operations or no buffers");
	TRY(check_buffers(c));
	TRY(check_weights(c));
	TRY(check_groups_and_tables(c));
	c->written = calloc(tape->n_buffers, 1);
	if (!c->written)
		return refuse(c, "no memory for %u bytes", tape->n_buffers);
	int err = check_ops(c);
	free(c->written);
	return err;
}
