#include "kernels/ref/ref.h"

static void embed(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	const struct ref_weight *w = &program->weights[op->weight];
	uint32_t stride;
	float *out = ref_buffer(program, op->out[0], &stride);

	for (uint32_t r = 0; r < batch->rows; r++) {
		uint32_t row = op->u.embed.positions ? batch->position[r] : batch->token[r];
		for (uint32_t k = 0; k < w->k; k++)
			out[(size_t)r * stride + k] = ref_element(w, row, k) * op->u.embed.scale;
	}
}

static const float *vector(const struct ref_weight *w, float *room)
{
	for (uint32_t k = 0; k < w->k; k++)
		room[k] = ref_vector_at(w, k);
	return room;
}

static void norm_row(const struct tape_op *op, const float *w, const float *bias, const float *x,
		     uint32_t width, float *y)
{
	uint32_t n = width / op->u.norm.groups;

	for (uint32_t g = 0; g < op->u.norm.groups; g++) {
		if (op->u.norm.kind == NORM_RMS)
			contract_rms_norm(x + g * n, w, op->u.norm.weight_plus_one, op->u.norm.eps, n,
					  y + g * n);
		else
			contract_layer_norm(x + g * n, w, op->u.norm.weight_plus_one, op->u.norm.eps, n,
					    y + g * n);
		for (uint32_t k = 0; bias && k < n; k++)
			y[g * n + k] = y[g * n + k] + bias[k];
	}
}

static uint32_t rows_of(const struct ref_program *program, const struct batch *batch, uint16_t buffer)
{
	switch (program->base.tape->buffers[buffer].rows) {
	case ROW_OUTPUT:
		return batch->outputs;
	case ROW_SEQUENCE:
		return batch->sequences;
	default:
		return batch->rows;
	}
}

static void norm(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	const struct tape_buffer *buffers = program->base.tape->buffers;
	uint32_t in_stride, out_stride, width = buffers[op->in[0]].width, n = width / op->u.norm.groups;
	const float *in = ref_buffer(program, op->in[0], &in_stride);
	float *out = ref_buffer(program, op->out[0], &out_stride);
	float *w = program->scratch, *b = w + n;
	bool gather = buffers[op->in[0]].rows == ROW_TOKEN && buffers[op->out[0]].rows == ROW_OUTPUT;

	for (uint32_t k = 0; k < n; k++)
		w[k] = op->u.norm.weight_plus_one ? 0.0f : 1.0f;
	if (op->weight != TAPE_NONE)
		vector(&program->weights[op->weight], w);
	if (op->bias != TAPE_NONE)
		vector(&program->weights[op->bias], b);
	for (uint32_t r = 0; r < rows_of(program, batch, op->out[0]); r++) {
		uint32_t from = gather ? batch->output_row[r] : r;
		norm_row(op, w, op->bias == TAPE_NONE ? NULL : b, in + (size_t)from * in_stride, width,
			 out + (size_t)r * out_stride);
	}
}

/* Which token row answers for a row of a buffer. */
static void merge_faults(struct ref_program *program, const struct batch *batch, uint8_t rows,
			 const uint8_t *bad, uint32_t n)
{
	for (uint32_t r = 0; r < n; r++) {
		uint32_t row = r;
		if (rows == ROW_OUTPUT)
			row = batch->output_row[r];
		else if (rows == ROW_SEQUENCE)
			row = batch->seq[r].first_row + batch->seq[r].rows - 1;
		program->faults[row] |= bad[r];
	}
}

static void matmul(struct ref_program *program, const struct batch *batch, const struct tape_op *op,
		   float *out, uint32_t out_stride)
{
	uint32_t in_stride, rows = rows_of(program, batch, op->in[0]);
	const float *in = ref_buffer(program, op->in[0], &in_stride);
	const struct ref_weight *bias = op->bias == TAPE_NONE ? NULL : &program->weights[op->bias];

	memset(program->bad, 0, rows);
	ref_matmul(program, &program->weights[op->weight], 0, bias, in, in_stride, rows, out, out_stride,
		   program->bad);
	merge_faults(program, batch, program->base.tape->buffers[op->in[0]].rows, program->bad, rows);
}

static void rope_row(const struct tape_op *op, const float *frequency, uint32_t position, float *x)
{
	uint32_t pairs = op->u.rope.dims / 2;
	float s, c;

	for (uint32_t i = 0; i < pairs; i++) {
		contract_sincos((float)position * frequency[i], &s, &c);
		for (uint32_t h = 0; h < op->u.rope.heads; h++) {
			float *head = x + (size_t)h * op->u.rope.head_dim + op->u.rope.first;
			if (op->u.rope.style == ROPE_PAIR)
				contract_rotate(&head[2 * i], &head[2 * i + 1], c, s);
			else
				contract_rotate(&head[i], &head[i + pairs], c, s);
		}
	}
}

static void rope(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	uint32_t stride;
	float *x = ref_buffer(program, op->in[0], &stride);

	for (uint32_t r = 0; r < batch->rows; r++)
		rope_row(op, program->base.tape->tables[op->u.rope.table].values, batch->position[r],
			 x + (size_t)r * stride);
}

#define ACTIVATE(name)                                                           \
	for (uint32_t i = 0; i < n; i++) {                                       \
		float a = limit > 0 ? contract_clamp(x[i], limit) : x[i];        \
		y[i] = gate ? contract_##name(a) * gate[i] : contract_##name(a); \
	}                                                                        \
	break

void ref_activate(enum tape_act kind, float limit, const float *x, const float *gate, uint32_t n, float *y)
{
	switch (kind) {
	case ACT_SILU:
		ACTIVATE(silu);
	case ACT_GELU_TANH:
		ACTIVATE(gelu_tanh);
	case ACT_GELU_ERF:
		ACTIVATE(gelu_erf);
	case ACT_RELU2:
		ACTIVATE(relu2);
	}
}

static void elementwise(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	uint32_t a_stride, b_stride = 0, y_stride, width = program->base.tape->buffers[op->out[0]].width;
	bool one = op->kind == TAPE_ACT && !op->u.act.gated;
	const float *a = ref_buffer(program, op->in[0], &a_stride);
	const float *b = one ? NULL : ref_buffer(program, op->in[1], &b_stride);
	float *y = ref_buffer(program, op->out[0], &y_stride);

	for (uint32_t r = 0; r < rows_of(program, batch, op->out[0]); r++) {
		if (op->kind == TAPE_ACT)
			ref_activate((enum tape_act)op->u.act.kind, op->u.act.limit, a, b, width, y);
		for (uint32_t k = 0; op->kind == TAPE_ADD && k < width; k++)
			y[k] = a[k] + b[k];
		for (uint32_t k = 0; op->kind == TAPE_MUL && k < width; k++)
			y[k] = a[k] * b[k];
		a += a_stride;
		b = one ? NULL : b + b_stride;
		y += y_stride;
	}
}

/* The mean adds rows in ascending order, then divides. */
static void pool(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	uint32_t in_stride, out_stride, width = program->base.tape->buffers[op->in[0]].width;
	const float *in = ref_buffer(program, op->in[0], &in_stride);
	float *out = ref_buffer(program, op->out[0], &out_stride);

	for (uint32_t s = 0; s < batch->sequences; s++) {
		const struct batch_sequence *seq = &batch->seq[s];
		float *y = out + (size_t)s * out_stride;
		const float *last = in + (size_t)(seq->first_row + seq->rows - 1) * in_stride;
		for (uint32_t k = 0; k < width; k++) {
			float sum = 0;
			for (uint32_t r = 0; r < seq->rows; r++)
				sum = sum + in[(size_t)(seq->first_row + r) * in_stride + k];
			y[k] = op->u.pool.kind == POOL_LAST ? last[k] : sum / (float)seq->rows;
		}
	}
}

/* Scales the logits y of output o, and looks for values that are not finite: among all, or the chosen. */
static void finish_logits(struct ref_program *program, const struct batch *batch, const struct tape_op *op,
			  uint32_t o, float *y)
{
	bool some = batch_want(batch, o) == OUTPUT_CHOSEN;
	uint32_t vocab = program->base.tape->vocab, n = some ? batch->output[o].n_chosen : vocab;

	for (uint32_t i = 0; i < vocab; i++) {
		y[i] = y[i] * op->u.logits.scale;
		if (op->u.logits.softcap > 0)
			y[i] = contract_softcap(y[i], op->u.logits.softcap);
	}
	for (uint32_t i = 0; i < n; i++)
		program->faults[batch->output_row[o]] |=
		    !float_finite(y[some ? batch->output[o].chosen[i] : i]);
}

static struct output_best best_of(const float *y, uint32_t vocab)
{
	struct output_best best = {.value = y[0]};

	for (uint32_t i = 1; i < vocab; i++)
		if (y[i] > best.value)
			best = (struct output_best){i, y[i]};
	return best;
}

/* `rows` outputs from o on that all want logits, or one that wants something else. */
static void logits_rows(struct ref_program *program, const struct batch *batch, const struct tape_op *op,
			uint32_t o, uint32_t rows, float *y)
{
	const struct ref_weight *bias = op->bias == TAPE_NONE ? NULL : &program->weights[op->bias];
	uint32_t stride, vocab = program->base.tape->vocab;
	const float *in = ref_buffer(program, op->in[0], &stride) + (size_t)o * stride;

	memset(program->bad, 0, rows);
	ref_matmul(program, &program->weights[op->weight], 0, bias, in, stride, rows, y, vocab, program->bad);
	for (uint32_t i = 0; i < rows; i++) {
		program->faults[batch->output_row[o + i]] |= program->bad[i];
		finish_logits(program, batch, op, o + i, y + (size_t)i * vocab);
	}
}

static void hidden_row(struct ref_program *program, const struct batch *batch, const struct tape_op *op,
		       uint32_t o)
{
	uint32_t stride, k = program->weights[op->weight].k;
	const float *x = ref_buffer(program, op->in[0], &stride) + (size_t)o * stride;

	for (uint32_t i = 0; i < k; i++)
		program->faults[batch->output_row[o]] |= !float_finite(x[i]);
}

static void logits(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	uint32_t vocab = program->base.tape->vocab;
	float *next = program->logits, *spare = next + (size_t)program->base.limits.logits * vocab;

	for (uint32_t o = 0, rows; o < batch->outputs; o += rows) {
		rows = 1;
		if (batch_want(batch, o) == OUTPUT_HIDDEN) {
			hidden_row(program, batch, op, o);
		} else if (batch_want(batch, o) == OUTPUT_BEST) {
			logits_rows(program, batch, op, o, 1, spare);
			program->best[o] = best_of(spare, vocab);
		} else {
			while (o + rows < batch->outputs && batch_wants_logits(batch, o + rows))
				rows++;
			logits_rows(program, batch, op, o, rows, next);
			next += (size_t)rows * vocab;
		}
	}
}

static void run(struct ref_program *program, const struct batch *batch, const struct tape_op *op)
{
	uint32_t stride;
	float *out;

	switch (op->kind) {
	case TAPE_EMBED:
		embed(program, batch, op);
		break;
	case TAPE_NORM:
		norm(program, batch, op);
		break;
	case TAPE_MATMUL:
		out = ref_buffer(program, op->out[0], &stride);
		matmul(program, batch, op, out, stride);
		break;
	case TAPE_ROPE:
		rope(program, batch, op);
		break;
	case TAPE_KV_WRITE:
		ref_kv_write(program, batch, op);
		break;
	case TAPE_ATTN:
		ref_attn(program, batch, op);
		break;
	case TAPE_ACT:
	case TAPE_MUL:
	case TAPE_ADD:
		elementwise(program, batch, op);
		break;
	case TAPE_ROUTE:
		ref_route(program, batch, op);
		break;
	case TAPE_EXPERTS:
		ref_experts(program, batch, op);
		break;
	case TAPE_POOL:
		pool(program, batch, op);
		break;
	case TAPE_LOGITS:
		logits(program, batch, op);
		break;
	}
}

void ref_step(struct ref_program *program, const struct batch *batch)
{
	const struct tape *tape = program->base.tape;

	memset(program->faults, 0, batch->rows);
	for (uint32_t i = 0; i < tape->n_ops; i++) {
		run(program, batch, &tape->ops[i]);
		ref_poll(program);
	}
}
