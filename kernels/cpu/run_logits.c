/* LOGITS: what the batch wants of its output rows, and no more.
 *
 * Rows that want all logits or the best id pass the vocabulary together, as many as a chunk holds. Whole rows
 * alone are multiplied to where they are asked for. Else a panel's logits go into a tile that stays in the
 * first-level cache; from there whole rows are copied, and the others only leave their best so far behind.
 * Rows that want chosen ids read the panels of those ids, each row by itself; rows that want the hidden state
 * read no vocabulary. Threads share the vocabulary by columns.
 *
 * Measured with two threads of a Zen 4 that was shared, before and after in turns, medians; before, all
 * logits were written and the sampler read them twice (SmolLM2-135M Q4_1; Gemma 3 270M Q4_K_M):
 *
 *   decode of 32 streams, greedy, tokens/s     1,312 to 1,393; 672 to 780
 *   decode of one stream, greedy               no difference beyond the noise
 *   score of 3 ids after one token, ms         3.1 to 2.4; 9.0 to 2.7
 *   score of 3 ids after 8 tokens, ms          6.8 to 5.8; 10.8 to 5.2
 *   whole rows of 8 streams by tiles           5 % slower, also with wide stores: so not by tiles
 *
 * The best few with the sum over all, for log-probabilities, stay the sampler's. Its sum is in f64 by
 * ascending id, one addition after the other: 64 us of 66 for 49,152 ids, of which no thread can take a part.
 */
#include <math.h>
#include <string.h>

#include "kernels/contract.h"
#include "kernels/cpu/program.h"

/* One matmul over the vocabulary and what this thread needs of it. */
struct pass {
	struct cpu_program *program;
	const struct cpu_step *step;
	const struct cpu_weight *weight;
	struct team_thread *self;
	struct cpu_private *mine;
	uint32_t panel, panel_end; /* this thread's */
};

/* ---- before and after ---- */

static uint32_t add_outputs(struct cpu_program *program, enum output_want want, uint32_t n)
{
	for (uint32_t o = 0; o < program->batch->outputs; o++)
		if (batch_want(program->batch, o) == want)
			program->outputs[n++] = o;
	return n;
}

void logits_begin(struct cpu_program *program)
{
	uint32_t rows = 0;

	for (uint32_t o = 0; o < program->batch->outputs; o++)
		if (batch_wants_logits(program->batch, o))
			program->logits_row[o] = rows++;
	program->n_best = add_outputs(program, OUTPUT_BEST, 0);
	program->n_whole = add_outputs(program, OUTPUT_LOGITS, program->n_best);
	program->n_chosen = add_outputs(program, OUTPUT_CHOSEN, program->n_whole);
	add_outputs(program, OUTPUT_HIDDEN, program->n_chosen);
}

/* Threads have ascending ids, so that of equal logits the first thread's stays. */
void logits_end(struct cpu_program *program)
{
	for (uint32_t i = 0; i < program->n_best; i++) {
		struct best_logit best = program->private[0].best[i];
		for (uint32_t t = 1; t < program->threads; t++) {
			const struct best_logit *other = &program->private[t].best[i];
			bool not_finite = best.not_finite || other->not_finite;
			best = other->value > best.value ? *other : best;
			best.not_finite = not_finite;
		}
		program->best[program->outputs[i]] = (struct output_best){best.id, best.value};
		if (best.not_finite)
			store_fault(program, program->batch->output_row[program->outputs[i]]);
	}
}

/* ---- inputs ---- */

/* What LOGITS reads of an output: its input's row, or the norm's of it. */
static const float *hidden_row(const struct pass *pass, uint32_t output, float *normed)
{
	const struct cpu_program *program = pass->program;
	const struct tape_op *norm = pass->step->norm;

	if (!norm)
		return buffer_row(program, pass->step->op->in[0], output);
	bool gathers = program->buffers[norm->in[0]].rows == ROW_TOKEN;
	uint32_t row = gathers ? program->batch->output_row[output] : output;
	norm_row(program, norm, buffer_row(program, norm->in[0], row), normed);
	return normed;
}

/* Every thread prepares all rows for its own columns; the first reports. */
static void prepare(const struct pass *pass, const uint32_t *outputs, uint32_t rows)
{
	for (uint32_t i = 0; i < rows; i++) {
		const float *x = hidden_row(pass, outputs[i], pass->mine->row);
		bool finite = prepare_row(pass->program, pass->weight, x, pass->mine->input, i, rows);
		if (!finite && pass->self->index == 0)
			store_fault(pass->program, pass->program->batch->output_row[outputs[i]]);
		pool_work(pass->self, pass->weight->k);
	}
}

/* ---- a panel ---- */

static uint32_t panel_columns(const struct pass *pass, uint32_t panel)
{
	uint32_t left = pass->weight->n - panel * PANEL_ROWS;

	return left < PANEL_ROWS ? left : PANEL_ROWS;
}

/* From products to logits: x[i] of the id `id` + i. */
static void finish(const struct pass *pass, uint32_t id, uint32_t n, float *x)
{
	const struct cpu_matmul *matmul = &pass->step->matmul[0];
	float scale = matmul->op->u.logits.scale, cap = matmul->op->u.logits.softcap;

	if (matmul->bias)
		pass->program->isa->add(x, matmul->bias + id, n, x);
	if (scale != 1.0f)
		pass->program->isa->scale(x, scale, n, x);
	for (uint32_t i = 0; i < n && cap > 0.0f; i++)
		x[i] = contract_softcap(x[i], cap);
}

/* The finished logits of one panel's ids: (rows, PANEL_ROWS). */
static void panel_logits(const struct pass *pass, uint32_t panel, uint32_t rows, float *tile)
{
	uint32_t columns = panel_columns(pass, panel);

	multiply_panel(pass->program, pass->self, pass->weight, 0, panel, rows, pass->mine->input, tile,
		       PANEL_ROWS);
	for (uint32_t i = 0; i < rows; i++)
		finish(pass, panel * PANEL_ROWS, columns, tile + i * PANEL_ROWS);
}

static float *logits_of(const struct cpu_program *program, uint32_t output)
{
	return program->logits + program->logits_row[output] * program->logits_stride;
}

static void keep_panel(const struct pass *pass, uint32_t panel, uint32_t output, const float *x)
{
	uint32_t columns = panel_columns(pass, panel);

	memcpy(logits_of(pass->program, output) + (size_t)panel * PANEL_ROWS, x, columns * sizeof *x);
	if (!pass->program->isa->finite(x, columns))
		store_fault(pass->program, pass->program->batch->output_row[output]);
}

/* ---- rows that pass the whole vocabulary: [first, first + rows) of program->outputs ---- */

/* Among them rows that want the best. */
static void chunk_by_tiles(const struct pass *pass, uint32_t first, uint32_t best, uint32_t rows)
{
	_Alignas(64) float tile[CHUNK_ROWS * PANEL_ROWS];
	const struct cpu_program *program = pass->program;

	for (uint32_t p = pass->panel; p < pass->panel_end; p++) {
		panel_logits(pass, p, rows, tile);
		program->isa->best(tile, best, p * PANEL_ROWS, panel_columns(pass, p),
				   pass->mine->best + first);
		for (uint32_t i = best; i < rows; i++)
			keep_panel(pass, p, program->outputs[first + i], tile + i * PANEL_ROWS);
	}
}

/* All want whole logits, and have rows that follow each other. */
static void chunk_in_place(const struct pass *pass, uint32_t first, uint32_t rows)
{
	struct cpu_program *program = pass->program;
	float *y = logits_of(program, program->outputs[first]);
	uint32_t id = pass->panel * PANEL_ROWS, end = pass->panel_end * PANEL_ROWS;

	end = end < pass->weight->n ? end : pass->weight->n;
	multiply_panels(program, pass->self, pass->weight, 0, pass->panel, pass->panel_end, rows,
			pass->mine->input, y, program->logits_stride);
	for (uint32_t i = 0; i < rows && id < end; i++, y += program->logits_stride) {
		finish(pass, id, end - id, y + id);
		if (!program->isa->finite(y + id, end - id))
			store_fault(program, program->batch->output_row[program->outputs[first + i]]);
	}
}

static void whole_chunk(const struct pass *pass, uint32_t first, uint32_t rows)
{
	const struct cpu_program *program = pass->program;
	const uint32_t *outputs = program->outputs + first, *row = program->logits_row;
	uint32_t best = program->n_best > first ? program->n_best - first : 0;

	best = best < rows ? best : rows;
	prepare(pass, outputs, rows);
	if (!best && row[outputs[rows - 1]] - row[outputs[0]] == rows - 1)
		chunk_in_place(pass, first, rows);
	else
		chunk_by_tiles(pass, first, best, rows);
}

static void whole_rows(const struct pass *pass)
{
	const struct cpu_program *program = pass->program;

	for (uint32_t i = 0; i < program->n_best; i++)
		pass->mine->best[i] = (struct best_logit){.value = -INFINITY};
	for (uint32_t first = 0, rows; first < program->n_whole; first += rows) {
		rows = program->n_whole - first < CHUNK_ROWS ? program->n_whole - first : CHUNK_ROWS;
		whole_chunk(pass, first, rows);
	}
}

/* ---- chosen ids ---- */

static void mark_chosen(const struct pass *pass, const struct batch_output *output)
{
	uint32_t *chosen = pass->mine->chosen;

	memset(chosen + pass->panel, 0, (pass->panel_end - pass->panel) * sizeof *chosen);
	for (uint32_t i = 0; i < output->n_chosen; i++) {
		uint32_t id = output->chosen[i], panel = id / PANEL_ROWS;
		if (panel >= pass->panel && panel < pass->panel_end)
			chosen[panel] |= UINT32_C(1) << id % PANEL_ROWS;
	}
}

static void chosen_row(const struct pass *pass, uint32_t output)
{
	_Alignas(64) float tile[PANEL_ROWS];
	struct cpu_program *program = pass->program;
	float *logits = logits_of(program, output);

	mark_chosen(pass, &program->batch->output[output]);
	prepare(pass, &output, 1);
	for (uint32_t p = pass->panel; p < pass->panel_end; p++) {
		uint32_t ids = pass->mine->chosen[p];
		if (ids)
			panel_logits(pass, p, 1, tile);
		for (; ids; ids &= ids - 1) {
			uint32_t column = (uint32_t)__builtin_ctz(ids);
			logits[(size_t)p * PANEL_ROWS + column] = tile[column];
			if (!program->isa->finite(&tile[column], 1))
				store_fault(program, program->batch->output_row[output]);
		}
	}
}

/* ---- hidden states: whole rows, shared among the threads ---- */

static void hidden_rows(const struct pass *pass)
{
	struct cpu_program *program = pass->program;
	uint32_t first, end, n = program->batch->outputs - program->n_chosen;

	pool_share(pass->self->index, pass->self->threads, n, &first, &end);
	for (uint32_t i = first; i < end; i++) {
		uint32_t output = program->outputs[program->n_chosen + i];
		const float *x = hidden_row(pass, output, buffer_row(program, pass->step->op->in[0], output));
		if (!program->isa->finite(x, pass->weight->k))
			store_fault(program, program->batch->output_row[output]);
		pool_work(pass->self, pass->weight->k);
	}
}

void run_logits(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	struct pass pass = {
	    .program = program,
	    .step = step,
	    .weight = step->matmul[0].weight,
	    .self = self,
	    .mine = &program->private[self->index],
	};

	pool_share(self->index, self->threads, panel_count(pass.weight->n), &pass.panel, &pass.panel_end);
	whole_rows(&pass);
	for (uint32_t i = program->n_whole; i < program->n_chosen; i++)
		chosen_row(&pass, program->outputs[i]);
	hidden_rows(&pass);
}
