#include "kernels/ref/ref.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int open_ref(const struct backend_config *config, bool f32, const struct backend_ops *ops,
		    struct backend **ret, char *why, size_t why_bytes)
{
	struct ref_backend *backend = calloc(1, sizeof *backend);

	if (!backend) {
		snprintf(why, why_bytes, "No memory for the reference backend.");
		return -ENOMEM;
	}
	backend->base.ops = ops;
	backend->f32 = f32;
	backend->poll = config->poll;
	backend->poll_data = config->poll_data;
	__builtin_cpu_init();
	backend->step = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? ref_step_fma
											: ref_step_portable;
	*ret = &backend->base;
	return 0;
}

static int open_int8(const struct backend_config *config, struct backend **ret, char *why, size_t why_bytes)
{
	return open_ref(config, false, &backend_ref_int8_ops, ret, why, why_bytes);
}

static int open_f32(const struct backend_config *config, struct backend **ret, char *why, size_t why_bytes)
{
	return open_ref(config, true, &backend_ref_f32_ops, ret, why, why_bytes);
}

static void close_ref(struct backend *backend)
{
	free(backend);
}

static const char *isa(const struct backend *backend)
{
	return backend->ops->kind;
}

static const char *numerics(const struct backend *backend)
{
	return ((const struct ref_backend *)backend)->f32 ? "f32-1" : CONTRACT_VERSION;
}

/* ---- sizes ---- */

static uint64_t buffer_rows(uint8_t rows, const struct tape_limits *limits)
{
	return rows == ROW_OUTPUT ? limits->outputs : rows == ROW_SEQUENCE ? limits->sequences : limits->rows;
}

static uint32_t largest_k(const struct tape *tape)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < tape->n_weights; i++)
		most = tape->weights[i].k > most ? tape->weights[i].k : most;
	return most;
}

/* Norm vectors, routing, one expert's hidden rows, an attention output: the largest of them. */
static uint64_t scratch_floats(const struct tape *tape)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < tape->n_buffers; i++)
		most =
		    2 * (uint64_t)tape->buffers[i].width > most ? 2 * (uint64_t)tape->buffers[i].width : most;
	for (uint32_t i = 0; i < tape->n_weights; i++)
		most = 3 * (uint64_t)tape->weights[i].n > most && tape->weights[i].experts > 1
			   ? 3 * (uint64_t)tape->weights[i].n
			   : most;
	for (uint32_t i = 0; i < tape->n_ops; i++)
		if (tape->ops[i].kind == TAPE_ROUTE && 2 * (uint64_t)tape->ops[i].u.route.experts > most)
			most = 2 * (uint64_t)tape->ops[i].u.route.experts;
	return most;
}

static uint64_t cache_floats(const struct tape_group *group, const struct tape_limits *limits, uint32_t g,
			     uint32_t d)
{
	return (uint64_t)group->layers * limits->blocks[g] * group->kv_heads * ref_head(limits->kv_type, d);
}

static int measure(struct backend *backend, const struct tape *tape, const struct tape_limits *limits,
		   struct program_bytes *ret)
{
	const struct ref_backend *ref = (const struct ref_backend *)backend;
	struct program_bytes bytes = {0};

	for (uint32_t i = 0; i < tape->n_weights; i++)
		bytes.weights += ref_weight_bytes(&tape->weights[i], ref->f32);
	for (uint32_t g = 0; g < tape->n_groups; g++)
		bytes.kv += (cache_floats(&tape->groups[g], limits, g, tape->groups[g].dk) +
			     cache_floats(&tape->groups[g], limits, g, tape->groups[g].dv)) *
			    sizeof(float);
	for (uint32_t i = 0; i < tape->n_buffers; i++)
		if (tape->buffers[i].parent == TAPE_NONE)
			bytes.scratch += buffer_rows(tape->buffers[i].rows, limits) * tape->buffers[i].width *
					 sizeof(float);
	bytes.scratch += ((uint64_t)limits->logits + 1) * tape->vocab * sizeof(float) +
			 limits->outputs * sizeof(struct output_best);
	bytes.scratch += (uint64_t)limits->rows * largest_k(tape) * 3 + scratch_floats(tape) * sizeof(float);
	*ret = bytes;
	return 0;
}

/* ---- programs ---- */

static int supported(const struct ref_backend *backend, const struct tape *tape,
		     const struct tape_limits *limits, char *why, size_t why_bytes)
{
	const char *fault = NULL;
	uint32_t at = 0;

	if (backend->f32 && limits->kv_type != TYPE_F32)
		fault = "a KV cache that is not F32 as ref-f32";
	else if (!backend->f32 && !kv_type_exact(limits->kv_type))
		fault = "a KV cache that is not F16, BF16 or Q8 as ref-int8";
	for (uint32_t g = 0; g < tape->n_groups && !fault; g++)
		if (tape->groups[g].kind != KV_FULL && tape->groups[g].kind != KV_WINDOW)
			fault = "latent or recurrent caches";
	for (; at < tape->n_ops && !fault; at++) {
		const struct tape_op *op = &tape->ops[at];
		if (op->kind == TAPE_MATMUL && op->u.matmul.heads > 1)
			fault = "block-diagonal matrices";
		else if (op->kind == TAPE_ATTN && op->u.attn.sinks != TAPE_NONE)
			fault = "attention sinks";
		else if ((op->kind == TAPE_ATTN || op->kind == TAPE_KV_WRITE) && op->u.attn.v_is_k)
			fault = "values that are a view of the keys";
		else if (op->kind == TAPE_ATTN && op->u.attn.bidirectional)
			fault = "bidirectional attention";
		else if (op->kind == TAPE_ROUTE && op->u.route.groups > 1)
			fault = "groups of experts";
		else if (op->segment)
			fault = "weights that are streamed";
	}
	if (!fault)
		return 0;
	snprintf(why, why_bytes, "The reference backend does not run %s.", fault);
	return -ENOTSUP;
}

static void close_program(struct program *base)
{
	struct ref_program *program = (struct ref_program *)base;
	const struct tape *tape = base->tape;

	for (uint32_t i = 0; program->weights && i < tape->n_weights; i++)
		ref_weight_destroy(&program->weights[i]);
	for (uint32_t i = 0; program->buffers && i < tape->n_buffers; i++)
		free(program->buffers[i]);
	for (uint32_t g = 0; g < tape->n_groups; g++) {
		free(program->cache[g].k);
		free(program->cache[g].v);
	}
	free(program->weights);
	free(program->buffers);
	free(program->input.q);
	free(program->input.s);
	free(program->input.sum);
	free(program->scratch);
	free(program->logits);
	free(program->best);
	free(program->faults);
	free(program->bad);
	free(program);
}

static bool allocate_cache(struct ref_program *program)
{
	const struct tape *tape = program->base.tape;

	for (uint32_t g = 0; g < tape->n_groups; g++) {
		const struct tape_group *group = &tape->groups[g];
		const struct tape_limits *limits = &program->base.limits;
		program->cache[g].k = calloc(cache_floats(group, limits, g, group->dk), sizeof(float));
		program->cache[g].v = calloc(cache_floats(group, limits, g, group->dv), sizeof(float));
		if (!program->cache[g].k || !program->cache[g].v)
			return false;
	}
	return true;
}

static bool allocate_rows(struct ref_program *program)
{
	const struct tape *tape = program->base.tape;
	const struct tape_limits *limits = &program->base.limits;
	size_t k = largest_k(tape), blocks = k / BLOCK_COLUMNS + 1;

	program->buffers = calloc(tape->n_buffers, sizeof *program->buffers);
	for (uint32_t i = 0; program->buffers && i < tape->n_buffers; i++) {
		const struct tape_buffer *buffer = &tape->buffers[i];
		if (buffer->parent != TAPE_NONE)
			continue;
		program->buffers[i] =
		    calloc(buffer_rows(buffer->rows, limits) * buffer->width, sizeof(float));
		if (!program->buffers[i])
			return false;
	}
	program->input.q = calloc(limits->rows * k, sizeof *program->input.q);
	program->input.s = calloc(limits->rows * blocks, sizeof *program->input.s);
	program->input.sum = calloc(limits->rows * blocks, sizeof *program->input.sum);
	program->scratch = calloc(scratch_floats(tape), sizeof(float));
	program->logits = calloc(((size_t)limits->logits + 1) * tape->vocab, sizeof(float));
	program->best = calloc(limits->outputs, sizeof *program->best);
	program->faults = calloc(limits->rows, 1);
	program->bad = calloc(limits->rows, 1);
	return program->buffers && program->input.q && program->input.s && program->input.sum &&
	       program->scratch && program->logits && program->best && program->faults && program->bad;
}

static bool allocate_weights(struct ref_program *program)
{
	const struct tape *tape = program->base.tape;

	program->weights = calloc(tape->n_weights + 1, sizeof *program->weights);
	for (uint32_t i = 0; program->weights && i < tape->n_weights; i++)
		if (ref_weight_create(&tape->weights[i], program->backend->f32, &program->weights[i]) < 0)
			return false;
	return program->weights != NULL;
}

static int compile(struct backend *backend, const struct tape *tape, const struct tape_limits *limits,
		   struct program **ret, char *why, size_t why_bytes)
{
	int err = supported((struct ref_backend *)backend, tape, limits, why, why_bytes);
	if (err < 0)
		return err;

	struct ref_program *program = calloc(1, sizeof *program);
	if (program) {
		program->base = (struct program){backend->ops, tape, *limits};
		program->backend = (struct ref_backend *)backend;
		program->hidden = TAPE_NONE;
		for (uint32_t i = 0; i < tape->n_ops; i++)
			if (tape->ops[i].kind == TAPE_LOGITS)
				program->hidden = tape->ops[i].in[0];
	}
	if (!program || !allocate_cache(program) || !allocate_rows(program) || !allocate_weights(program)) {
		if (program)
			close_program(&program->base);
		snprintf(why, why_bytes, "No memory for the weights, cache or buffers of the model.");
		return -ENOMEM;
	}
	*ret = &program->base;
	return 0;
}

static int load(struct program *base, uint32_t weight, uint32_t row, uint32_t rows, const void *raw)
{
	uint32_t state = contract_enter();
	int err = ref_weight_load(&((struct ref_program *)base)->weights[weight], row, rows, raw);

	contract_leave(state);
	return err;
}

static int step(struct program *base, const struct batch *batch)
{
	struct ref_program *program = (struct ref_program *)base;
	uint32_t state = contract_enter();

	program->backend->step(program, batch);
	contract_leave(state);
	return STEP_DONE;
}

/* Rows are one loop; a row's second segment of keys is the first that is merged. */
static void paths(const struct program *base, struct program_paths *ret)
{
	*ret = (struct program_paths){.rows = 1, .keys = TAPE_KV_SEGMENT + 1};
}

static const float *logits(const struct program *base)
{
	return ((const struct ref_program *)base)->logits;
}

static const struct output_best *best(const struct program *base)
{
	return ((const struct ref_program *)base)->best;
}

static const float *hidden(const struct program *base, size_t *ret_stride)
{
	const struct ref_program *program = (const struct ref_program *)base;
	uint32_t stride = 0;
	const float *rows =
	    program->hidden == TAPE_NONE ? NULL : ref_buffer(program, program->hidden, &stride);

	*ret_stride = stride;
	return rows;
}

static const uint8_t *faults(const struct program *base)
{
	return ((const struct ref_program *)base)->faults;
}

static void fill(float *cache, uint32_t layers, uint32_t blocks, size_t block_floats, uint32_t from,
		 uint32_t to)
{
	for (uint32_t layer = 0; layer < layers; layer++) {
		float *base = cache + (size_t)layer * blocks * block_floats;
		if (from == UINT32_MAX)
			memset(base + to * block_floats, 0, block_floats * sizeof *cache);
		else
			memmove(base + to * block_floats, base + from * block_floats,
				block_floats * sizeof *cache);
	}
}

static void fill_block(struct program *base, uint32_t g, uint32_t from, uint32_t to)
{
	const struct tape_group *group = &base->tape->groups[g];
	struct ref_cache *cache = &((struct ref_program *)base)->cache[g];
	size_t k = group->kv_heads * ref_head(base->limits.kv_type, group->dk);
	size_t v = group->kv_heads * ref_head(base->limits.kv_type, group->dv);

	fill(cache->k, group->layers, base->limits.blocks[g], k, from, to);
	fill(cache->v, group->layers, base->limits.blocks[g], v, from, to);
}

#define REF_OPS(kind_, open_)            \
	{.kind = kind_,                  \
	 .open = open_,                  \
	 .close = close_ref,             \
	 .isa = isa,                     \
	 .numerics = numerics,           \
	 .measure = measure,             \
	 .compile = compile,             \
	 .close_program = close_program, \
	 .load = load,                   \
	 .step = step,                   \
	 .paths = paths,                 \
	 .logits = logits,               \
	 .best = best,                   \
	 .hidden = hidden,               \
	 .faults = faults,               \
	 .fill_block = fill_block}
const struct backend_ops backend_ref_int8_ops = REF_OPS("ref-int8", open_int8);
const struct backend_ops backend_ref_f32_ops = REF_OPS("ref-f32", open_f32);
