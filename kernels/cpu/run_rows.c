#include <string.h>

#include "kernels/contract.h"
#include "kernels/cpu/program.h"

/* Cosines and sines of every RoPE table at the rows' positions; all layers use them. */
void run_angles(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	const struct batch *batch = program->batch;
	uint32_t first, end;

	own_items(program->split, batch->rows, 1, self, &first, &end);
	for (uint32_t i = 0; i < program_tape(program)->n_tables; i++) {
		const struct tape_table *table = &program_tape(program)->tables[i];
		for (uint32_t row = first; row < end && program->cosine[i]; row++) {
			float *c = program->cosine[i] + (size_t)row * table->n;
			float *s = program->sine[i] + (size_t)row * table->n;
			for (uint32_t f = 0; f < table->n; f++)
				contract_sincos((float)batch->position[row] * table->values[f], &s[f], &c[f]);
			pool_work(self, 16 * table->n);
		}
	}
}

void run_embed(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	const struct tape_op *op = step->op;
	const struct cpu_weight *weight = &program->weights[op->weight];
	uint32_t first, end;

	own_items(program->split, program->batch->rows, 1, self, &first, &end);
	for (uint32_t row = first; row < end; row++) {
		uint32_t id =
		    op->u.embed.positions ? program->batch->position[row] : program->batch->token[row];
		float *y = buffer_row(program, op->out[0], row);
		panel_unpack_row(weight->kind, weight_panel(weight, 0, id / PANEL_ROWS), id % PANEL_ROWS,
				 weight->k, y);
		if (op->u.embed.scale != 1.0f)
			program->isa->scale(y, op->u.embed.scale, weight->k, y);
		pool_work(self, weight->k);
	}
}

/* One group (the whole row if there is one): n columns. */
static void norm_group(const struct cpu_program *program, const struct tape_op *op, uint32_t n,
		       const float *x, float *y)
{
	const struct cpu_weight *weights = program->weights;
	bool plus_one = op->u.norm.weight_plus_one;

	if (op->u.norm.kind == NORM_RMS)
		program->isa->norm_rms(x, op->weight == TAPE_NONE ? NULL : weights[op->weight].vector,
				       plus_one, n, op->u.norm.eps, y);
	else
		contract_layer_norm(x, weights[op->weight].vector, plus_one, op->u.norm.eps, n, y);
	if (op->bias != TAPE_NONE)
		program->isa->add(y, weights[op->bias].vector, n, y);
}

void norm_row(const struct cpu_program *program, const struct tape_op *op, const float *x, float *y)
{
	uint32_t n = program->buffers[op->out[0]].width / op->u.norm.groups;

	for (uint32_t g = 0; g < op->u.norm.groups; g++)
		norm_group(program, op, n, x + (size_t)g * n, y + (size_t)g * n);
}

/* Shared by (row, group): a row at a time when whole rows are normalised, a head at a time else. */
void run_norm(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	const struct tape_op *op = step->op;
	uint8_t kind = program->buffers[op->out[0]].rows;
	bool gathers = program->buffers[op->in[0]].rows != kind;
	uint32_t groups = op->u.norm.groups, n = program->buffers[op->out[0]].width / groups, first, end;

	own_items(rows_split(program, kind), batch_rows(program->batch, kind), groups, self, &first, &end);
	for (uint32_t i = first; i < end; i++) {
		uint32_t row = i / groups, column = i % groups * n;
		uint32_t from = gathers ? program->batch->output_row[row] : row;
		norm_group(program, op, n, buffer_row(program, op->in[0], from) + column,
			   buffer_row(program, op->out[0], row) + column);
		pool_work(self, n);
	}
}

/* The program's faults are found where values enter a matmul; a rotation keeps what is not finite. */
void run_rope(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	const struct tape_op *op = step->op;
	uint8_t kind = program->buffers[op->in[0]].rows;
	uint32_t heads = op->u.rope.heads, pairs = op->u.rope.dims / 2, first, end;
	uint32_t n = program_tape(program)->tables[op->u.rope.table].n;

	own_items(rows_split(program, kind), program->batch->rows, heads, self, &first, &end);
	for (uint32_t i = first; i < end; i++) {
		size_t row = i / heads;
		float *x = buffer_row(program, op->in[0], (uint32_t)row) + i % heads * op->u.rope.head_dim;
		program->isa->rope(x + op->u.rope.first, program->cosine[op->u.rope.table] + row * n,
				   program->sine[op->u.rope.table] + row * n, pairs,
				   op->u.rope.style == ROPE_PAIR);
		pool_work(self, 4 * pairs);
	}
}

typedef void combine(const struct cpu_program *, const struct tape_op *, const float *a, const float *b,
		     uint32_t n, float *y);

/* y = f(a, b) on this thread's part of the buffers. */
static void run_elements(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self,
			 combine *f)
{
	const struct tape_op *op = step->op;
	uint8_t kind = program->buffers[op->out[0]].rows;
	struct span span = own_span(rows_split(program, kind), batch_rows(program->batch, kind),
				    program->buffers[op->out[0]].width, self);

	for (uint32_t row = span.row; row < span.row_end; row++) {
		const float *a = buffer_row(program, op->in[0], row) + span.column;
		const float *b =
		    op->in[1] == TAPE_NONE ? NULL : buffer_row(program, op->in[1], row) + span.column;
		f(program, op, a, b, span.column_end - span.column,
		  buffer_row(program, op->out[0], row) + span.column);
		pool_work(self, 4 * (span.column_end - span.column));
	}
}

static void combine_add(const struct cpu_program *program, const struct tape_op *op, const float *a,
			const float *b, uint32_t n, float *y)
{
	program->isa->add(a, b, n, y);
}

static void combine_mul(const struct cpu_program *program, const struct tape_op *op, const float *a,
			const float *b, uint32_t n, float *y)
{
	program->isa->mul(a, b, n, y);
}

static void combine_act(const struct cpu_program *program, const struct tape_op *op, const float *a,
			const float *b, uint32_t n, float *y)
{
	program->isa->act((enum tape_act)op->u.act.kind, op->u.act.limit, a, op->u.act.gated ? b : NULL, n,
			  y);
}

void run_add(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	run_elements(program, step, self, combine_add);
}

void run_mul(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	run_elements(program, step, self, combine_mul);
}

void run_act(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	run_elements(program, step, self, combine_act);
}

/* The mean adds rows in ascending order, then divides. */
void run_pool_rows(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	const struct tape_op *op = step->op;
	uint32_t width = program->buffers[op->out[0]].width, first, end;

	own_items(SPLIT_COLUMNS, program->batch->sequences, 1, self, &first, &end);
	for (uint32_t s = first; s < end; s++) {
		const struct batch_sequence *seq = &program->batch->seq[s];
		float *y = buffer_row(program, op->out[0], s);
		if (op->u.pool.kind == POOL_LAST) {
			memcpy(y, buffer_row(program, op->in[0], seq->first_row + seq->rows - 1),
			       width * sizeof *y);
			continue;
		}
		memset(y, 0, width * sizeof *y);
		for (uint32_t r = 0; r < seq->rows; r++) {
			program->isa->add(y, buffer_row(program, op->in[0], seq->first_row + r), width, y);
			pool_work(self, width);
		}
		for (uint32_t k = 0; k < width; k++)
			y[k] = y[k] / (float)seq->rows;
	}
}
