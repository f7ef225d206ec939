#include "kernels/ref/ref.h"

/* logit -> probability, in place. */
static void probabilities(const struct tape_op *op, float *p)
{
	uint32_t n = op->u.route.experts;

	if (op->u.route.sigmoid) {
		for (uint32_t e = 0; e < n; e++)
			p[e] = contract_sigmoid(p[e]);
		return;
	}
	float most = -INFINITY;
	for (uint32_t e = 0; e < n; e++)
		most = p[e] > most ? p[e] : most;
	for (uint32_t e = 0; e < n; e++)
		p[e] = contract_exp(p[e] - most);
	float sum = contract_sum(p, n);
	for (uint32_t e = 0; e < n; e++)
		p[e] = p[e] / sum;
}

/* Marks the `used` largest of p + bias; ties go to the lowest id. */
static void choose(const struct tape_op *op, const struct ref_weight *bias, const float *p, float *chosen)
{
	uint32_t n = op->u.route.experts;

	memset(chosen, 0, n * sizeof *chosen);
	for (uint32_t i = 0; i < op->u.route.used; i++) {
		uint32_t best = n;
		float most = 0;
		for (uint32_t e = 0; e < n; e++) {
			float score = bias ? p[e] + ref_vector_at(bias, e) : p[e];
			if (chosen[e] == 0 && (best == n || score > most)) {
				best = e;
				most = score;
			}
		}
		chosen[best] = 1;
	}
}

/* Ids ascending, then their weights. */
static void route_row(const struct tape_op *op, const float *p, const float *chosen, float *out)
{
	uint32_t used = op->u.route.used, i = 0;
	float *weight = out + used;

	for (uint32_t e = 0; e < op->u.route.experts; e++)
		if (chosen[e] != 0) {
			out[i] = (float)e;
			weight[i++] = p[e];
		}
	if (op->u.route.renormalise) {
		float sum = contract_sum(weight, used);
		for (i = 0; i < used; i++)
			weight[i] = weight[i] / sum;
	}
	for (i = 0; i < used; i++)
		weight[i] = weight[i] * op->u.route.scale;
}

void ref_route(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	uint32_t in_stride, out_stride, n = op->u.route.experts;
	const float *in = ref_buffer(program, op->in[0], &in_stride);
	float *out = ref_buffer(program, op->out[0], &out_stride);
	const struct ref_weight *bias = op->bias == TAPE_NONE ? NULL : &program->weights[op->bias];
	float *p = program->scratch, *chosen = p + n;

	for (uint32_t r = 0; r < batch->rows; r++) {
		ref_matmul(program, &program->weights[op->weight], 0, NULL, in + (size_t)r * in_stride,
			   in_stride, 1, p, n, &program->faults[r]);
		probabilities(op, p);
		choose(op, bias, p, chosen);
		route_row(op, p, chosen, out + (size_t)r * out_stride);
	}
}

static void expert_row(struct ref_program *program, const struct tape_op *op, const float *x,
		       const float *route, float *y, uint32_t width, uint8_t *bad)
{
	const struct ref_weight *gate = &program->weights[op->weights[0]];
	const struct ref_weight *up = &program->weights[op->weights[1]];
	const struct ref_weight *down = &program->weights[op->weights[2]];
	float *g = program->scratch, *u = g + gate->n, *part = u + gate->n;

	memset(y, 0, width * sizeof *y);
	for (uint32_t i = 0; i < op->u.route.used; i++) {
		uint32_t expert = (uint32_t)route[i];
		float weight = route[op->u.route.used + i];
		ref_matmul(program, gate, expert, NULL, x, gate->k, 1, g, gate->n, bad);
		ref_matmul(program, up, expert, NULL, x, up->k, 1, u, up->n, bad);
		ref_activate((enum tape_act)op->u.route.act, 0, g, u, gate->n, g);
		ref_matmul(program, down, expert, NULL, g, down->k, 1, part, down->n, bad);
		for (uint32_t n = 0; n < width; n++)
			y[n] = fmaf(weight, part[n], y[n]);
	}
}

void ref_experts(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	uint32_t in_stride, route_stride, out_stride;
	uint32_t width = program->base.tape->buffers[op->out[0]].width;
	const float *in = ref_buffer(program, op->in[0], &in_stride);
	const float *route = ref_buffer(program, op->in[1], &route_stride);
	float *out = ref_buffer(program, op->out[0], &out_stride);

	for (uint32_t r = 0; r < batch->rows; r++)
		expert_row(program, op, in + (size_t)r * in_stride, route + (size_t)r * route_stride,
			   out + (size_t)r * out_stride, width, &program->faults[r]);
}
