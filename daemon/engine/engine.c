#include "daemon/engine/engine.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/engine/engine_internal.h"
#include "shm/resident.h"

enum { PAUSED_LOOK_NS = 1000000 /* how often a paused request is looked after when nothing else runs */ };

int engine_create(struct engine **ret, const struct engine_config *config)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	uint32_t n = config->link->n_requests;

	if (!engine)
		return -ENOMEM;
	engine->config = *config;
	engine->jobs = resident_calloc(n, sizeof(*engine->jobs));
	engine->entries = resident_calloc(n, sizeof(*engine->entries));
	if (!engine->jobs || !engine->entries) {
		engine_free(engine);
		return -ENOMEM;
	}
	*ret = engine;
	return 0;
}

void engine_free(struct engine *engine)
{
	if (!engine)
		return;
	engine_free_model(engine);
	free(engine->jobs);
	free(engine->entries);
	free(engine);
}

void engine_push(struct engine *engine, const struct engine_event *event)
{
	/* There is room for all that may be undelivered, so this cannot fail. */
	queue_push(&engine->config.link->events, event);
	engine->pushed++;
}

static void set_gauges(struct engine *engine)
{
	uint64_t running = 0, paused = 0;

	for (uint32_t i = 0; i < engine->n_jobs; i++) {
		running += engine->jobs[i].sequence != NULL;
		paused += engine->entries[i].paused;
	}
	store_relaxed_u64(&engine->counts.running, running);
	store_relaxed_u64(&engine->counts.paused, paused);
	store_relaxed_u64(&engine->counts.waiting, engine->n_jobs - running);
	store_relaxed_u64(&engine->counts.kv_blocks_used, engine->sequences ? kv_used(&engine->pool[0]) : 0);
}

/* ---- commands ---- */

static void refuse(struct engine *engine, struct request *request, uint32_t reason, uint64_t asked,
		   uint64_t limit, uint64_t predicted_ns)
{
	struct engine_event event = {
	    .kind = EVENT_REFUSED,
	    .request = request->index,
	    .reason = reason,
	    .asked = (uint32_t)(asked < UINT32_MAX ? asked : UINT32_MAX),
	    .limit = (uint32_t)(limit < UINT32_MAX ? limit : UINT32_MAX),
	    .predicted_ns = predicted_ns,
	};

	add_relaxed_u64(&engine->counts.refused, 1);
	engine_push(engine, &event);
}

static void finish(struct engine *engine, struct request *request, uint8_t how, uint32_t reason,
		   uint32_t reply_bytes)
{
	struct engine_event event = {.kind = EVENT_FINISH,
				     .finish = how,
				     .request = request->index,
				     .reason = reason,
				     .reply_bytes = reply_bytes};

	add_relaxed_u64(&engine->counts.finished, 1);
	engine_push(engine, &event);
}

static void name_job(struct engine *engine, uint32_t i)
{
	engine->jobs[i].request->engine_state = &engine->jobs[i];
}

static void submit(struct engine *engine, struct request *request)
{
	uint32_t i = engine->n_jobs++;

	engine->jobs[i] = (struct job){.request = request, .serial = engine->next_serial++};
	name_job(engine, i);
	engine->entries[i] = (struct sched_entry){
	    .state = SCHED_WAITING,
	    .priority = request->priority,
	    .id = engine->jobs[i].serial,
	    .pending = request->n_tokens,
	    .to_come = request->max_new,
	    .arrival_ns = request->arrival_ns,
	    .deadline_ns = request->deadline_ns,
	};
}

void engine_drop(struct engine *engine, uint32_t i)
{
	struct job *job = &engine->jobs[i];
	uint32_t last = --engine->n_jobs;

	job->request->engine_state = NULL;
	if (job->sequence) {
		for (uint32_t g = 0; g < engine->model.tape->n_groups; g++)
			kv_release(&engine->pool[g], &job->sequence->table[g]);
		job->sequence->request = NULL;
	}
	if (i == last)
		return;
	engine->jobs[i] = engine->jobs[last];
	engine->entries[i] = engine->entries[last];
	name_job(engine, i);
}

static void end(struct engine *engine, struct request *request, const struct engine_command *command)
{
	const struct job *job = request->engine_state;
	uint32_t written;

	if (!job) /* it has ended by itself; its event is on the way */
		return;
	written = job->sequence ? sequence_reply_written(job->sequence) : 0;
	engine_drop(engine, (uint32_t)(job - engine->jobs));
	finish(engine, request, command->finish, command->reason, written);
}

static void drain_commands(struct engine *engine)
{
	struct engine_link *link = engine->config.link;
	struct engine_command command;

	while (queue_pop(&link->commands, &command)) {
		struct request *request = &link->requests[command.request];

		if (command.kind == COMMAND_SUBMIT)
			submit(engine, request);
		else if (command.kind == COMMAND_END)
			end(engine, request, &command);
	}
}

/* ---- what the model can never do, and what the scheduler decides ---- */

static uint32_t foreign_token(const struct request *request, uint32_t vocab)
{
	for (uint32_t i = 0; i < request->n_tokens; i++)
		if (request->tokens[i] >= vocab)
			return request->tokens[i];
	return 0;
}

struct verdict {
	uint32_t reason; /* WIRE_REASON_NONE: it can run */
	uint64_t asked, limit;
};

/* Judges a request that may have arrived before the limits were known, or that no pool will ever hold. */
static struct verdict judge(const struct engine *engine, const struct request *request)
{
	const struct engine_limits *limits = &engine->config.link->limits;
	uint64_t keys = sequence_keys(request), reply = sequence_reply_bytes(request, limits->width);
	uint64_t total =
	    request->op == WIRE_OP_GENERATE ? (uint64_t)request->n_tokens + request->max_new : keys;
	uint32_t foreign = foreign_token(request, limits->vocab);

	if (request->n_tokens == 0)
		return (struct verdict){WIRE_REASON_NO_TOKENS, 0, 1};
	if (foreign)
		return (struct verdict){WIRE_REASON_BAD_TOKEN, foreign, limits->vocab};
	if (request->n_tokens > limits->max_prompt)
		return (struct verdict){WIRE_REASON_PROMPT_TOO_LONG, request->n_tokens, limits->max_prompt};
	if (total > limits->context)
		return (struct verdict){WIRE_REASON_CONTEXT, total, limits->context};
	if (keys > limits->kv_tokens)
		return (struct verdict){WIRE_REASON_KV_NEVER_FITS, keys, limits->kv_tokens};
	if (request->op != WIRE_OP_GENERATE && reply > request->reply_cap)
		return (struct verdict){WIRE_REASON_BAD_REPLY, reply, request->reply_cap};
	return (struct verdict){WIRE_REASON_NONE, 0, 0};
}

/* The first look at a waiting request with the model there: what it needs, or why it can never run. */
static void look_at_new(struct engine *engine, uint32_t i)
{
	struct request *request = engine->jobs[i].request;
	struct verdict verdict = judge(engine, request);

	engine->entries[i].blocks = kv_blocks_for(sequence_keys(request));
	if (verdict.reason == WIRE_REASON_NONE)
		return;
	engine_drop(engine, i);
	refuse(engine, request, verdict.reason, verdict.asked, verdict.limit, 0);
}

/* Brings the scheduler's view up to date; refuses what can never run. */
static void refresh(struct engine *engine)
{
	uint32_t spare = engine->model.limits.logits - engine->model.limits.sequences;

	for (uint32_t i = engine->n_jobs; i-- > 0;) {
		struct job *job = &engine->jobs[i];
		struct sched_entry *entry = &engine->entries[i];
		struct request *request = job->request;

		if (!job->sequence) {
			if (!entry->blocks)
				look_at_new(engine, i);
			continue;
		}
		entry->pending = sequence_pending(job->sequence);
		if (request->op == WIRE_OP_SCORE && sequence_all_rows_output(job->sequence)) {
			entry->pending = entry->pending > 1 + spare ? 1 + spare : entry->pending;
			spare -= entry->pending - 1;
		}
		entry->to_come = request->max_new - job->sequence->generated;
		/* Acquire is not needed: the count alone is read, and it only grows. */
		entry->paused = request->op == WIRE_OP_GENERATE &&
				job->sequence->generated - load_relaxed_u32(&request->delivered) >=
				    REQUEST_UNDELIVERED_MAX;
	}
}

static void drop_expired(struct engine *engine)
{
	for (uint32_t i = engine->n_jobs; i-- > 0;) {
		struct request *request = engine->jobs[i].request;
		const struct sequence *sequence = engine->jobs[i].sequence;
		uint64_t predicted = engine->entries[i].predicted_ns;

		if (engine->entries[i].action != SCHED_EXPIRED)
			continue;
		if (sequence) {
			uint32_t written = sequence_reply_written(sequence);

			engine_drop(engine, i);
			finish(engine, request, WIRE_FINISH_DEADLINE, WIRE_REASON_DEADLINE, written);
		} else {
			engine_drop(engine, i);
			refuse(engine, request, WIRE_REASON_DEADLINE, 0, 0, predicted);
		}
	}
}

static struct sequence *free_slot(struct engine *engine)
{
	struct sequence *sequence = engine->sequences;

	while (sequence->request)
		sequence++;
	return sequence;
}

static void join(struct engine *engine)
{
	for (uint32_t i = 0; i < engine->n_jobs; i++) {
		struct sched_entry *entry = &engine->entries[i];
		struct job *job = &engine->jobs[i];

		if (entry->state != SCHED_WAITING ||
		    (entry->action != SCHED_STEP && entry->action != SCHED_JOIN))
			continue;
		job->sequence = free_slot(engine);
		for (uint32_t g = 0; g < engine->model.tape->n_groups; g++)
			kv_reserve(&engine->pool[g], &job->sequence->table[g], entry->blocks);
		sequence_begin(job->sequence, job->request);
		entry->state = SCHED_RUNNING;
	}
}

static uint32_t blocks_free(const struct engine *engine)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t g = 0; g < engine->model.tape->n_groups; g++)
		if (kv_available(&engine->pool[g]) < least)
			least = kv_available(&engine->pool[g]);
	return least;
}

static struct sched_plan plan(struct engine *engine, bool ready, uint64_t now)
{
	const struct tape_limits *model = &engine->model.limits;
	struct sched_cost unknown = {0};
	struct sched_limits limits = {.patience_ns = engine->config.patience_ns};

	if (ready) {
		refresh(engine);
		limits.step_tokens = model->rows;
		limits.running = model->sequences;
		limits.blocks_free = blocks_free(engine);
		limits.max_step_ns = engine->config.max_step_ns;
		limits.token_ns = engine->token_ns;
	}
	return schedule(engine->entries, engine->n_jobs, &limits, &unknown, now);
}

static void refuse_all(struct engine *engine, uint32_t reason)
{
	while (engine->n_jobs) {
		struct request *request = engine->jobs[engine->n_jobs - 1].request;

		engine_drop(engine, engine->n_jobs - 1);
		refuse(engine, request, reason, 0, 0, 0);
	}
}

/* The next deadline; sooner while a paused request waits for its reader. */
static void plan_next_look(struct engine *engine, uint64_t now)
{
	engine->look_again_ns = 0;
	for (uint32_t i = 0; i < engine->n_jobs; i++) {
		uint64_t at =
		    engine->entries[i].paused ? now + PAUSED_LOOK_NS : engine->entries[i].deadline_ns;

		if (at && (!engine->look_again_ns || at < engine->look_again_ns))
			engine->look_again_ns = at;
	}
}

uint64_t engine_look_again_ns(const struct engine *engine)
{
	return engine->look_again_ns;
}

unsigned engine_turn(struct engine *engine)
{
	/* Acquire: pairs with the release in engine_set_model; the model's fields are complete. */
	uint32_t stage = load_acquire_u32(&engine->stage);
	struct sched_plan made = {0};
	unsigned steps = 0;

	engine->pushed = 0;
	drain_commands(engine);
	if (stage == STAGE_WARMING) {
		engine_warm(engine);
		steps++;
	} else if (stage == STAGE_FAILED) {
		refuse_all(engine, WIRE_REASON_MODEL_FAILED);
	}
	if (engine->n_jobs) {
		uint64_t now = engine_now(engine);

		made = plan(engine, stage == STAGE_READY, now);
		drop_expired(engine);
		join(engine);
		if (made.steps)
			steps += engine_step(engine, &made);
		else
			plan_next_look(engine, now);
	} else {
		engine->look_again_ns = 0;
	}
	if (engine->pushed || steps)
		set_gauges(engine);
	return engine->pushed + steps;
}

const struct engine_counts *engine_counts(const struct engine *engine)
{
	return &engine->counts;
}

const struct queue *engine_commands(const struct engine *engine)
{
	return &engine->config.link->commands;
}
