/* Mixture of experts: routing is scalar and small; the experts' matrices are split by columns, the slots of
 * one expert (rows that chose it) taken together. */
#include <math.h>
#include <string.h>

#include "kernels/contract.h"
#include "kernels/cpu/program.h"

static void probabilities(const struct tape_op *op, float *p)
{
	uint32_t n = op->u.route.experts;
	float most = -INFINITY;

	for (uint32_t e = 0; e < n; e++)
		most = p[e] > most ? p[e] : most;
	for (uint32_t e = 0; e < n; e++)
		p[e] = op->u.route.sigmoid ? contract_sigmoid(p[e]) : contract_exp(p[e] - most);
	float sum = op->u.route.sigmoid ? 1.0f : contract_sum(p, n);
	for (uint32_t e = 0; e < n && !op->u.route.sigmoid; e++)
		p[e] = p[e] / sum;
}

/* chosen[e] != 0: among the `used` largest of p + bias; ties go to the lowest id. */
static void choose(const struct tape_op *op, const float *bias, const float *p, float *chosen)
{
	uint32_t n = op->u.route.experts;

	memset(chosen, 0, n * sizeof *chosen);
	for (uint32_t i = 0; i < op->u.route.used; i++) {
		uint32_t best = n;
		float most = 0;
		for (uint32_t e = 0; e < n; e++) {
			float score = bias ? p[e] + bias[e] : p[e];
			if (chosen[e] == 0 && (best == n || score > most)) {
				best = e;
				most = score;
			}
		}
		chosen[best] = 1;
	}
}

static void write_route(const struct tape_op *op, const float *p, const float *chosen, float *ret)
{
	uint32_t used = op->u.route.used, i = 0;
	float *weight = ret + used;

	for (uint32_t e = 0; e < op->u.route.experts; e++)
		if (chosen[e] != 0) {
			ret[i] = (float)e;
			weight[i++] = p[e];
		}
	float sum = op->u.route.renormalise ? contract_sum(weight, used) : 1.0f;
	for (i = 0; i < used; i++)
		weight[i] = (op->u.route.renormalise ? weight[i] / sum : weight[i]) * op->u.route.scale;
}

void run_route(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	const struct tape_op *op = step->op;
	const struct cpu_weight *weight = &program->weights[op->weight];
	const struct cpu_private *mine = &program->private[self->index];
	const float *bias = op->bias == TAPE_NONE ? NULL : program->weights[op->bias].vector;
	float *p = mine->row, *chosen = p + weight->n;
	uint32_t first, end;

	own_items(program->split, program->batch->rows, 1, self, &first, &end);
	for (uint32_t row = first; row < end; row++) {
		if (!prepare_row(program, weight, buffer_row(program, op->in[0], row), mine->input, 0, 1))
			store_fault(program, row);
		multiply_panels(program, self, weight, 0, 0, panel_count(weight->n), 1, mine->input, p,
				weight->n);
		probabilities(op, p);
		choose(op, bias, p, chosen);
		write_route(op, p, chosen, buffer_row(program, op->out[0], row));
	}
}

/* Slots row * used + i of the rows that chose `expert`. */
static uint32_t slots_of(const struct cpu_program *program, const struct tape_op *op, uint32_t expert,
			 uint32_t *slots)
{
	uint32_t used = op->u.route.used, n = 0;

	for (uint32_t row = 0; row < program->batch->rows; row++)
		for (uint32_t i = 0; i < used; i++)
			if ((uint32_t)buffer_row(program, op->in[1], row)[i] == expert)
				slots[n++] = row * used + i;
	return n;
}

struct expert_job {
	struct cpu_program *program;
	const struct tape_op *op;
	struct team_thread *self;
	struct cpu_private *mine;
	size_t hidden_stride;
	uint32_t first_column[2], end_column[2]; /* own columns of the hidden and of the output row */
};

/* Own columns of n rows times one expert's matrix, into the thread's own memory (CHUNK_ROWS, 2, k). */
static void multiply_expert(const struct expert_job *job, uint32_t which, uint32_t expert, uint32_t rows,
			    uint32_t half, float *y)
{
	const struct cpu_weight *weight = &job->program->weights[job->op->weights[which]];

	multiply_panels(job->program, job->self, weight, expert, job->first_column[half] / PANEL_ROWS,
			panel_count(job->end_column[half]), rows, job->mine->input, y, weight->n);
}

static void prepare_slots(const struct expert_job *job, const struct cpu_weight *weight,
			  const uint32_t *slots, uint32_t n, bool hidden)
{
	struct cpu_program *program = job->program;
	uint32_t used = job->op->u.route.used;

	for (uint32_t i = 0; i < n; i++) {
		const float *x = hidden ? program->hidden + slots[i] * job->hidden_stride
					: buffer_row(program, job->op->in[0], slots[i] / used);
		if (!prepare_row(program, weight, x, job->mine->input, i, n) && job->self->index == 0)
			store_fault(program, slots[i] / used);
		pool_work(job->self, weight->k);
	}
}

/* hidden[slot] = act(x G) * (x U), own columns. */
static void expert_up(const struct expert_job *job, uint32_t expert, const uint32_t *slots, uint32_t n)
{
	struct cpu_program *program = job->program;
	const struct cpu_weight *gate = &program->weights[job->op->weights[0]];
	float *g = job->mine->products, *u = g + (size_t)CHUNK_ROWS * gate->n;
	uint32_t column = job->first_column[0], columns = job->end_column[0] - column;

	prepare_slots(job, gate, slots, n, false);
	multiply_expert(job, 0, expert, n, 0, g);
	if (program->weights[job->op->weights[1]].kind != gate->kind)
		prepare_slots(job, &program->weights[job->op->weights[1]], slots, n, false);
	multiply_expert(job, 1, expert, n, 0, u);
	for (uint32_t i = 0; i < n; i++)
		program->isa->act((enum tape_act)job->op->u.route.act, 0, g + (size_t)i * gate->n + column,
				  u + (size_t)i * gate->n + column, columns,
				  program->hidden + slots[i] * job->hidden_stride + column);
}

/* out[row] = fma(weight, hidden D, out[row]), own columns; experts come in ascending order. */
static void expert_down(const struct expert_job *job, uint32_t expert, const uint32_t *slots, uint32_t n)
{
	struct cpu_program *program = job->program;
	const struct cpu_weight *down = &program->weights[job->op->weights[2]];
	uint32_t column = job->first_column[1], columns = job->end_column[1] - column;
	uint32_t used = job->op->u.route.used;

	prepare_slots(job, down, slots, n, true);
	multiply_expert(job, 2, expert, n, 1, job->mine->products);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t row = slots[i] / used;
		float weight = buffer_row(program, job->op->in[1], row)[used + slots[i] % used];
		program->isa->fma(weight, job->mine->products + (size_t)i * down->n + column, columns,
				  buffer_row(program, job->op->out[0], row) + column);
	}
}

static void each_expert(const struct expert_job *job,
			void (*f)(const struct expert_job *, uint32_t, const uint32_t *, uint32_t))
{
	for (uint32_t e = 0; e < job->op->u.route.experts; e++) {
		uint32_t n = slots_of(job->program, job->op, e, job->mine->slots);
		for (uint32_t i = 0; i < n; i += CHUNK_ROWS)
			f(job, e, job->mine->slots + i, n - i < CHUNK_ROWS ? n - i : CHUNK_ROWS);
	}
}

void run_experts(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	const struct tape_op *op = step->op;
	struct expert_job job = {
	    .program = program,
	    .op = op,
	    .self = self,
	    .mine = &program->private[self->index],
	    .hidden_stride = program->weights[op->weights[0]].n,
	};
	struct span hidden = own_span(SPLIT_COLUMNS, 0, program->weights[op->weights[0]].n, self);
	struct span out = own_span(SPLIT_COLUMNS, 0, program->weights[op->weights[2]].n, self);

	job.first_column[0] = hidden.column;
	job.end_column[0] = hidden.column_end;
	job.first_column[1] = out.column;
	job.end_column[1] = out.column_end;
	for (uint32_t row = 0; row < program->batch->rows; row++)
		memset(buffer_row(program, op->out[0], row) + out.column, 0,
		       (out.column_end - out.column) * sizeof(float));
	each_expert(&job, expert_up);
	pool_barrier(self);
	each_expert(&job, expert_down);
}
