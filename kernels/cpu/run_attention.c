/* KV cache and attention drivers.
 *
 * Work items are (rows of one sequence, kv head): up to isa->query_rows query vectors that share keys and
 * values. Few items with long contexts are split further by segment of 256 keys; the parts are merged in
 * ascending order after a barrier, as the contract always merges segments, so both ways give the same bits.
 */
#include <string.h>

#include "kernels/contract.h"
#include "kernels/cpu/program.h"

enum { WHOLE_SEGMENTS = 2 }; /* segments a thread from which they are not divided */

/* The first that are dealt as whole segments. */
uint32_t attention_paths(uint32_t threads)
{
	return WHOLE_SEGMENTS * threads * TAPE_KV_SEGMENT + 1;
}

uint8_t *kv_block(const struct cpu_program *program, uint32_t group, uint32_t layer, uint32_t block)
{
	const struct cpu_kv *kv = &program->kv[group];
	return kv->data + layer * kv->layer_bytes + block * kv->block_bytes;
}

uint8_t *kv_keys(const struct cpu_program *program, uint32_t group, uint8_t *block, uint32_t head)
{
	return block + head * program->kv[group].key_bytes;
}

uint8_t *kv_values(const struct cpu_program *program, uint32_t group, uint8_t *block, uint32_t head)
{
	const struct cpu_kv *kv = &program->kv[group];
	return block + program_tape(program)->groups[group].kv_heads * kv->key_bytes + head * kv->value_bytes;
}

static const uint32_t *block_table(const struct batch *batch, uint32_t group, uint32_t sequence)
{
	return batch->table[group] + (size_t)sequence * batch->table_stride;
}

/* One token's keys or values of one head, in place `slot` of the block; false if one does not fit. */
static bool store_row(const struct cpu_program *program, const float *x, uint32_t n, uint8_t *part,
		      uint32_t slot, bool key)
{
	enum weight_type type = program->base.limits.kv_type;
	size_t stride = key ? TAPE_KV_BLOCK : 1;
	uint16_t *half = (uint16_t *)part;

	if (type == TYPE_Q8_0) {
		int8_t *quants = (int8_t *)part + kv_scales_bytes(type, n);
		return program->isa->store_q8(x, n, key, quants + (key ? kv_quad(0, slot) : (size_t)slot * n),
					      half + slot);
	}
	half += key ? slot : (size_t)slot * n;
	return type == TYPE_BF16 ? program->isa->store_bf16(x, n, half, stride)
				 : program->isa->store_f16(x, n, half, stride);
}

void run_kv_write(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	const struct batch *batch = program->batch;
	const struct tape_op *op = step->op;
	const struct tape_group *group = &program_tape(program)->groups[op->u.attn.group];
	uint32_t heads = group->kv_heads, dk = group->dk, dv = group->dv, first, end;

	own_items(program->split, batch->rows, heads, self, &first, &end);
	for (uint32_t i = first; i < end; i++) {
		uint32_t row = i / heads, head = i % heads, position = batch->position[row];
		const uint32_t *table = block_table(batch, op->u.attn.group, batch->sequence[row]);
		uint32_t slot = position % TAPE_KV_BLOCK;
		uint8_t *block =
		    kv_block(program, op->u.attn.group, op->u.attn.layer, table[position / TAPE_KV_BLOCK]);

		bool fits = store_row(program, buffer_row(program, op->in[0], row) + (size_t)head * dk, dk,
				      kv_keys(program, op->u.attn.group, block, head), slot, true);
		fits &= store_row(program, buffer_row(program, op->in[1], row) + (size_t)head * dv, dv,
				  kv_values(program, op->u.attn.group, block, head), slot, false);
		if (!fits)
			store_fault(program, row);
		pool_work(self, 4 * (dk + dv));
	}
}

/* What all items of an attention step share. */
struct attention {
	struct cpu_program *program;
	const struct tape_op *op;
	const struct tape_group *group;
	struct team_thread *self;
	uint32_t heads_per_kv, padded_dv; /* dv rounded up to 16 */
};

static struct attention_source source_of(const struct attention *a, uint32_t sequence, uint32_t kv_head)
{
	const struct cpu_program *program = a->program;
	uint8_t *block = kv_block(program, a->op->u.attn.group, a->op->u.attn.layer, 0);

	return (struct attention_source){
	    .type = program->base.limits.kv_type,
	    .k = kv_keys(program, a->op->u.attn.group, block, kv_head),
	    .v = kv_values(program, a->op->u.attn.group, block, kv_head),
	    .block_bytes = program->kv[a->op->u.attn.group].block_bytes,
	    .table = block_table(program->batch, a->op->u.attn.group, sequence),
	    .dk = a->group->dk,
	    .dv = a->group->dv,
	    .scale = a->op->u.attn.scale,
	    .softcap = a->op->u.attn.softcap,
	};
}

static float *query_vector(const struct attention *a, uint16_t buffer, uint32_t row, uint32_t kv_head,
			   uint32_t i, uint32_t width)
{
	return buffer_row(a->program, buffer, row) + (size_t)(kv_head * a->heads_per_kv + i) * width;
}

/* Makes the quants of a query that a Q8 cache is multiplied with. */
static void quantise_query(const struct attention *a, uint32_t row, uint32_t kv_head, uint32_t i,
			   uint32_t place)
{
	struct query_block *to =
	    a->program->private[a->self->index].queries + (size_t)place * query_blocks(a->group->dk);

	if (a->program->base.limits.kv_type == TYPE_Q8_0)
		a->program->isa->quantise_query(query_vector(a, a->op->in[0], row, kv_head, i, a->group->dk),
						a->group->dk, to);
}

/* What is added to k and v for the block of a key. */
static size_t block_of(const struct attention_source *source, uint32_t key)
{
	return source->table[key / TAPE_KV_BLOCK] * source->block_bytes;
}

static uint32_t first_key(const struct attention *a, uint32_t row)
{
	uint32_t position = a->program->batch->position[row], window = a->group->window;
	return window && position >= window ? position - window + 1 : 0;
}

/* `place`: of its quants among this thread's. */
static struct attention_query query_of(const struct attention *a, uint32_t row, uint32_t kv_head, uint32_t i,
				       float *o, uint32_t place)
{
	return (struct attention_query){
	    .q = query_vector(a, a->op->in[0], row, kv_head, i, a->group->dk),
	    .q8 = a->program->private[a->self->index].queries + (size_t)place * query_blocks(a->group->dk),
	    .first = first_key(a, row),
	    .end = a->program->batch->position[row] + 1,
	    .o = o,
	};
}

/* Totals over segments of the queries of one item. */
struct totals {
	float *o; /* (QUERY_ROWS, padded dv) */
	float m[QUERY_ROWS], l[QUERY_ROWS];
	bool begun[QUERY_ROWS];
};

static void add_segment(const struct attention *a, struct totals *totals, uint32_t i,
			const struct attention_query *part)
{
	float *o = totals->o + (size_t)i * a->padded_dv;

	if (totals->begun[i]) {
		a->program->isa->merge(&totals->m[i], &totals->l[i], o, part, a->group->dv);
		return;
	}
	memcpy(o, part->o, a->group->dv * sizeof *o);
	totals->m[i] = part->m;
	totals->l[i] = part->l;
	totals->begun[i] = true;
}

/* Queries that see a key of the segment, moved to the front; their former places in `place`. */
static uint32_t in_segment(const struct attention_query *all, uint32_t n, uint32_t segment,
			   struct attention_query *seen, uint32_t *place)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n; i++)
		if (all[i].first < segment + TAPE_KV_SEGMENT && all[i].end > segment) {
			place[count] = i;
			seen[count++] = all[i];
		}
	return count;
}

static void attend_segments(const struct attention *a, struct attention_source *source,
			    const struct attention_query *all, uint32_t n, struct totals *totals)
{
	struct attention_query seen[QUERY_ROWS];
	uint32_t place[QUERY_ROWS], first = UINT32_MAX, end = 0;

	for (uint32_t i = 0; i < n; i++) {
		first = all[i].first < first ? all[i].first : first;
		end = all[i].end > end ? all[i].end : end;
		totals->begun[i] = false;
	}
	for (uint32_t s = first / TAPE_KV_SEGMENT * TAPE_KV_SEGMENT; s < end; s += TAPE_KV_SEGMENT) {
		uint32_t count = in_segment(all, n, s, seen, place), next = s + TAPE_KV_SEGMENT;
		source->ahead = block_of(source, next < end ? next : s);
		a->program->isa->attend(source, 1, seen, count, s, s + TAPE_KV_SEGMENT);
		for (uint32_t i = 0; i < count; i++)
			add_segment(a, totals, place[i], &seen[i]);
		pool_work(a->self, (uint64_t)count * (end - s < TAPE_KV_SEGMENT ? end - s : TAPE_KV_SEGMENT) *
				       (source->dk + source->dv));
	}
}

/* Query vectors [from, to) of an item, counted row by row and head by head. */
static void attend_some(const struct attention *a, uint32_t row, uint32_t kv_head, uint32_t from, uint32_t to)
{
	struct attention_source source = source_of(a, a->program->batch->sequence[row], kv_head);
	float *memory = a->program->private[a->self->index].attention;
	struct totals totals = {.o = memory + (size_t)QUERY_ROWS * a->padded_dv};
	struct attention_query query[QUERY_ROWS];

	for (uint32_t i = from; i < to; i++) {
		uint32_t at = row + i / a->heads_per_kv, head = i % a->heads_per_kv;
		quantise_query(a, at, kv_head, head, i - from);
		query[i - from] =
		    query_of(a, at, kv_head, head, memory + (size_t)(i - from) * a->padded_dv, i - from);
	}
	attend_segments(a, &source, query, to - from, &totals);
	for (uint32_t i = from; i < to; i++)
		a->program->isa->divide(totals.o + (size_t)(i - from) * a->padded_dv, totals.l[i - from],
					a->group->dv,
					query_vector(a, a->op->out[0], row + i / a->heads_per_kv, kv_head,
						     i % a->heads_per_kv, a->group->dv));
}

static void attend_item(const struct attention *a, uint32_t row, uint32_t rows, uint32_t kv_head)
{
	uint32_t n = rows * a->heads_per_kv;

	for (uint32_t i = 0; i < n; i += QUERY_ROWS)
		attend_some(a, row, kv_head, i, n - i < QUERY_ROWS ? n : i + QUERY_ROWS);
}

static uint32_t rows_an_item(const struct attention *a)
{
	uint32_t rows = a->program->isa->query_rows / a->heads_per_kv;
	return rows ? rows : 1;
}

/* Items are dealt in turn, because later rows of a prompt see more keys. */
static void attend_dealt(const struct attention *a)
{
	const struct batch *batch = a->program->batch;
	uint32_t step = rows_an_item(a), item = 0;

	for (uint32_t s = 0; s < batch->sequences; s++)
		for (uint32_t r = 0; r < batch->seq[s].rows; r += step)
			for (uint32_t h = 0; h < a->group->kv_heads; h++, item++) {
				uint32_t rows = batch->seq[s].rows - r < step ? batch->seq[s].rows - r : step;
				if (item % a->self->threads == a->self->index)
					attend_item(a, batch->seq[s].first_row + r, rows, h);
			}
}

/* One query's part over one segment: o, then m and l. */
static float *partial_of(const struct attention *a, uint32_t row, uint32_t head, uint32_t segment)
{
	const struct cpu_program *program = a->program;
	size_t at =
	    ((size_t)row * a->op->u.attn.heads + head) * program->segments + segment / TAPE_KV_SEGMENT;
	return program->partial + at * (a->padded_dv + CACHE_LINE_FLOATS);
}

/* Up to ATTEND_QUERIES of one row's queries over one segment. */
struct part {
	uint32_t row, segment, next; /* next: the segment after it */
	uint32_t heads, n;           /* kv heads, queries of each */
	struct attention_source source[ATTEND_QUERIES];
	struct attention_query query[ATTEND_QUERIES];
};

/* Queries [from, from + n) of a kv head. */
static void add_to_part(const struct attention *a, struct part *part, uint32_t kv_head, uint32_t from)
{
	struct attention_query *query = part->query + part->heads * part->n;

	for (uint32_t i = 0; i < part->n; i++) {
		uint32_t head = kv_head * a->heads_per_kv + from + i;
		query[i] = query_of(a, part->row, kv_head, from + i,
				    partial_of(a, part->row, head, part->segment), head);
	}
	part->source[part->heads++] = source_of(a, a->program->batch->sequence[part->row], kv_head);
}

static void finish_part(const struct attention *a, struct part *part)
{
	uint32_t end = a->program->batch->position[part->row] + 1, left = end - part->segment;

	part->source->ahead = block_of(part->source, part->next < end ? part->next : part->segment);
	a->program->isa->attend(part->source, part->heads, part->query, part->n, part->segment,
				part->segment + TAPE_KV_SEGMENT);
	for (uint32_t i = 0; i < part->heads * part->n; i++) {
		part->query[i].o[a->padded_dv] = part->query[i].m;
		part->query[i].o[a->padded_dv + 1] = part->query[i].l;
	}
	pool_work(a->self, (uint64_t)part->heads * part->n *
			       (left < TAPE_KV_SEGMENT ? left : TAPE_KV_SEGMENT) *
			       (a->group->dk + a->group->dv));
	part->heads = 0;
}

/* One segment for kv heads first, first + step, ...; as many at once as a call takes. */
static void attend_part(const struct attention *a, uint32_t row, uint32_t segment, uint32_t next,
			uint32_t first, uint32_t step)
{
	struct part part; /* large: what is not used is not cleared */

	part.row = row;
	part.segment = segment;
	part.next = next;
	part.heads = 0;
	for (uint32_t from = 0; from < a->heads_per_kv; from += part.n) {
		uint32_t left = a->heads_per_kv - from;
		part.n = left < ATTEND_QUERIES ? left : ATTEND_QUERIES;
		for (uint32_t h = first; h < a->group->kv_heads; h += step) {
			add_to_part(a, &part, h, from);
			if (h + step >= a->group->kv_heads || (part.heads + 1) * part.n > ATTEND_QUERIES)
				finish_part(a, &part);
		}
	}
}

static void merge_parts(const struct attention *a, uint32_t row, uint32_t head)
{
	uint32_t first = first_key(a, row) / TAPE_KV_SEGMENT * TAPE_KV_SEGMENT;
	uint32_t end = a->program->batch->position[row] + 1, dv = a->group->dv;
	float *total = partial_of(a, row, head, first);

	for (uint32_t s = first + TAPE_KV_SEGMENT; s < end; s += TAPE_KV_SEGMENT) {
		float *o = partial_of(a, row, head, s);
		struct attention_query part = {.o = o, .m = o[a->padded_dv], .l = o[a->padded_dv + 1]};
		a->program->isa->merge(&total[a->padded_dv], &total[a->padded_dv + 1], total, &part, dv);
	}
	a->program->isa->divide(total, total[a->padded_dv + 1], dv,
				buffer_row(a->program, a->op->out[0], row) + (size_t)head * dv);
}

/* Whole segments are dealt when there are many, their kv heads else. */
static void attend_row_split(const struct attention *a, uint32_t row, uint32_t *segments)
{
	uint32_t first = first_key(a, row) / TAPE_KV_SEGMENT * TAPE_KV_SEGMENT;
	uint32_t last = a->program->batch->position[row], threads = a->self->threads;
	bool whole = (last - first) / TAPE_KV_SEGMENT >= WHOLE_SEGMENTS * threads;

	for (uint32_t i = 0; i < a->op->u.attn.heads; i++)
		quantise_query(a, row, i / a->heads_per_kv, i % a->heads_per_kv, i);
	for (uint32_t s = first; s <= last; s += TAPE_KV_SEGMENT, ++*segments) {
		/* This thread's heads h: (segments * kv_heads + h) mod threads is its index. */
		uint32_t dealt = *segments % threads * (a->group->kv_heads % threads) % threads;
		if (!whole)
			attend_part(a, row, s, s + TAPE_KV_SEGMENT,
				    (a->self->index + threads - dealt) % threads, threads);
		else if (*segments % threads == a->self->index)
			attend_part(a, row, s, s + threads * TAPE_KV_SEGMENT, 0, 1);
	}
}

static void attend_split(const struct attention *a)
{
	const struct batch *batch = a->program->batch;
	uint32_t segments = 0, first, end;

	for (uint32_t r = 0; r < batch->rows; r++)
		attend_row_split(a, r, &segments);
	pool_barrier(a->self);
	own_items(SPLIT_COLUMNS, batch->rows, a->op->u.attn.heads, a->self, &first, &end);
	for (uint32_t i = first; i < end; i++)
		merge_parts(a, i / a->op->u.attn.heads, i % a->op->u.attn.heads);
}

static bool long_context(const struct batch *batch)
{
	for (uint32_t s = 0; s < batch->sequences; s++)
		if (batch->seq[s].kv_len > TAPE_KV_SEGMENT)
			return true;
	return false;
}

void run_attention(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	const struct tape_group *group = &program_tape(program)->groups[step->op->u.attn.group];
	struct attention a = {
	    .program = program,
	    .op = step->op,
	    .group = group,
	    .self = self,
	    .heads_per_kv = step->op->u.attn.heads / group->kv_heads,
	    .padded_dv = (group->dv + CACHE_LINE_FLOATS - 1) / CACHE_LINE_FLOATS * CACHE_LINE_FLOATS,
	};

	if (program->batch->rows <= program->partial_rows &&
	    (self->threads == 1 || long_context(program->batch)))
		attend_split(&a);
	else
		attend_dealt(&a);
}
