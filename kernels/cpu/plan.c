/* From the tape to steps: fuses a norm into the products that alone read it, products that read one input
 * into one step, and finds the steps before which the threads must meet.
 *
 * Each step says which part of a buffer a thread reads and writes (enum part). Two accesses of which one
 * writes need a barrier between them unless every thread keeps to the same part in both. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/program.h"

enum part {
	PART_NONE,
	PART_ALL,     /* any thread may touch anything */
	PART_ROWS,    /* own_span by rows */
	PART_COLUMNS, /* own_span by columns */
	PART_ITEMS,   /* own_items of so many parts a row: PART_ITEMS + parts */
};

struct plan {
	struct cpu_program *program;
	const struct tape *tape;
	enum split split;         /* for which meetings are being found */
	uint32_t *read, *written; /* parts touched since the last meeting, by buffer and pseudo-buffer */
	uint32_t n_things;
	bool meet; /* the step at hand needs a meeting */
};

/* Pseudo-buffers after the tape's own: RoPE angles, memory shared inside a step, each layer's KV. */
static uint32_t angles_thing(const struct plan *plan)
{
	return plan->tape->n_buffers;
}

static uint32_t shared_thing(const struct plan *plan)
{
	return plan->tape->n_buffers + 1;
}

static uint32_t kv_thing(const struct plan *plan, const struct tape_op *op)
{
	uint32_t at = plan->tape->n_buffers + 2 + op->u.attn.layer;

	for (uint32_t g = 0; g < op->u.attn.group; g++)
		at += plan->tape->groups[g].layers;
	return at;
}

static bool overlap(const struct plan *plan, uint32_t a, uint32_t b)
{
	const struct cpu_buffer *buffers = plan->program->buffers;

	if (a == b || a >= plan->tape->n_buffers || b >= plan->tape->n_buffers)
		return a == b;
	return buffers[a].root == buffers[b].root &&
	       buffers[a].column < buffers[b].column + buffers[b].width &&
	       buffers[b].column < buffers[a].column + buffers[a].width;
}

static bool clash(uint32_t before, uint32_t now, bool same_thing)
{
	return before != PART_NONE && (before == PART_ALL || before != now || !same_thing);
}

static void check_thing(struct plan *plan, uint32_t thing, uint32_t part, bool write)
{
	for (uint32_t i = 0; i < plan->n_things; i++) {
		if (!overlap(plan, i, thing))
			continue;
		if (clash(plan->written[i], part, i == thing) ||
		    (write && clash(plan->read[i], part, i == thing)))
			plan->meet = true;
	}
}

static void note(uint32_t *noted, uint32_t part)
{
	*noted = *noted == PART_NONE || *noted == part ? part : PART_ALL;
}

static uint32_t elements(const struct plan *plan, uint16_t buffer)
{
	bool rows = plan->tape->buffers[buffer].rows == ROW_TOKEN && plan->split == SPLIT_ROWS;
	return rows ? PART_ROWS : PART_COLUMNS;
}

static uint32_t items(const struct plan *plan, uint16_t buffer, uint32_t parts)
{
	bool rows = plan->tape->buffers[buffer].rows == ROW_TOKEN && plan->split == SPLIT_ROWS;
	return rows ? PART_ROWS : PART_ITEMS + parts;
}

/* Whole rows: a thread's own if rows are split. */
static uint32_t whole_rows(const struct plan *plan, uint16_t buffer)
{
	return elements(plan, buffer) == PART_ROWS ? PART_ROWS : PART_ALL;
}

typedef void touch(struct plan *, uint32_t thing, uint32_t part, bool write);

static void touch_check(struct plan *plan, uint32_t thing, uint32_t part, bool write)
{
	check_thing(plan, thing, part, write);
}

static void touch_note(struct plan *plan, uint32_t thing, uint32_t part, bool write)
{
	note(write ? &plan->written[thing] : &plan->read[thing], part);
}

static void matmul_touches(struct plan *plan, const struct cpu_step *step, touch *f)
{
	const struct tape_op *norm = step->norm;
	uint16_t in = norm ? norm->in[0] : step->op->in[0];
	bool gathers = norm && plan->tape->buffers[in].rows != plan->tape->buffers[norm->out[0]].rows;

	f(plan, in, gathers ? PART_ALL : whole_rows(plan, in), false);
	for (uint32_t i = 0; i < step->n_matmuls; i++)
		if (step->matmul[i].out != TAPE_NONE)
			f(plan, step->matmul[i].out, elements(plan, step->matmul[i].out), true);
	if (norm && step->op->kind == TAPE_LOGITS) /* rows that are wanted themselves */
		f(plan, norm->out[0], PART_ALL, true);
}

static void norm_touches(struct plan *plan, const struct tape_op *op, touch *f)
{
	bool gathers = plan->tape->buffers[op->in[0]].rows != plan->tape->buffers[op->out[0]].rows;
	uint32_t part = items(plan, op->out[0], op->u.norm.groups);

	f(plan, op->in[0], gathers ? PART_ALL : part, false);
	f(plan, op->out[0], part, true);
}

static void attention_touches(struct plan *plan, const struct tape_op *op, touch *f)
{
	const struct tape_group *group = &plan->tape->groups[op->u.attn.group];

	if (op->kind == TAPE_KV_WRITE) {
		for (int i = 0; i < 2; i++)
			f(plan, op->in[i], items(plan, op->in[i], group->kv_heads), false);
		f(plan, kv_thing(plan, op), items(plan, op->in[0], group->kv_heads), true);
		return;
	}
	f(plan, op->in[0], PART_ALL, false);
	f(plan, kv_thing(plan, op), PART_ALL, false);
	f(plan, shared_thing(plan), PART_ALL, true);
	f(plan, op->out[0], PART_ALL, true);
}

static void touches(struct plan *plan, const struct cpu_step *step, touch *f)
{
	const struct tape_op *op = step->op;

	if (!op) {
		f(plan, angles_thing(plan), plan->split == SPLIT_ROWS ? PART_ROWS : PART_ALL, true);
		return;
	}
	switch (op->kind) {
	case TAPE_EMBED:
		f(plan, op->out[0], items(plan, op->out[0], 1), true);
		break;
	case TAPE_NORM:
		norm_touches(plan, op, f);
		break;
	case TAPE_MATMUL:
	case TAPE_LOGITS:
		matmul_touches(plan, step, f);
		break;
	case TAPE_ROPE:
		f(plan, angles_thing(plan), plan->split == SPLIT_ROWS ? PART_ROWS : PART_ALL, false);
		f(plan, op->in[0], items(plan, op->in[0], op->u.rope.heads), true);
		break;
	case TAPE_KV_WRITE:
	case TAPE_ATTN:
		attention_touches(plan, op, f);
		break;
	case TAPE_ACT:
	case TAPE_MUL:
	case TAPE_ADD:
		for (int i = 0; i < 2; i++)
			if (op->in[i] != TAPE_NONE)
				f(plan, op->in[i], elements(plan, op->in[i]), false);
		f(plan, op->out[0], elements(plan, op->out[0]), true);
		break;
	case TAPE_ROUTE:
		f(plan, op->in[0], items(plan, op->in[0], 1), false);
		f(plan, op->out[0], items(plan, op->out[0], 1), true);
		break;
	case TAPE_EXPERTS:
		for (int i = 0; i < 2; i++)
			f(plan, op->in[i], PART_ALL, false);
		f(plan, shared_thing(plan), PART_ALL, true);
		f(plan, op->out[0], PART_COLUMNS, true);
		break;
	case TAPE_POOL:
		f(plan, op->in[0], PART_ALL, false);
		f(plan, op->out[0], items(plan, op->out[0], 1), true);
		break;
	}
}

static void find_meetings(struct plan *plan)
{
	struct cpu_program *program = plan->program;

	for (uint32_t i = 0; i < plan->n_things; i++)
		plan->read[i] = plan->written[i] = PART_NONE;
	for (uint32_t i = 0; i < program->n_steps; i++) {
		struct cpu_step *step = &program->steps[i];
		plan->meet = false;
		touches(plan, step, touch_check);
		step->meet[plan->split] = plan->meet;
		for (uint32_t t = 0; plan->meet && t < plan->n_things; t++)
			plan->read[t] = plan->written[t] = PART_NONE;
		touches(plan, step, touch_note);
	}
}

/* ---- fusion ---- */

static bool reads(const struct plan *plan, const struct tape_op *op, uint16_t buffer)
{
	for (int i = 0; i < 2; i++)
		if (op->in[i] != TAPE_NONE && overlap(plan, op->in[i], buffer))
			return true;
	return false;
}

static bool is_product(const struct tape_op *op)
{
	return op->kind == TAPE_MATMUL || op->kind == TAPE_LOGITS;
}

/* True if the norm at op `at` is read by the products right after it and by nothing else. */
static bool norm_is_private(const struct plan *plan, uint32_t at)
{
	const struct tape_op *ops = plan->tape->ops, *norm = &ops[at];
	uint32_t i = at + 1;

	for (; i < plan->tape->n_ops && is_product(&ops[i]) && ops[i].in[0] == norm->out[0]; i++)
		if (ops[i].kind == TAPE_MATMUL && overlap(plan, ops[i].out[0], norm->in[0]))
			return false;
	if (i == at + 1)
		return false;
	for (; i < plan->tape->n_ops; i++) {
		if (reads(plan, &ops[i], norm->out[0]))
			return false;
		if (ops[i].kind == TAPE_NORM && ops[i].out[0] == norm->out[0])
			return true;
	}
	return true;
}

static struct cpu_matmul matmul_of(const struct cpu_program *program, const struct tape_op *op)
{
	return (struct cpu_matmul){
	    .op = op,
	    .weight = &program->weights[op->weight],
	    .bias = op->bias == TAPE_NONE ? NULL : program->weights[op->bias].vector,
	    .out = op->kind == TAPE_LOGITS ? TAPE_NONE : op->out[0],
	};
}

static bool same_input(const struct plan *plan, const struct tape_op *a, const struct tape_op *b)
{
	const struct cpu_weight *weights = plan->program->weights;

	return b->kind == a->kind && a->kind == TAPE_MATMUL && b->in[0] == a->in[0] &&
	       panel_quantised(weights[a->weight].kind) == panel_quantised(weights[b->weight].kind);
}

/* The step of the products that begin at op `at`; returns how many ops it takes. */
static uint32_t add_matmuls(struct plan *plan, uint32_t at, const struct tape_op *norm)
{
	struct cpu_step *step = &plan->program->steps[plan->program->n_steps++];
	const struct tape_op *ops = plan->tape->ops;
	uint32_t n = 1;

	step->run = ops[at].kind == TAPE_LOGITS ? run_logits : run_matmul;
	step->op = &ops[at];
	step->norm = norm && norm->out[0] == ops[at].in[0] ? norm : NULL;
	while (n < STEP_MATMULS && at + n < plan->tape->n_ops && same_input(plan, &ops[at], &ops[at + n]))
		n++;
	for (uint32_t i = 0; i < n; i++)
		step->matmul[i] = matmul_of(plan->program, &ops[at + i]);
	step->n_matmuls = n;
	return n;
}

static void add_steps(struct plan *plan)
{
	static run_step *const run[TAPE_OP_COUNT] = {
	    [TAPE_EMBED] = run_embed,     [TAPE_NORM] = run_norm,         [TAPE_ROPE] = run_rope,
	    [TAPE_ADD] = run_add,         [TAPE_MUL] = run_mul,           [TAPE_ACT] = run_act,
	    [TAPE_ATTN] = run_attention,  [TAPE_KV_WRITE] = run_kv_write, [TAPE_ROUTE] = run_route,
	    [TAPE_EXPERTS] = run_experts, [TAPE_POOL] = run_pool_rows,
	};
	struct cpu_program *program = plan->program;
	const struct tape_op *norm = NULL;

	program->hidden_buffer = TAPE_NONE;
	program->steps[program->n_steps++].run = run_angles;
	for (uint32_t i = 0; i < plan->tape->n_ops;) {
		const struct tape_op *op = &plan->tape->ops[i];
		if (op->kind == TAPE_LOGITS)
			program->hidden_buffer = op->in[0];
		if (is_product(op)) {
			i += add_matmuls(plan, i, norm);
			continue;
		}
		norm = NULL;
		if (op->kind == TAPE_NORM && norm_is_private(plan, i)) {
			norm = op;
		} else {
			struct cpu_step *step = &program->steps[program->n_steps++];
			step->run = run[op->kind];
			step->op = op;
		}
		i++;
	}
}

/* ---- what this backend does not run ---- */

static const char *unsupported_attention(const struct plan *plan, const struct tape_op *op)
{
	const struct tape_group *group = &plan->tape->groups[op->u.attn.group];

	if (group->kind != KV_FULL && group->kind != KV_WINDOW)
		return "latent and recurrent caches";
	if (op->u.attn.v_is_k)
		return "values that are a view of the keys";
	if (op->kind == TAPE_ATTN && op->u.attn.sinks != TAPE_NONE)
		return "attention sinks";
	if (op->kind == TAPE_ATTN && op->u.attn.bidirectional)
		return "attention without a causal mask";
	return NULL;
}

static const char *unsupported(const struct plan *plan, const struct tape_op *op)
{
	if (op->kind == TAPE_SCAN)
		return "recurrent operations";
	if (op->kind == TAPE_KV_WRITE || op->kind == TAPE_ATTN)
		return unsupported_attention(plan, op);
	if (op->kind == TAPE_MATMUL && op->u.matmul.heads > 1)
		return "block-diagonal products";
	if (op->kind == TAPE_NORM && op->u.norm.kind == NORM_LAYER && op->weight == TAPE_NONE)
		return "layer norms without a weight";
	if (op->kind == TAPE_ROUTE && op->u.route.groups > 1)
		return "routing by groups of experts";
	return NULL;
}

static int check_supported(const struct plan *plan, char *why, size_t why_bytes)
{
	for (uint32_t i = 0; i < plan->tape->n_ops; i++) {
		const char *what = unsupported(plan, &plan->tape->ops[i]);
		if (!what)
			continue;
		snprintf(why, why_bytes, "The cpu backend does not run %s (tape operation %u, layer %u).",
			 what, i, plan->tape->ops[i].layer);
		return -ENOTSUP;
	}
	for (uint32_t i = 0; i < plan->tape->n_buffers; i++)
		if (plan->tape->buffers[i].rows == ROW_TOKEN_EXPERT) {
			snprintf(why, why_bytes,
				 "The cpu backend has no buffers by token and expert (buffer %u).", i);
			return -ENOTSUP;
		}
	return 0;
}

int program_plan(struct cpu_program *program, char *why, size_t why_bytes)
{
	struct plan plan = {.program = program, .tape = program_tape(program)};
	int r = check_supported(&plan, why, why_bytes);

	if (r < 0)
		return r;
	plan.n_things = plan.tape->n_buffers + 2;
	for (uint32_t g = 0; g < plan.tape->n_groups; g++)
		plan.n_things += plan.tape->groups[g].layers;
	plan.read = calloc(plan.n_things, 2 * sizeof *plan.read);
	program->steps = calloc(plan.tape->n_ops + 1, sizeof *program->steps);
	if (!plan.read || !program->steps) {
		snprintf(why, why_bytes, "No memory for a plan of %u operations.", plan.tape->n_ops);
		free(plan.read);
		return -ENOMEM;
	}
	plan.written = plan.read + plan.n_things;
	add_steps(&plan);
	for (plan.split = 0; plan.split < SPLITS; plan.split++)
		find_meetings(&plan);
	free(plan.read);
	return 0;
}
