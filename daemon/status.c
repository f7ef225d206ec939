/* The daemon's state as one JSON object. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "daemon/daemon_internal.h"
#include "daemon/json.h"

enum { ENDED_MAX = 16 };

/* How often each reason was counted, those that were. */
static void put_reasons(struct json *json, const char *key, const shared_u64 *counters)
{
	static const char *const names[WIRE_REASON_LIMIT] = {
#define X(number, name, error, sentence) [number] = #name,
	    WIRE_REASONS(X)
#undef X
	};
	unsigned any = 0;

	put(json, "\"%s\":{", key);
	for (unsigned i = 0; i < WIRE_REASON_LIMIT; i++) {
		uint64_t n = load_relaxed_u64(&counters[i]);

		if (names[i] && n)
			put(json, "%s\"%s\":%" PRIu64, any++ ? "," : "", names[i], n);
	}
	put(json, "},");
}

static const char *state_name(const struct daemon *daemon, enum load_phase phase)
{
	static const char *const names[] = {"reading", "loading", "warming", "failed"};

	if (load_relaxed_u32(&daemon->draining))
		return "draining";
	if (phase == LOAD_FAILED)
		return "failed";
	/* Acquire: pairs with the release in the engine's publish. */
	if (load_acquire_u32(&daemon->link.limits.state) == WIRE_MODEL_READY)
		return "ready";
	return names[phase];
}

static void put_model(struct json *json, const struct daemon *daemon)
{
	const struct load_model *model = load_model(daemon->load);
	double share;
	enum load_phase phase = load_progress(daemon->load, &share);

	put(json, "\"model\":{");
	put_text(json, "file", daemon->config.model);
	put_text(json, "state", state_name(daemon, phase));
	put(json, "\"progress\":%.4f,", share);
	put_counter(json, "warmed_shapes", &engine_counts(daemon->engine)->warmed_shapes);
	if (phase == LOAD_FAILED)
		put_text(json, "why", load_why(daemon->load));
	if (phase == LOAD_COPYING || phase == LOAD_WARMING) {
		put_text(json, "name", model->name);
		put_text(json, "architecture", model->architecture);
		put_number(json, "bytes", model->bytes);
		put_number(json, "parameters", model->parameters);
		put_number(json, "vocab", model->tape->vocab);
		put_number(json, "context", model->limits.context);
		put_text(json, "isa", backend_isa(model->backend));
		put_text(json, "numerics", backend_numerics(model->backend));
	}
	close_object(json, ",");
}

static void put_start(struct json *json, const struct daemon *daemon)
{
	static const char *const keys[START_PHASES] = {"set_up_ns", "header_ns", "memory_ns", "weights_ns",
						       "warm_up_ns"};
	uint64_t ns[START_PHASES];

	/* Acquire: pairs with the release in the engine's publish. */
	if (load_acquire_u32(&daemon->link.limits.state) != WIRE_MODEL_READY)
		return;
	daemon_start_phases(daemon, ns);
	put(json, "\"start\":{");
	for (int i = 0; i < START_PHASES; i++)
		put_number(json, keys[i], ns[i]);
	close_object(json, ",");
}

static void put_memory(struct json *json, const struct daemon *daemon)
{
	const struct load_model *model = load_model(daemon->load);
	enum load_phase phase = load_progress(daemon->load, NULL);

	if (phase != LOAD_COPYING && phase != LOAD_WARMING)
		return;
	put(json, "\"memory\":{");
	put_number(json, "weights_bytes", model->demand.weights);
	put_number(json, "kv_bytes", model->demand.kv);
	put_number(json, "scratch_bytes", model->demand.scratch);
	put_number(json, "channels_bytes", model->demand.channels);
	put_number(json, "limit_bytes", model->budget.bytes);
	put_text(json, "limit", model->budget.source);
	close_object(json, ",");
}

/* [ended at, took] of the latest steps, in ns, in no order. */
static void put_last_steps(struct json *json, const struct engine_counts *engine)
{
	put(json, "\"last\":[");
	for (int i = 0; i < ENGINE_LAST_STEPS; i++)
		put(json, "%s[%" PRIu64 ",%" PRIu64 "]", i ? "," : "",
		    load_relaxed_u64(&engine->last_steps[i].ended_ns),
		    load_relaxed_u64(&engine->last_steps[i].took_ns));
	put(json, "],");
}

static void put_requests(struct json *json, const struct daemon *daemon)
{
	const struct engine_counts *engine = engine_counts(daemon->engine);
	const struct front_counts *front = front_counts(daemon->front);

	put(json, "\"requests\":{");
	put_counter(json, "in_flight", &front->in_flight);
	put_counter(json, "held", &front->held);
	put_counter(json, "queued", &engine->waiting);
	put_counter(json, "running", &engine->running);
	put_counter(json, "paused", &engine->paused);
	put_counter(json, "served", &front->finished);
	put_counter(json, "refused", &front->refused);
	put_reasons(json, "refused_by_reason", front->refused_for);
	put_reasons(json, "failed_by_reason", front->failed_for);
	put_counter(json, "cancels", &front->cancels);
	put_counter(json, "echoes", &front->echoes);
	close_object(json, ",\"tokens\":{");
	put_counter(json, "prompt", &engine->prompt_tokens);
	put_counter(json, "generated", &engine->generated_tokens);
	put_counter(json, "delivered", &front->tokens);
	close_object(json, ",\"steps\":{");
	put_counter(json, "count", &engine->steps);
	put_counter(json, "rows", &engine->rows);
	put_counter(json, "busy_ns", &engine->step_ns);
	put_counter(json, "longest_ns", &engine->longest_step_ns);
	put_last_steps(json, engine);
	close_object(json, ",");
}

static void put_channels(struct json *json, const struct daemon *daemon)
{
	const struct front_counts *front = front_counts(daemon->front);

	put(json, "\"channels\":{");
	put_counter(json, "open", &front->channels);
	put_counter(json, "opened", &front->channels_opened);
	put_counter(json, "ended", &front->channels_ended);
	put_reasons(json, "ended_by_reason", front->ended_for);
	put_reasons(json, "refused_by_reason", server_refused_for(daemon->server));
	put_number(json, "bytes_each", daemon->channel_bytes);
	put_number(json, "sq_slots", (uint64_t)daemon->config.sq_slots);
	put_number(json, "cq_slots", (uint64_t)daemon->config.cq_slots);
	put_number(json, "max_inflight", (uint64_t)daemon->config.max_inflight);
	put_counter(json, "wakes", &front->wakes);
	put_counter(json, "slow_wakes", &front->slow_wakes);
	put_counter(json, "sleeps", &front->sleeps);
	close_object(json, ",");
}

/* Lets who kills clients for a test, and who wonders, see how soon all that they held was back. */
static void put_ended(struct json *json, const struct daemon *daemon)
{
	struct ended_process ended[ENDED_MAX];
	unsigned n = server_ended_processes(daemon->server, ended, ENDED_MAX);

	put(json, "\"ended_processes\":[");
	for (unsigned i = 0; i < n; i++)
		put(json, "%s{\"pid\":%d,\"returned_ns\":%" PRIu64 "}", i ? "," : "", ended[i].pid,
		    ended[i].returned_ns);
	put(json, "],");
}

static void put_kv(struct json *json, const struct daemon *daemon)
{
	const struct engine_counts *counts = engine_counts(daemon->engine);
	uint64_t blocks = load_relaxed_u64(&counts->kv_blocks),
		 used = load_relaxed_u64(&counts->kv_blocks_used);

	enum load_phase phase = load_progress(daemon->load, NULL);

	put(json, "\"kv\":{");
	if (phase == LOAD_COPYING || phase == LOAD_WARMING)
		put_text(json, "type", load_kv_type(load_model(daemon->load)));
	put_number(json, "blocks", blocks);
	put_number(json, "used", used);
	put_number(json, "free", blocks - used);
	put_number(json, "block_tokens", TAPE_KV_BLOCK);
	close_object(json, ",");
}

int daemon_status(void *context, char *text, size_t capacity)
{
	const struct daemon *daemon = context;
	struct json json = {.text = text, .capacity = capacity};

	put(&json, "{");
	put_text(&json, "version", TOKENRING_VERSION);
	put_number(&json, "pid", (uint64_t)getpid());
	put_number(&json, "uptime_ms", (daemon_clock_ns() - daemon->start_ns) / 1000000);
	put_text(&json, "backend", daemon->config.backend);
	put_number(&json, "threads", daemon->placement.threads);
	put_text(&json, "front", daemon->placement.separate ? "own thread" : "engine's thread");
	put_model(&json, daemon);
	put_start(&json, daemon);
	put_requests(&json, daemon);
	put_kv(&json, daemon);
	put_channels(&json, daemon);
	put_ended(&json, daemon);
	put_memory(&json, daemon);
	close_object(&json, "");
	return json.used < capacity ? (int)json.used : -ENOSPC;
}
