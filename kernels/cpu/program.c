#include "kernels/cpu/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/backend_cpu.h"
#include "kernels/formats.h"

/* Hands out parts of one mapping. With base NULL it only counts. */
struct arena {
	uint8_t *base;
	size_t bytes;
};

static void *take(struct arena *arena, size_t bytes)
{
	void *at = arena->base ? arena->base + arena->bytes : NULL;

	arena->bytes += (bytes + 127) / 128 * 128;
	return at;
}

/* ---- shapes ---- */

static void mark_vector(struct cpu_program *program, uint16_t weight)
{
	if (weight != TAPE_NONE)
		program->weights[weight].is_vector = true;
}

static void mark_uses(struct cpu_program *program)
{
	const struct tape *tape = program_tape(program);

	for (uint32_t i = 0; i < tape->n_ops; i++) {
		const struct tape_op *op = &tape->ops[i];
		bool has_bias = op->kind == TAPE_NORM || op->kind == TAPE_MATMUL || op->kind == TAPE_LOGITS ||
				op->kind == TAPE_ROUTE;
		bool has_matrix = op->kind == TAPE_EMBED || (has_bias && op->kind != TAPE_NORM);
		if (op->kind == TAPE_NORM)
			mark_vector(program, op->weight);
		if (has_bias)
			mark_vector(program, op->bias);
		if (has_matrix)
			program->weights[op->weight].is_matrix = true;
		for (int j = 0; op->kind == TAPE_EXPERTS && j < 3; j++)
			program->weights[op->weights[j]].is_matrix = true;
	}
}

static void add_matrix(struct cpu_program *program, uint16_t weight)
{
	if (!program->weights[weight].ordered)
		program->order[program->n_matrices++] = weight;
	program->weights[weight].ordered = true;
}

/* Products in the order of the tape, then the matrices that are only looked up. */
static void order_matrices(struct cpu_program *program)
{
	const struct tape *tape = program_tape(program);

	for (uint32_t i = 0; i < tape->n_ops; i++) {
		const struct tape_op *op = &tape->ops[i];
		if (op->kind == TAPE_MATMUL || op->kind == TAPE_LOGITS || op->kind == TAPE_ROUTE)
			add_matrix(program, op->weight);
		for (int j = 0; op->kind == TAPE_EXPERTS && j < 3; j++)
			add_matrix(program, op->weights[j]);
	}
	for (uint32_t i = 0; i < tape->n_weights; i++)
		if (program->weights[i].is_matrix)
			add_matrix(program, (uint16_t)i);
}

static void shape_weights(struct cpu_program *program)
{
	const struct tape *tape = program_tape(program);

	for (uint32_t i = 0; i < tape->n_weights; i++) {
		const struct tape_weight *from = &tape->weights[i];
		struct cpu_weight *to = &program->weights[i];
		to->type = from->type;
		to->kind = panel_kind_of(from->type);
		to->n = from->n;
		to->k = from->k;
		to->experts = from->experts;
		to->panel_bytes = panel_bytes(to->kind, to->k);
		to->threads = program->threads;
		to->share = program->shares + (size_t)i * program->threads;
	}
	mark_uses(program);
	order_matrices(program);
}

static void shape_kv(struct cpu_program *program)
{
	for (uint32_t g = 0; g < program_tape(program)->n_groups; g++) {
		const struct tape_group *group = &program_tape(program)->groups[g];
		struct cpu_kv *kv = &program->kv[g];
		enum weight_type type = program->base.limits.kv_type;
		kv->key_bytes = kv_key_bytes(type, group->dk);
		kv->value_bytes = kv_value_bytes(type, group->dv);
		kv->block_bytes = group->kv_heads * (kv->key_bytes + kv->value_bytes);
		kv->layer_bytes = kv->block_bytes * program->base.limits.blocks[g];
		kv->bytes = kv->layer_bytes * group->layers;
	}
}

static uint32_t row_limit(const struct cpu_program *program, uint8_t rows)
{
	const struct tape_limits *limits = &program->base.limits;
	return rows == ROW_TOKEN ? limits->rows : rows == ROW_OUTPUT ? limits->outputs : limits->sequences;
}

static void shape_buffers(struct cpu_program *program)
{
	const struct tape *tape = program_tape(program);

	for (uint32_t i = 0; i < tape->n_buffers; i++) {
		const struct tape_buffer *from = &tape->buffers[i];
		struct cpu_buffer *to = &program->buffers[i];
		const struct cpu_buffer *parent =
		    from->parent == TAPE_NONE ? NULL : &program->buffers[from->parent];
		to->width = from->width;
		to->rows = from->rows;
		to->root = parent ? parent->root : (uint16_t)i;
		to->column = parent ? parent->column + from->column : 0;
		to->stride =
		    parent ? parent->stride
			   : (from->width + CACHE_LINE_FLOATS - 1) / CACHE_LINE_FLOATS * CACHE_LINE_FLOATS;
	}
}

/* The largest sizes that any operation needs of shared scratch. */
struct needs {
	size_t input_bytes, row_floats;
	uint32_t dk, dv, heads, kv_heads; /* of attention; kv_heads: the fewest */
	uint32_t hidden, products, used;
	uint32_t vocab;
};

static void need(size_t *most, size_t bytes)
{
	*most = bytes > *most ? bytes : *most;
}

static void need_u32(uint32_t *most, uint32_t n)
{
	*most = n > *most ? n : *most;
}

static void find_op_needs(const struct cpu_program *program, const struct tape_op *op, struct needs *needs)
{
	const struct cpu_weight *weights = program->weights;
	const struct tape_group *group = &program_tape(program)->groups[op->u.attn.group % TAPE_GROUPS_MAX];

	if (op->kind == TAPE_ATTN) {
		need_u32(&needs->dk, group->dk);
		need_u32(&needs->dv, group->dv);
		need_u32(&needs->heads, op->u.attn.heads);
		if (!needs->kv_heads || group->kv_heads < needs->kv_heads)
			needs->kv_heads = group->kv_heads;
	} else if (op->kind == TAPE_ROUTE) {
		need(&needs->row_floats, 2 * (size_t)weights[op->weight].n);
	} else if (op->kind == TAPE_EXPERTS) {
		need_u32(&needs->hidden, weights[op->weights[0]].n);
		need_u32(&needs->products, 2 * weights[op->weights[0]].n);
		need_u32(&needs->products, weights[op->weights[2]].n);
		need_u32(&needs->used, op->u.route.used);
	} else if (op->kind == TAPE_LOGITS) {
		needs->vocab = weights[op->weight].n;
	}
}

static struct needs find_needs(const struct cpu_program *program)
{
	const struct tape *tape = program_tape(program);
	struct needs needs = {0};

	for (uint32_t i = 0; i < tape->n_weights; i++)
		if (program->weights[i].is_matrix)
			need(&needs.input_bytes,
			     panel_input_bytes(program->weights[i].kind, program->weights[i].k, CHUNK_ROWS));
	for (uint32_t i = 0; i < tape->n_buffers; i++)
		need(&needs.row_floats, tape->buffers[i].width);
	for (uint32_t i = 0; i < tape->n_ops; i++)
		find_op_needs(program, &tape->ops[i], &needs);
	return needs;
}

/* ---- memory ---- */

static void place_vectors(struct cpu_program *program, struct arena *arena)
{
	for (uint32_t i = 0; i < program_tape(program)->n_weights; i++) {
		struct cpu_weight *weight = &program->weights[i];
		if (weight->is_vector)
			weight->vector = take(arena, weight->k * sizeof(float));
	}
}

/* What a thread reads in a step is one ascending stream. */
static void place_panels(struct cpu_program *program, struct arena *arena)
{
	for (uint32_t t = 0; t < program->threads; t++)
		for (uint32_t i = 0; i < program->n_matrices; i++) {
			struct cpu_weight *weight = &program->weights[program->order[i]];
			uint32_t first, end;

			pool_share(t, program->threads, panel_count(weight->n), &first, &end);
			weight->share[t] =
			    take(arena, (size_t)weight->experts * (end - first) * weight->panel_bytes);
		}
}

static void place_buffers(struct cpu_program *program, struct arena *arena)
{
	for (uint32_t i = 0; i < program_tape(program)->n_buffers; i++) {
		struct cpu_buffer *buffer = &program->buffers[i];
		if (buffer->root == i)
			buffer->data = take(arena, (size_t)row_limit(program, buffer->rows) * buffer->stride *
						       sizeof(float));
		else if (arena->base)
			buffer->data = program->buffers[buffer->root].data + buffer->column;
	}
}

static void place_angles(struct cpu_program *program, struct arena *arena)
{
	const struct tape *tape = program_tape(program);

	for (uint32_t i = 0; i < tape->n_tables; i++) {
		size_t bytes = (size_t)program->base.limits.rows * tape->tables[i].n * sizeof(float);
		program->cosine[i] = take(arena, bytes);
		program->sine[i] = take(arena, bytes);
	}
}

static uint32_t padded(uint32_t floats)
{
	return (floats + CACHE_LINE_FLOATS - 1) / CACHE_LINE_FLOATS * CACHE_LINE_FLOATS;
}

static void place_private(struct cpu_program *program, const struct needs *needs, struct arena *arena)
{
	for (uint32_t i = 0; i < program->threads; i++) {
		struct cpu_private *mine = &program->private[i];
		mine->input = take(arena, needs->input_bytes);
		mine->row = take(arena, needs->row_floats * sizeof(float));
		mine->queries = take(arena, (needs->heads + QUERY_ROWS) * query_blocks(needs->dk) *
						sizeof *mine->queries);
		mine->attention = take(arena, 2 * (size_t)QUERY_ROWS * padded(needs->dv) * sizeof(float));
		mine->slots = take(arena, (size_t)program->base.limits.rows * needs->used * sizeof(uint32_t));
		mine->products = take(arena, (size_t)CHUNK_ROWS * needs->products * sizeof(float));
		mine->best = take(arena, program->base.limits.outputs * sizeof *mine->best);
		mine->chosen = take(arena, panel_count(needs->vocab) * sizeof *mine->chosen);
	}
}

/* Batches of so few rows that their heads do not keep all threads busy are split by segment. */
static void place_partial(struct cpu_program *program, const struct needs *needs, struct arena *arena)
{
	if (!needs->heads)
		return;
	uint32_t rows = (4 * program->threads + needs->kv_heads - 1) / needs->kv_heads;
	program->partial_rows = rows < program->base.limits.rows ? rows : program->base.limits.rows;
	program->segments = (program->base.limits.context + TAPE_KV_SEGMENT - 1) / TAPE_KV_SEGMENT;
	size_t one = (padded(needs->dv) + CACHE_LINE_FLOATS) * sizeof(float);
	program->partial =
	    take(arena, program->partial_rows * (size_t)needs->heads * program->segments * one);
}

static void place_scratch(struct cpu_program *program, struct arena *arena)
{
	const struct tape_limits *limits = &program->base.limits;
	struct needs needs = find_needs(program);

	place_buffers(program, arena);
	place_angles(program, arena);
	place_private(program, &needs, arena);
	place_partial(program, &needs, arena);
	program->hidden = take(arena, (size_t)limits->rows * needs.used * needs.hidden * sizeof(float));
	program->logits_stride = needs.vocab;
	program->logits = take(arena, (size_t)limits->logits * needs.vocab * sizeof(float));
	program->best = take(arena, limits->outputs * sizeof *program->best);
	program->outputs = take(arena, limits->outputs * sizeof *program->outputs);
	program->logits_row = take(arena, limits->outputs * sizeof *program->logits_row);
	program->faulty = take(arena, limits->rows * sizeof *program->faulty);
	program->faults = take(arena, limits->rows);
}

static void place(struct cpu_program *program, bool count)
{
	struct arena weights = {count ? NULL : program->weight_arena, 0};
	struct arena vectors = {count ? NULL : program->vector_arena, 0};
	struct arena scratch = {count ? NULL : program->scratch_arena, 0};

	place_panels(program, &weights);
	place_vectors(program, &vectors);
	place_scratch(program, &scratch);
	program->weight_bytes = weights.bytes;
	program->vector_bytes = vectors.bytes;
	program->scratch_bytes = scratch.bytes;
}

/* A program without memory for weights, KV and scratch: enough to measure. */
static struct cpu_program *create(struct cpu_backend *backend, const struct tape *tape,
				  const struct tape_limits *limits)
{
	struct cpu_program *program = calloc(1, sizeof *program);

	if (!program)
		return NULL;
	program->base = (struct program){&backend_cpu_ops, tape, *limits};
	program->isa = backend->isa;
	program->pool = backend->pool;
	program->memory = backend->memory;
	program->threads = pool_threads(backend->pool);
	program->weights = calloc(tape->n_weights + 1, sizeof *program->weights);
	program->order = calloc(tape->n_weights + 1, sizeof *program->order);
	program->shares = calloc((size_t)tape->n_weights * program->threads + 1, sizeof *program->shares);
	program->buffers = calloc(tape->n_buffers + 1, sizeof *program->buffers);
	program->private = calloc(program->threads, sizeof *program->private);
	program->cosine = calloc(2 * (size_t)tape->n_tables + 1, sizeof *program->cosine);
	if (!program->weights || !program->order || !program->shares || !program->buffers ||
	    !program->private || !program->cosine) {
		cpu_program_close(&program->base);
		return NULL;
	}
	program->sine = program->cosine + tape->n_tables;
	shape_weights(program);
	shape_kv(program);
	shape_buffers(program);
	place(program, true);
	return program;
}

int cpu_program_measure(struct backend *base, const struct tape *tape, const struct tape_limits *limits,
			struct program_bytes *ret)
{
	struct cpu_program *program = create((struct cpu_backend *)base, tape, limits);

	if (!program)
		return -ENOMEM;
	*ret = (struct program_bytes){
	    .weights = program->weight_bytes + program->vector_bytes,
	    .scratch = program->scratch_bytes,
	};
	for (uint32_t g = 0; g < tape->n_groups; g++)
		ret->kv += program->kv[g].bytes;
	cpu_program_close(&program->base);
	return 0;
}

/* False with a sentence. */
static bool map_one(struct cpu_program *program, uint8_t **ret, enum backend_memory_use use, size_t bytes,
		    bool touch, char *why, size_t why_bytes)
{
	const struct backend_memory *memory = program->memory;

	*ret = memory->map(memory->context, use, bytes, touch, why, why_bytes);
	return *ret != NULL;
}

static int map_memory(struct cpu_program *program, char *why, size_t why_bytes)
{
	bool mapped = map_one(program, &program->weight_arena, BACKEND_WEIGHTS, program->weight_bytes, false,
			      why, why_bytes) &&
		      map_one(program, &program->vector_arena, BACKEND_WEIGHTS, program->vector_bytes, true,
			      why, why_bytes) &&
		      map_one(program, &program->scratch_arena, BACKEND_SCRATCH, program->scratch_bytes, true,
			      why, why_bytes);

	for (uint32_t g = 0; mapped && g < program_tape(program)->n_groups; g++) {
		mapped = map_one(program, &program->kv[g].data, BACKEND_KV, program->kv[g].bytes, true, why,
				 why_bytes);
	}
	return mapped ? 0 : -ENOMEM;
}

int cpu_program_compile(struct backend *base, const struct tape *tape, const struct tape_limits *limits,
			struct program **ret, char *why, size_t why_bytes)
{
	if (!kv_type_exact(limits->kv_type)) {
		snprintf(why, why_bytes, "The cpu backend keeps KV in F16, BF16 or Q8, not %s.",
			 weight_type_info[limits->kv_type].name);
		return -ENOTSUP;
	}
	struct cpu_program *program = create((struct cpu_backend *)base, tape, limits);
	if (!program) {
		snprintf(why, why_bytes, "No memory for a tape of %u weights.", tape->n_weights);
		return -ENOMEM;
	}
	int r = map_memory(program, why, why_bytes);
	if (r == 0) {
		place(program, false);
		r = program_plan(program, why, why_bytes);
	}
	if (r < 0) {
		cpu_program_close(&program->base);
		return r;
	}
	*ret = &program->base;
	return 0;
}

static void unmap_one(const struct cpu_program *program, void *memory, size_t bytes)
{
	if (memory)
		program->memory->unmap(program->memory->context, memory, bytes);
}

void cpu_program_close(struct program *base)
{
	struct cpu_program *program = (struct cpu_program *)base;

	unmap_one(program, program->weight_arena, program->weight_bytes);
	unmap_one(program, program->vector_arena, program->vector_bytes);
	unmap_one(program, program->scratch_arena, program->scratch_bytes);
	for (uint32_t g = 0; g < TAPE_GROUPS_MAX; g++)
		unmap_one(program, program->kv[g].data, program->kv[g].bytes);
	free(program->steps);
	free(program->cosine);
	free(program->private);
	free(program->buffers);
	free(program->shares);
	free(program->order);
	free(program->weights);
	free(program);
}

/* ---- weights, KV, steps ---- */

int cpu_program_load(struct program *base, uint32_t index, uint32_t row, uint32_t rows, const void *raw)
{
	struct cpu_weight *weight = &((struct cpu_program *)base)->weights[index];
	size_t row_bytes = weight_type_bytes(weight->type, weight->k);
	const uint8_t *from = raw;
	int r = 0;

	if (weight->is_vector)
		weight_dequantise(weight->type, raw, weight->k, weight->vector);
	if (!weight->is_matrix)
		return 0;
	for (uint32_t done = 0, n; done < rows; done += n) {
		uint32_t expert = (row + done) / weight->n, lane = (row + done) % weight->n;
		uint8_t *panel = weight_panel(weight, expert, lane / PANEL_ROWS);
		n = weight->n - lane < PANEL_ROWS ? weight->n - lane : PANEL_ROWS;
		n = rows - done < n ? rows - done : n;
		int bad = panel_pack(weight->type, from + done * row_bytes, n, weight->k, panel);
		r = bad < 0 ? bad : r;
	}
	return r;
}

void cpu_program_fill_block(struct program *base, uint32_t group, uint32_t from, uint32_t to)
{
	const struct cpu_program *program = (struct cpu_program *)base;
	size_t bytes = program->kv[group].block_bytes;

	for (uint32_t layer = 0; layer < base->tape->groups[group].layers; layer++) {
		uint8_t *block = kv_block(program, group, layer, to);
		if (from == UINT32_MAX)
			memset(block, 0, bytes);
		else
			memmove(block, kv_block(program, group, layer, from), bytes);
	}
}

static void run_all(void *data, struct team_thread *self)
{
	struct cpu_program *program = data;
	enum split split = program->split;

	for (uint32_t i = 0; i < program->n_steps; i++) {
		const struct cpu_step *step = &program->steps[i];
		if (step->meet[split])
			pool_barrier(self);
		step->run(program, step, self);
	}
}

int cpu_program_step(struct program *base, const struct batch *batch)
{
	struct cpu_program *program = (struct cpu_program *)base;
	bool many = batch->rows >= ROW_SPLIT_MIN * program->threads;

	program->batch = batch;
	logits_begin(program);
	program->split = many || program->threads == 1 ? SPLIT_ROWS : SPLIT_COLUMNS;
	for (uint32_t i = 0; i < batch->rows; i++)
		store_relaxed_u32(&program->faulty[i], 0);
	pool_run(program->pool, run_all, program);
	logits_end(program);
	for (uint32_t i = 0; i < batch->rows; i++)
		program->faults[i] = load_relaxed_u32(&program->faulty[i]) != 0;
	program->batch = NULL;
	return STEP_DONE;
}

/* Tiles of every size, rows split, attention not split; a row's segments dealt whole. All further rows and
 * keys are further rounds of the same loops. */
void cpu_program_paths(const struct program *base, struct program_paths *ret)
{
	const struct cpu_program *program = (const struct cpu_program *)base;
	uint32_t rows = ROW_SPLIT_MIN * program->threads;

	need_u32(&rows, 2 * TILE_ROWS);
	need_u32(&rows, program->partial_rows + 1);
	*ret = (struct program_paths){.rows = rows, .keys = attention_paths(program->threads)};
}

const float *cpu_program_logits(const struct program *base)
{
	return ((const struct cpu_program *)base)->logits;
}

const struct output_best *cpu_program_best(const struct program *base)
{
	return ((const struct cpu_program *)base)->best;
}

const float *cpu_program_hidden(const struct program *base, size_t *ret_stride)
{
	const struct cpu_program *program = (const struct cpu_program *)base;

	*ret_stride = 0;
	if (program->hidden_buffer == TAPE_NONE)
		return NULL;
	*ret_stride = program->buffers[program->hidden_buffer].stride;
	return program->buffers[program->hidden_buffer].data;
}

const uint8_t *cpu_program_faults(const struct program *base)
{
	return ((const struct cpu_program *)base)->faults;
}
