/* What the engine holds for its model, and the warm-up: batches of every shape that takes a path of its own
 * through the backend run once before READY, so that no first request pays for page faults, code that was
 * never touched, or a backend's lazy decisions. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/engine/engine_internal.h"
#include "shm/resident.h"

static int check(const struct engine_model *model, char *why, size_t why_bytes)
{
	const struct tape_limits *limits = &model->limits;

	if (limits->rows >= limits->sequences && limits->outputs == limits->rows &&
	    limits->logits >= limits->sequences && limits->sequences && limits->context && model->n_eos <= 32)
		return 0;
	snprintf(
	    why, why_bytes,
	    "a step of %u tokens and %u rows of logits cannot hold %u sequences; raise max_batch_tokens or "
	    "lower max_batch_sequences",
	    limits->rows, limits->logits, limits->sequences);
	return -EINVAL;
}

static int allocate_batch(struct engine *engine)
{
	const struct tape_limits *limits = &engine->model.limits;

	engine->token = resident_calloc(limits->rows, sizeof(uint32_t));
	engine->position = resident_calloc(limits->rows, sizeof(uint32_t));
	engine->row_sequence = resident_calloc(limits->rows, sizeof(uint32_t));
	engine->output_row = resident_calloc(limits->outputs, sizeof(uint32_t));
	engine->output = resident_calloc(limits->outputs, sizeof(*engine->output));
	engine->batch_sequences = resident_calloc(limits->sequences, sizeof(*engine->batch_sequences));
	engine->batch_owner = resident_calloc(limits->sequences, sizeof(struct sequence *));
	for (uint32_t g = 0; g < engine->model.tape->n_groups; g++) {
		engine->table[g] =
		    resident_calloc((size_t)limits->sequences * engine->stride, sizeof(uint32_t));
		if (!engine->table[g])
			return -ENOMEM;
	}
	return engine->token && engine->position && engine->row_sequence && engine->output_row &&
		       engine->output && engine->batch_sequences && engine->batch_owner
		   ? 0
		   : -ENOMEM;
}

static int allocate_sequences(struct engine *engine)
{
	const struct tape_limits *limits = &engine->model.limits;
	uint32_t groups = engine->model.tape->n_groups, stride = engine->stride;
	uint32_t width = engine->model.tape->width;

	engine->sequences = resident_calloc(limits->sequences, sizeof(*engine->sequences));
	engine->sequence_tokens =
	    resident_calloc((size_t)limits->sequences * limits->context, sizeof(uint32_t));
	engine->sequence_blocks =
	    resident_calloc((size_t)limits->sequences * groups * stride, sizeof(uint32_t));
	engine->sequence_sums = resident_calloc((size_t)limits->sequences * width + 1, sizeof(float));
	if (!engine->sequences || !engine->sequence_tokens || !engine->sequence_blocks ||
	    !engine->sequence_sums)
		return -ENOMEM;
	for (uint32_t i = 0; i < limits->sequences; i++) {
		engine->sequences[i].tokens = engine->sequence_tokens + (size_t)i * limits->context;
		engine->sequences[i].sums = engine->sequence_sums + (size_t)i * width;
		for (uint32_t g = 0; g < groups; g++)
			kv_table_init(&engine->sequences[i].table[g],
				      engine->sequence_blocks + ((size_t)i * groups + g) * stride, stride);
	}
	return 0;
}

static int allocate(struct engine *engine)
{
	const struct tape_limits *limits = &engine->model.limits;
	int error = sampler_init(&engine->sampler, engine->model.tape->vocab, engine->config.poll,
				 engine->config.poll_data);

	for (uint32_t g = 0; !error && g < engine->model.tape->n_groups; g++)
		error = kv_pool_init(&engine->pool[g], limits->blocks[g]);
	if (!error)
		error = allocate_sequences(engine);
	if (!error)
		error = allocate_batch(engine);
	return error;
}

int engine_set_model(struct engine *engine, const struct engine_model *model, char *why, size_t why_bytes)
{
	int error = check(model, why, why_bytes);

	if (error)
		return error;
	engine->model = *model;
	engine->stride = kv_blocks_for(model->limits.context);
	error = allocate(engine);
	if (error) {
		snprintf(why, why_bytes, "no memory for the tables of %u sequences of %u tokens",
			 model->limits.sequences, model->limits.context);
		return error;
	}
	store_relaxed_u64(&engine->counts.kv_blocks, model->limits.blocks[0] - 1);
	/* Release: pairs with the acquire in engine_turn. */
	store_release_u32(&engine->stage, STAGE_WARMING);
	return 0;
}

void engine_fail_model(struct engine *engine)
{
	/* Release: pairs with the acquire of whoever reads the limits. */
	store_release_u32(&engine->config.link->limits.state, WIRE_MODEL_FAILED);
	store_release_u32(&engine->stage, STAGE_FAILED);
}

void engine_free_model(struct engine *engine)
{
	sampler_free(&engine->sampler);
	for (uint32_t g = 0; g < TAPE_GROUPS_MAX; g++) {
		kv_pool_free(&engine->pool[g]);
		free(engine->table[g]);
	}
	free(engine->sequences);
	free(engine->sequence_tokens);
	free(engine->sequence_blocks);
	free(engine->sequence_sums);
	free(engine->token);
	free(engine->position);
	free(engine->row_sequence);
	free(engine->output_row);
	free(engine->output);
	free(engine->batch_sequences);
	free(engine->batch_owner);
}

/* ---- warm-up ---- */

static uint32_t minimum(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* One sequence of `rows` rows, the last at position keys - 1, beside `singles` sequences of one row each. */
struct shape {
	uint32_t rows, keys, singles;
};

/* Terms of the series 1, 2, 4 ... n, which ends with n itself. */
static uint32_t terms(uint32_t n)
{
	uint32_t count = 1;

	while (n > 1u << (count - 1))
		count++;
	return count;
}

/* Half of the rows are a prompt, the others decode, as far as there may be so many sequences. */
static struct shape mixed(const struct tape_limits *limits, uint32_t rows)
{
	uint32_t singles = minimum(rows / 2, limits->sequences - 1);
	uint32_t prompt = minimum(rows - singles, limits->context);

	return (struct shape){prompt, prompt, singles};
}

/* Shape i of those that take a path of their own (program_paths): one row after many keys; 2, 4, 8 ... rows,
 * the last time over the border of two segments of keys; then a prompt that shows the pace of prefill. False:
 * i is past it. */
static bool shape(const struct engine *engine, uint32_t i, struct shape *ret)
{
	const struct tape_limits *limits = &engine->model.limits;
	uint32_t rows, last, prompt;
	struct program_paths paths;

	program_paths(engine->model.program, &paths);
	rows = minimum(paths.rows, limits->rows);
	last = terms(rows) - 1;
	prompt = minimum(2 * rows, minimum(limits->rows, limits->context));
	if (i > last + 1)
		return false;
	if (i == 0)
		*ret = (struct shape){1, minimum(paths.keys, limits->context), 0};
	else if (i <= last)
		*ret = mixed(limits, minimum(1u << i, rows));
	else
		*ret = (struct shape){prompt, prompt, 0};
	if (i && i == last)
		ret->keys = minimum(ret->rows + TAPE_KV_SEGMENT, limits->context);
	return true;
}

/* Blocks that nobody has yet, each sequence its own, because threads write to them at the same time. The null
 * block where there are too few. */
static void use_blocks(struct engine *engine, uint32_t s, uint32_t keys, uint32_t *next)
{
	for (uint32_t b = 0; b < kv_blocks_for(keys); b++, ++*next)
		for (uint32_t g = 0; g < engine->model.tape->n_groups; g++)
			engine->table[g][(size_t)s * engine->stride + b] =
			    *next < engine->model.limits.blocks[g] ? *next : 0;
}

/* Tokens 0. The first sequence wants a chosen logit, the others by turns the best and all. */
static void add_sequence(struct engine *engine, struct batch *batch, uint32_t rows, uint32_t keys,
			 uint32_t *next_block)
{
	static const uint32_t chosen = 0;
	uint32_t s = batch->sequences++;

	use_blocks(engine, s, keys, next_block);
	engine->batch_sequences[s] =
	    (struct batch_sequence){.first_row = batch->rows, .rows = rows, .kv_len = keys};
	for (uint32_t r = 0; r < rows; r++, batch->rows++) {
		engine->token[batch->rows] = 0;
		engine->position[batch->rows] = keys - rows + r;
		engine->row_sequence[batch->rows] = s;
	}
	engine->output_row[s] = batch->rows - 1;
	engine->output[s] = s ? (struct batch_output){.want = s % 2 ? OUTPUT_BEST : OUTPUT_LOGITS}
			      : (struct batch_output){OUTPUT_CHOSEN, 1, &chosen};
	batch->outputs++;
}

static struct batch batch_of(struct engine *engine, const struct shape *shape)
{
	struct batch batch = {
	    .token = engine->token,
	    .position = engine->position,
	    .sequence = engine->row_sequence,
	    .seq = engine->batch_sequences,
	    .table_stride = engine->stride,
	    .output_row = engine->output_row,
	    .output = engine->output,
	};
	uint32_t next_block = 1; /* 0 is the null block */

	for (uint32_t g = 0; g < engine->model.tape->n_groups; g++)
		batch.table[g] = engine->table[g];
	add_sequence(engine, &batch, shape->rows, shape->keys, &next_block);
	for (uint32_t i = 0; i < shape->singles; i++)
		add_sequence(engine, &batch, 1, 1, &next_block);
	return batch;
}

static void publish(struct engine *engine)
{
	struct engine_limits *limits = &engine->config.link->limits;
	const struct engine_model *model = &engine->model;
	uint32_t blocks = UINT32_MAX;

	for (uint32_t g = 0; g < model->tape->n_groups; g++)
		blocks = minimum(blocks, model->limits.blocks[g] - 1);
	limits->vocab = model->tape->vocab;
	limits->width = model->tape->width;
	limits->context = model->limits.context;
	limits->max_prompt = minimum(model->max_prompt, model->limits.context);
	limits->kv_tokens =
	    (uint32_t)((uint64_t)blocks * KV_BLOCK_TOKENS < UINT32_MAX ? blocks * KV_BLOCK_TOKENS
								       : UINT32_MAX);
	limits->n_eos = model->n_eos;
	for (uint32_t i = 0; i < model->n_eos; i++)
		limits->eos[i] = model->eos[i];
	store_relaxed_u64(&engine->counts.ready_ns, engine_now(engine));
	/* Release: pairs with the acquire of whoever reads the limits. */
	store_release_u32(&limits->state, WIRE_MODEL_READY);
	store_release_u32(&engine->stage, STAGE_READY);
}

/* Whether the bound on a step keeps the scheduler from so many rows, by far. */
static bool never_planned(const struct engine *engine, const struct shape *shape)
{
	return shape->rows > 2 && engine->config.max_step_ns &&
	       engine->token_ns * shape->rows > 4 * engine->config.max_step_ns;
}

void engine_warm(struct engine *engine)
{
	struct shape next;
	struct batch batch;
	uint64_t before;

	if (!shape(engine, engine->warm_shape, &next) || never_planned(engine, &next)) {
		publish(engine);
		return;
	}
	batch = batch_of(engine, &next);
	before = engine_now(engine);
	if (program_step(engine->model.program, &batch) != STEP_DONE) {
		engine_fail_model(engine);
		return;
	}
	engine->token_ns = (engine_now(engine) - before) / batch.rows;
	engine->warm_shape++;
	store_relaxed_u64(&engine->counts.warmed_shapes, engine->warm_shape);
}
