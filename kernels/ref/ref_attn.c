#include "kernels/ref/ref.h"

struct head {
	const struct tape_group *group;
	const struct tape_op *op;
	const float *k, *v; /* the layer's cache: (blocks, kv_heads), each a ref_head */
	enum weight_type type;
	const uint32_t *table;
	uint32_t kv_head, position, first; /* keys [first, position] are seen */
};

static size_t layer_floats(const struct ref_program *program, uint16_t group, uint32_t d)
{
	return (size_t)program->base.limits.blocks[group] * program->base.tape->groups[group].kv_heads *
	       ref_head(program->base.limits.kv_type, d);
}

/* The value as an F32, F16 or BF16 cache keeps it; false if it does not fit. */
static bool store(enum weight_type type, float value, float *ret)
{
	if (type == TYPE_F32)
		*ret = value;
	else if (type == TYPE_BF16)
		*ret = bf16_to_f32(bf16_from_f32(value));
	else
		*ret = f16_to_f32(f16_from_f32(value));
	return float_finite(*ret);
}

/* One head's keys (at to[slot], 32 apart) or values (in row `slot`) of a token as a Q8 cache keeps them. */
static bool store_quants(const float *x, uint32_t n, float *to, uint32_t slot, bool value)
{
	float *quants = to + ref_scales(TYPE_Q8_0, n);
	bool fits = true;

	for (uint32_t g = 0; g < n; g += BLOCK_COLUMNS) {
		uint32_t count = n - g < BLOCK_COLUMNS ? n - g : BLOCK_COLUMNS;
		int8_t q[BLOCK_COLUMNS];
		uint16_t scale;
		fits = !contract_quantise_kv(x + g, count, q, &scale) && fits;
		to[g + slot] = f16_to_f32(scale);
		for (uint32_t i = g; i < g + count; i++)
			quants[value ? slot * n + i : i * TAPE_KV_BLOCK + slot] = q[i - g];
	}
	return fits;
}

/* False if a value does not fit. */
static bool store_head(enum weight_type type, const float *x, uint32_t n, float *to, uint32_t slot,
		       bool value)
{
	bool fits = true;

	if (type == TYPE_Q8_0)
		return store_quants(x, n, to, slot, value);
	for (uint32_t i = 0; i < n; i++)
		fits = store(type, x[i], &to[value ? slot * n + i : i * TAPE_KV_BLOCK + slot]) && fits;
	return fits;
}

static void write_row(struct ref_program *program, const struct tape_op *op, const float *k, const float *v,
		      uint32_t block, uint32_t slot, uint8_t *bad)
{
	const struct tape_group *group = &program->base.tape->groups[op->u.attn.group];
	struct ref_cache *cache = &program->cache[op->u.attn.group];
	enum weight_type type = program->base.limits.kv_type;
	size_t k_floats = ref_head(type, group->dk), v_floats = ref_head(type, group->dv);
	size_t at = (size_t)block * group->kv_heads;
	float *to_k =
	    cache->k + op->u.attn.layer * layer_floats(program, op->u.attn.group, group->dk) + at * k_floats;
	float *to_v =
	    cache->v + op->u.attn.layer * layer_floats(program, op->u.attn.group, group->dv) + at * v_floats;
	bool fits = true;

	for (uint32_t h = 0; h < group->kv_heads; h++) {
		fits =
		    store_head(type, k + h * group->dk, group->dk, to_k + h * k_floats, slot, false) && fits;
		fits =
		    store_head(type, v + h * group->dv, group->dv, to_v + h * v_floats, slot, true) && fits;
	}
	if (!fits)
		*bad = 1;
}

static const uint32_t *table_of(const struct batch *batch, uint16_t group, uint32_t row)
{
	return batch->table[group] + (size_t)batch->sequence[row] * batch->table_stride;
}

void ref_kv_write(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	uint32_t k_stride, v_stride;
	const float *k = ref_buffer(program, op->in[0], &k_stride);
	const float *v = ref_buffer(program, op->in[1], &v_stride);

	for (uint32_t r = 0; r < batch->rows; r++) {
		uint32_t position = batch->position[r];
		uint32_t block = table_of(batch, op->u.attn.group, r)[position / TAPE_KV_BLOCK];
		write_row(program, op, k + (size_t)r * k_stride, v + (size_t)r * v_stride, block,
			  position % TAPE_KV_BLOCK, &program->faults[r]);
	}
}

/* Scores of one tile: a chain of fma over d ascending, times scale, softcapped. k: a ref_head, (dk, 32) */
static void score_tile(const struct head *head, const float *q, const float *k, float score[CONTRACT_TILE])
{
	float acc[CONTRACT_TILE] = {0}, softcap = head->op->u.attn.softcap;
	uint32_t dk = head->group->dk;

	if (head->type == TYPE_Q8_0)
		contract_key_scores(q, k + ref_scales(head->type, dk), k, dk, acc);
	for (uint32_t d = 0; d < dk && head->type != TYPE_Q8_0; d++)
		for (uint32_t j = 0; j < CONTRACT_TILE; j++)
			acc[j] = fmaf(q[d], k[(size_t)d * CONTRACT_TILE + j], acc[j]);
	for (uint32_t j = 0; j < CONTRACT_TILE; j++) {
		score[j] = acc[j] * head->op->u.attn.scale;
		if (softcap > 0)
			score[j] = contract_softcap(score[j], softcap);
	}
}

/* Keys [from, to) of one segment into (state, o), which begin empty. */
static void segment(const struct head *head, const float *q, uint32_t from, uint32_t to,
		    struct contract_softmax *state, float *o)
{
	uint32_t dk = head->group->dk, dv = head->group->dv;
	float score[CONTRACT_TILE];
	uint8_t mask[CONTRACT_TILE];

	*state = (struct contract_softmax){-INFINITY, 0};
	memset(o, 0, dv * sizeof *o);
	for (uint32_t t = from / CONTRACT_TILE; t * CONTRACT_TILE < to; t++) {
		size_t at = (size_t)head->table[t] * head->group->kv_heads + head->kv_head;
		const float *v = head->v + at * ref_head(head->type, dv);
		score_tile(head, q, head->k + at * ref_head(head->type, dk), score);
		for (uint32_t j = 0; j < CONTRACT_TILE; j++) {
			uint32_t position = t * CONTRACT_TILE + j;
			mask[j] = position >= head->first && position <= head->position;
		}
		contract_tile(score, mask, v + ref_scales(head->type, dv), head->type == TYPE_Q8_0 ? v : NULL,
			      dv, dv, state, o);
	}
}

/* o (dv) = attention of q (dk); other: room for dv floats. */
static void attend(const struct head *head, const float *q, float *o, float *other)
{
	uint32_t end = head->position + 1, dv = head->group->dv;
	uint32_t start = head->first / CONTRACT_SEGMENT * CONTRACT_SEGMENT;
	struct contract_softmax total = {0}, part;

	for (uint32_t s = start; s < end; s += CONTRACT_SEGMENT) {
		uint32_t from = s > head->first ? s : head->first;
		uint32_t to = end - s > CONTRACT_SEGMENT ? s + CONTRACT_SEGMENT : end;
		if (s == start) {
			segment(head, q, from, to, &total, o);
			continue;
		}
		segment(head, q, from, to, &part, other);
		contract_merge(&total, o, &part, other, dv);
	}
	for (uint32_t d = 0; d < dv; d++)
		o[d] = o[d] / total.l;
}

void ref_attn(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	const struct tape_group *group = &program->base.tape->groups[op->u.attn.group];
	const struct ref_cache *cache = &program->cache[op->u.attn.group];
	uint32_t q_stride, o_stride, ratio = op->u.attn.heads / group->kv_heads;
	const float *q = ref_buffer(program, op->in[0], &q_stride);
	float *o = ref_buffer(program, op->out[0], &o_stride);
	struct head head = {
	    .type = program->base.limits.kv_type,
	    .group = group,
	    .op = op,
	    .k = cache->k + op->u.attn.layer * layer_floats(program, op->u.attn.group, group->dk),
	    .v = cache->v + op->u.attn.layer * layer_floats(program, op->u.attn.group, group->dv)};

	for (uint32_t r = 0; r < batch->rows; r++) {
		head.table = table_of(batch, op->u.attn.group, r);
		head.position = batch->position[r];
		head.first = 0;
		if (group->window && head.position >= group->window)
			head.first = head.position - group->window + 1;
		for (uint32_t h = 0; h < op->u.attn.heads; h++) {
			head.kv_head = h / ratio;
			attend(&head, q + (size_t)r * q_stride + (size_t)h * group->dk,
			       o + (size_t)r * o_stride + (size_t)h * group->dv, program->scratch);
		}
		ref_poll(program);
	}
}
