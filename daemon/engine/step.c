/* One step: the batch of all that take part, the backend's run, and what became of each sequence. */
#include <errno.h>
#include <string.h>

#include "daemon/engine/engine_internal.h"

enum { MEASURED_ROWS = 16 /* a step with fewer says little of prefill */ };

static void add_rows(struct engine *engine, struct batch *batch, struct sequence *sequence, uint32_t rows)
{
	bool all = sequence_all_rows_output(sequence);
	bool last = rows == sequence_pending(sequence);
	struct batch_output wants = sequence_wants(sequence);

	sequence->first_row = batch->rows;
	sequence->rows = rows;
	sequence->first_output = batch->outputs;
	sequence->first_logits = engine->batch_logits;
	for (uint32_t r = 0; r < rows; r++) {
		uint32_t row = batch->rows++;

		engine->token[row] = sequence->tokens[sequence->computed + r];
		engine->position[row] = sequence->computed + r;
		engine->row_sequence[row] = batch->sequences;
		if (all || (last && r == rows - 1)) {
			engine->output[batch->outputs] = wants;
			engine->batch_logits += batch_wants_logits(batch, batch->outputs);
			engine->output_row[batch->outputs++] = row;
		}
	}
	sequence->outputs = batch->outputs - sequence->first_output;
}

static void add_sequence(struct engine *engine, struct batch *batch, struct sequence *sequence, uint32_t rows)
{
	uint32_t s = batch->sequences;

	add_rows(engine, batch, sequence, rows);
	engine->batch_owner[s] = sequence;
	engine->batch_sequences[s] = (struct batch_sequence){
	    .first_row = sequence->first_row, .rows = rows, .kv_len = sequence->computed + rows};
	for (uint32_t g = 0; g < engine->model.tape->n_groups; g++) {
		struct kv_table *table = &sequence->table[g];

		kv_cover(&engine->pool[g], table, sequence->computed + rows); /* reserved at admission */
		memcpy(engine->table[g] + (size_t)s * engine->stride, table->block,
		       table->n * sizeof(*table->block));
	}
	batch->sequences++;
}

static struct batch build(struct engine *engine)
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

	engine->batch_logits = 0;
	for (uint32_t g = 0; g < engine->model.tape->n_groups; g++)
		batch.table[g] = engine->table[g];
	for (uint32_t i = 0; i < engine->n_jobs; i++)
		if (engine->entries[i].action == SCHED_STEP)
			add_sequence(engine, &batch, engine->jobs[i].sequence, engine->entries[i].tokens);
	return batch;
}

static bool has_fault(const struct engine *engine, const struct sequence *sequence)
{
	const uint8_t *faults = program_faults(engine->model.program);

	for (uint32_t r = 0; r < sequence->rows; r++)
		if (faults[sequence->first_row + r])
			return true;
	return false;
}

static void answer(struct engine *engine, const struct sequence *sequence,
		   const struct sequence_result *result)
{
	struct request *request = sequence->request;
	const struct job *job = request->engine_state;
	struct engine_event event = {
	    .kind = result->ended ? EVENT_FINISH : EVENT_TOKEN,
	    .has_token = result->has_token,
	    .finish = result->finish,
	    .request = request->index,
	    .token = result->token,
	    .reason = result->reason,
	    .reply_bytes = sequence_reply_written(sequence),
	};

	if (result->has_token)
		add_relaxed_u64(&engine->counts.generated_tokens, 1);
	if (result->ended) {
		add_relaxed_u64(&engine->counts.finished, 1);
		engine_drop(engine, (uint32_t)(job - engine->jobs));
	}
	if (result->ended || result->has_token)
		engine_push(engine, &event);
}

static const struct sequence_result numeric_fault = {
    .ended = true, .finish = WIRE_FINISH_ERROR, .reason = WIRE_REASON_NUMERIC};
static const struct sequence_result step_failed = {
    .ended = true, .finish = WIRE_FINISH_ERROR, .reason = WIRE_REASON_MODEL_FAILED};

static void advance(struct engine *engine, struct sequence *sequence, int done)
{
	const struct engine_model *model = &engine->model;
	struct sequence_outputs outputs = {
	    .logits = program_logits(model->program) + (size_t)sequence->first_logits * model->tape->vocab,
	    .best = program_best(model->program) + sequence->first_output,
	    .width = model->tape->width,
	};
	struct sequence_result result;

	outputs.hidden = program_hidden(model->program, &outputs.hidden_stride) +
			 sequence->first_output * outputs.hidden_stride;
	if (sequence->computed < sequence->request->n_tokens)
		add_relaxed_u64(&engine->counts.prompt_tokens, sequence->rows);
	if (done != STEP_DONE)
		result = step_failed;
	else if (has_fault(engine, sequence))
		result = numeric_fault;
	else
		result = sequence_advance(sequence, &engine->sampler, &outputs, model->eos, model->n_eos);
	answer(engine, sequence, &result);
}

/* Keeps the scheduler's estimate of a token of prefill, an eighth new each time. */
static void measure(struct engine *engine, uint32_t rows, uint64_t began_ns, uint64_t ended_ns)
{
	uint64_t ns = ended_ns - began_ns, n = load_relaxed_u64(&engine->counts.steps) % ENGINE_LAST_STEPS;

	if (rows >= MEASURED_ROWS)
		engine->token_ns = engine->token_ns ? (engine->token_ns * 7 + ns / rows) / 8 : ns / rows;
	store_relaxed_u64(&engine->counts.last_steps[n].ended_ns, ended_ns);
	store_relaxed_u64(&engine->counts.last_steps[n].took_ns, ns);
	if (ns > load_relaxed_u64(&engine->counts.longest_step_ns))
		store_relaxed_u64(&engine->counts.longest_step_ns, ns);
	add_relaxed_u64(&engine->counts.step_ns, ns);
	add_relaxed_u64(&engine->counts.steps, 1);
	add_relaxed_u64(&engine->counts.rows, rows);
}

unsigned engine_step(struct engine *engine, const struct sched_plan *plan)
{
	struct batch batch = build(engine);
	uint64_t before = engine_now(engine);
	int done = program_step(engine->model.program, &batch);

	measure(engine, plan->tokens, before, engine_now(engine));
	for (uint32_t s = 0; s < batch.sequences; s++) {
		advance(engine, engine->batch_owner[s], done);
		engine_breathe(engine);
	}
	return 1;
}
