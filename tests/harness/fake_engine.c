#include "tests/harness/fake_engine.h"

#include <errno.h>
#include <string.h>

static uint32_t power_of_two(uint32_t least)
{
	uint32_t n = 16;

	while (n < least)
		n *= 2;
	return n;
}

int fake_engine_init(struct fake_engine *engine, uint32_t n_requests)
{
	int error;

	memset(engine, 0, sizeof *engine);
	engine->link.n_requests = n_requests;
	engine->link.requests = calloc(n_requests, sizeof(struct request));
	engine->sequences = calloc(n_requests, sizeof(struct fake_sequence));
	error =
	    queue_init(&engine->link.commands, power_of_two(2 * n_requests), sizeof(struct engine_command));
	if (error == 0)
		error =
		    queue_init(&engine->link.events, power_of_two((REQUEST_UNDELIVERED_MAX + 2) * n_requests),
			       sizeof(struct engine_event));
	return engine->link.requests && engine->sequences ? error : -ENOMEM;
}

void fake_engine_destroy(struct fake_engine *engine)
{
	free(engine->link.requests);
	free(engine->sequences);
	queue_free(&engine->link.commands);
	queue_free(&engine->link.events);
}

void fake_engine_ready(struct fake_engine *engine, uint32_t state)
{
	struct engine_limits *limits = &engine->link.limits;

	limits->vocab = FAKE_VOCAB;
	limits->width = FAKE_WIDTH;
	limits->context = FAKE_CONTEXT;
	limits->max_prompt = FAKE_MAX_PROMPT;
	limits->kv_tokens = FAKE_KV_TOKENS;
	store_release_u32(&limits->state, state);
}

static void start(struct fake_engine *engine, uint32_t index)
{
	const struct request *request = &engine->link.requests[index];

	engine->sequences[index] =
	    (struct fake_sequence){.running = true, .last = request->tokens[request->n_tokens - 1]};
	engine->n_running++;
}

static unsigned take_commands(struct fake_engine *engine)
{
	struct engine_command command;
	unsigned n = 0;

	for (; queue_pop(&engine->link.commands, &command); n++) {
		struct fake_sequence *sequence = &engine->sequences[command.request];

		if (command.kind == COMMAND_SUBMIT) {
			start(engine, command.request);
		} else if (sequence->running) { /* it may have finished in the meantime */
			sequence->finish = command.finish;
			sequence->reason = command.reason;
		}
	}
	return n;
}

static void finish(struct fake_engine *engine, uint32_t index, struct engine_event *event)
{
	event->kind = EVENT_FINISH;
	event->request = index;
	engine->sequences[index].running = false;
	engine->n_running--;
	queue_push(&engine->link.events, event);
}

static bool stops(const struct request *request, uint32_t token)
{
	for (uint32_t i = 0; i < request->n_stop; i++)
		if (request->stop[i] == token)
			return true;
	return false;
}

static uint32_t write_score(const struct request *request)
{
	struct wire_reply head = {.kind = WIRE_REPLY_LOGITS, .stride = sizeof(struct wire_scored)};
	uint32_t n = 0;

	for (uint32_t i = 0; i < request->n_candidates; i++, n++) {
		struct wire_scored record = {request->candidates[i], fake_score(request->candidates[i])};

		memcpy(request->reply + sizeof head + n * sizeof record, &record, sizeof record);
	}
	head.count = n;
	head.bytes = n * head.stride;
	memcpy(request->reply, &head, sizeof head);
	return (uint32_t)sizeof head + head.bytes;
}

static uint32_t write_embedding(const struct request *request)
{
	struct wire_reply head = {WIRE_REPLY_EMBEDDING, FAKE_WIDTH, sizeof(float), 0};

	for (uint32_t i = 0; i < FAKE_WIDTH; i++) {
		float value = fake_embedding(request->mean, i);

		memcpy(request->reply + sizeof head + i * sizeof value, &value, sizeof value);
	}
	head.bytes = (uint32_t)(sizeof head + FAKE_WIDTH * sizeof(float));
	memcpy(request->reply, &head, sizeof head);
	return head.bytes;
}

static bool step(struct fake_engine *engine, uint32_t index)
{
	const struct request *request = &engine->link.requests[index];
	struct fake_sequence *sequence = &engine->sequences[index];
	struct engine_event event = {.kind = EVENT_TOKEN, .request = index};
	uint32_t undelivered = sequence->produced - load_acquire_u32(&request->delivered);

	if (undelivered > load_relaxed_u32(&engine->most_undelivered))
		store_relaxed_u32(&engine->most_undelivered, undelivered);
	if (sequence->finish) {
		event.finish = sequence->finish;
		event.reason = sequence->reason;
		finish(engine, index, &event);
		return true;
	}
	if (load_relaxed_u32(&engine->fails)) {
		event.finish = WIRE_FINISH_ERROR;
		event.reason = load_relaxed_u32(&engine->fails);
		finish(engine, index, &event);
		return true;
	}
	if (load_relaxed_u32(&engine->paused) || undelivered >= REQUEST_UNDELIVERED_MAX)
		return false;
	if (request->op != WIRE_OP_GENERATE) {
		event.finish = WIRE_FINISH_DONE;
		event.reply_bytes =
		    request->op == WIRE_OP_SCORE ? write_score(request) : write_embedding(request);
		finish(engine, index, &event);
		return true;
	}
	event.has_token = 1;
	event.token = sequence->last = fake_next(sequence->last);
	sequence->produced++;
	if (stops(request, event.token) || sequence->produced == request->max_new) {
		event.finish = stops(request, event.token) ? WIRE_FINISH_STOP : WIRE_FINISH_LENGTH;
		finish(engine, index, &event);
	} else {
		queue_push(&engine->link.events, &event);
	}
	return true;
}

unsigned fake_engine_turn(struct fake_engine *engine)
{
	unsigned did;

	if (load_relaxed_u32(&engine->stuck))
		return 0;
	did = take_commands(engine);
	for (uint32_t i = 0; engine->n_running && i < engine->link.n_requests; i++)
		if (engine->sequences[i].running)
			did += step(engine, i);
	store_relaxed_u32(&engine->running, engine->n_running);
	return did;
}
