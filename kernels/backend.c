#include "kernels/backend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kernels/backend_ops.h"

static const struct backend_ops *const kinds[] = {&backend_ref_int8_ops, &backend_ref_f32_ops,
						  &backend_cpu_ops};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

int backend_open(const struct backend_config *config, struct backend **ret, char *why, size_t why_bytes)
{
	if (!config->threads || config->threads > BACKEND_CPUS_MAX) {
		snprintf(why, why_bytes, "A backend takes 1 to %d threads, not %u.", BACKEND_CPUS_MAX,
			 config->threads);
		return -EINVAL;
	}
	for (unsigned i = 0; i < KINDS; i++)
		if (!strcmp(kinds[i]->kind, config->kind))
			return kinds[i]->open(config, ret, why, why_bytes);
	snprintf(why, why_bytes, "There is no backend '%s' in this build.", config->kind);
	return -EINVAL;
}

void backend_close(struct backend *backend)
{
	if (backend)
		backend->ops->close(backend);
}

const char *backend_isa(const struct backend *backend)
{
	return backend->ops->isa(backend);
}

const char *backend_numerics(const struct backend *backend)
{
	return backend->ops->numerics(backend);
}

static struct tape_limits full_limits(const struct tape_limits *limits)
{
	struct tape_limits full = *limits;

	if (!full.logits)
		full.logits = full.outputs;
	return full;
}

int program_measure(struct backend *backend, const struct tape *tape, const struct tape_limits *limits,
		    struct program_bytes *ret)
{
	struct tape_limits full = full_limits(limits);

	return backend->ops->measure(backend, tape, &full, ret);
}

static int check_limits(const struct tape *tape, const struct tape_limits *limits, char *why,
			size_t why_bytes)
{
	const char *fault = NULL;

	if (!limits->rows || !limits->sequences || !limits->outputs || !limits->context)
		fault = "rows, sequences, outputs or context is 0";
	else if (limits->sequences > limits->rows || limits->outputs > limits->rows)
		fault = "there are more sequences or outputs than rows";
	else if (limits->logits > limits->outputs)
		fault = "there are more rows of logits than outputs";
	else if (limits->context > tape->context)
		fault = "the context is longer than the model's";
	for (uint32_t g = 0; g < tape->n_groups && !fault; g++)
		if (!limits->blocks[g])
			fault = "a cache group has no block, not even the null block";
	if (!fault)
		return 0;
	snprintf(why, why_bytes, "The limits of a program contradict each other: %s.", fault);
	return -EINVAL;
}

int program_compile(struct backend *backend, const struct tape *tape, const struct tape_limits *limits,
		    struct program **ret, char *why, size_t why_bytes)
{
	struct tape_limits full = full_limits(limits);
	int err = tape_check(tape, why, why_bytes);

	if (!err)
		err = check_limits(tape, &full, why, why_bytes);
	return err ? err : backend->ops->compile(backend, tape, &full, ret, why, why_bytes);
}

void program_close(struct program *program)
{
	if (program)
		program->ops->close_program(program);
}

int program_load(struct program *program, uint32_t weight, uint32_t row, uint32_t rows, const void *raw)
{
	if (weight >= program->tape->n_weights)
		return -EINVAL;
	const struct tape_weight *w = &program->tape->weights[weight];
	uint64_t all = (uint64_t)w->experts * w->n, end = (uint64_t)row + rows;
	/* A range begins on a panel of its expert and ends on one or at the expert's end. */
	if (!rows || end > all || row % w->n % PROGRAM_LOAD_ROWS ||
	    (end % w->n && end % w->n % PROGRAM_LOAD_ROWS))
		return -EINVAL;
	return program->ops->load(program, weight, row, rows, raw);
}

/* Every position below the limits and every block of the tables inside the pool. */
static int check_sequence(const struct program *program, const struct batch *batch, uint32_t s)
{
	const struct batch_sequence *seq = &batch->seq[s];
	uint64_t end = (uint64_t)seq->first_row + seq->rows;

	if (!seq->rows || end > batch->rows || seq->kv_len > program->limits.context ||
	    seq->kv_len < seq->rows)
		return -EINVAL;
	for (uint32_t r = seq->first_row; r < end; r++)
		if (batch->sequence[r] != s || batch->token[r] >= program->tape->vocab ||
		    batch->position[r] != seq->kv_len - (uint32_t)(end - r))
			return -EINVAL;
	uint32_t blocks = (seq->kv_len + TAPE_KV_BLOCK - 1) / TAPE_KV_BLOCK;
	if (program->tape->n_groups && blocks > batch->table_stride)
		return -EINVAL;
	for (uint32_t g = 0; g < program->tape->n_groups; g++)
		for (uint32_t b = 0; b < blocks; b++)
			if (batch->table[g][(size_t)s * batch->table_stride + b] >= program->limits.blocks[g])
				return -EINVAL;
	return 0;
}

static int check_chosen(const struct program *program, const struct batch_output *output)
{
	for (uint32_t i = 0; i < output->n_chosen; i++)
		if (output->chosen[i] >= program->tape->vocab)
			return -EINVAL;
	return output->n_chosen ? 0 : -EINVAL;
}

static int check_outputs(const struct program *program, const struct batch *batch)
{
	uint32_t logits = 0;

	for (uint32_t o = 0; o < batch->outputs; o++) {
		enum output_want want = batch_want(batch, o);
		if (batch->output_row[o] >= batch->rows || want > OUTPUT_HIDDEN)
			return -EINVAL;
		if (want == OUTPUT_CHOSEN && check_chosen(program, &batch->output[o]) < 0)
			return -EINVAL;
		logits += batch_wants_logits(batch, o);
	}
	return logits <= program->limits.logits ? 0 : -EINVAL;
}

static int check_batch(const struct program *program, const struct batch *batch)
{
	const struct tape_limits *limits = &program->limits;

	if (!batch->rows || batch->rows > limits->rows || batch->sequences > limits->sequences ||
	    batch->outputs > limits->outputs)
		return -EINVAL;
	uint32_t rows = 0;
	for (uint32_t s = 0; s < batch->sequences; s++) {
		if (check_sequence(program, batch, s) < 0)
			return -EINVAL;
		rows += batch->seq[s].rows;
	}
	return rows == batch->rows ? check_outputs(program, batch) : -EINVAL;
}

int program_step(struct program *program, const struct batch *batch)
{
	if (check_batch(program, batch) < 0)
		return -EINVAL;
	return program->ops->step(program, batch);
}

void program_paths(const struct program *program, struct program_paths *ret)
{
	program->ops->paths(program, ret);
}

const float *program_logits(const struct program *program)
{
	return program->ops->logits(program);
}

const struct output_best *program_best(const struct program *program)
{
	return program->ops->best(program);
}

const float *program_hidden(const struct program *program, size_t *ret_stride)
{
	return program->ops->hidden(program, ret_stride);
}

const uint8_t *program_faults(const struct program *program)
{
	return program->ops->faults(program);
}

int program_copy_block(struct program *program, uint32_t group, uint32_t from, uint32_t to)
{
	if (group >= program->tape->n_groups || from >= program->limits.blocks[group] ||
	    to >= program->limits.blocks[group])
		return -EINVAL;
	program->ops->fill_block(program, group, from, to);
	return 0;
}

int program_zero_block(struct program *program, uint32_t group, uint32_t block)
{
	if (group >= program->tape->n_groups || block >= program->limits.blocks[group])
		return -EINVAL;
	program->ops->fill_block(program, group, UINT32_MAX, block);
	return 0;
}

/* Weights that one row reads: all of a matrix, the chosen experts, one row of an embedding. */
static void add_weight(const struct tape *tape, uint16_t index, uint64_t rows, struct program_cost *cost)
{
	const struct tape_weight *weight = &tape->weights[index];

	cost->weight_bytes += weight_type_bytes(weight->type, weight->k) * rows;
	if (rows > 1)
		cost->multiply_adds += rows * weight->k;
}

static void add_op(const struct tape *tape, const struct tape_op *op, struct program_cost *cost)
{
	if (op->kind == TAPE_EXPERTS)
		for (int i = 0; i < 3; i++)
			add_weight(tape, op->weights[i],
				   (uint64_t)op->u.route.used * tape->weights[op->weights[i]].n, cost);
	else if (op->kind == TAPE_EMBED || op->kind == TAPE_NORM) {
		if (op->weight != TAPE_NONE)
			add_weight(tape, op->weight, 1, cost);
	} else if (op->kind == TAPE_MATMUL || op->kind == TAPE_ROUTE || op->kind == TAPE_LOGITS)
		add_weight(tape, op->weight,
			   (uint64_t)tape->weights[op->weight].experts * tape->weights[op->weight].n, cost);
}

void program_cost(const struct program *program, uint32_t context, struct program_cost *ret)
{
	const struct tape *tape = program->tape;
	struct program_cost cost = {0};

	for (uint32_t i = 0; i < tape->n_ops; i++)
		add_op(tape, &tape->ops[i], &cost);
	for (uint32_t g = 0; g < tape->n_groups; g++) {
		const struct tape_group *group = &tape->groups[g];
		uint64_t keys = group->window && group->window < context ? group->window : context;
		cost.kv_bytes += (kv_row_bytes(program->limits.kv_type, group->dk) +
				  kv_row_bytes(program->limits.kv_type, group->dv)) *
				 group->kv_heads * group->layers * keys;
	}
	*ret = cost;
}
