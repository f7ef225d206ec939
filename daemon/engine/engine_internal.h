/* The engine's own state, shared by engine.c (life, commands, turns), model.c (set-up, warm-up) and step.c
 * (batches). */
#ifndef TOKENRING_DAEMON_ENGINE_ENGINE_INTERNAL_H
#define TOKENRING_DAEMON_ENGINE_ENGINE_INTERNAL_H

#include "daemon/engine/engine.h"
#include "daemon/engine/sequence.h"
#include "daemon/sched/sched.h"

/* Order matters: each stage is published by a release store of `stage`. */
enum engine_stage { STAGE_NO_MODEL, STAGE_WARMING, STAGE_READY, STAGE_FAILED };

/* A request from its command to its terminal event; entries[i] is what the scheduler sees of jobs[i]. */
struct job {
	struct request *request;
	struct sequence *sequence; /* NULL: waits */
	uint32_t serial;
};

struct engine {
	struct engine_config config;
	struct engine_counts counts;
	shared_u32 stage; /* written by the thread that sets the model, and by the engine from WARMING on */

	uint32_t n_jobs, next_serial;
	struct job *jobs;            /* (link->n_requests) dense, in no order */
	struct sched_entry *entries; /* (link->n_requests) */
	uint64_t look_again_ns;
	uint64_t token_ns; /* measured on prefill, smoothed */
	unsigned pushed;   /* events of this turn */

	/* ---- set with the model ---- */
	struct engine_model model;
	struct sampler sampler;
	struct kv_pool pool[TAPE_GROUPS_MAX];
	struct sequence *sequences; /* (limits.sequences) */
	uint32_t *sequence_tokens;  /* (limits.sequences, context) */
	uint32_t *sequence_blocks;  /* (limits.sequences, groups, stride) */
	float *sequence_sums;       /* (limits.sequences, width) */
	uint32_t stride;            /* blocks of a longest sequence */
	uint32_t warm_shape;        /* the next to run */

	/* ---- the batch: arrays of the limits' sizes ---- */
	uint32_t *token, *position, *row_sequence, *output_row;
	struct batch_output *output;
	uint32_t batch_logits; /* outputs so far that want logits */
	struct batch_sequence *batch_sequences;
	struct sequence **batch_owner;    /* (limits.sequences) */
	uint32_t *table[TAPE_GROUPS_MAX]; /* (limits.sequences, stride) */
};

/* model.c */
void engine_warm(struct engine *);
void engine_free_model(struct engine *);

/* step.c: runs one batch of the jobs whose entry says SCHED_STEP, draws, pushes events. Returns 1. */
unsigned engine_step(struct engine *, const struct sched_plan *);

/* engine.c */
void engine_push(struct engine *, const struct engine_event *);
/* Frees what job i holds, and the job; the last one takes its place. The caller pushes the event after. */
void engine_drop(struct engine *, uint32_t i);

static inline uint64_t engine_now(const struct engine *engine)
{
	return engine->config.clock();
}

static inline void engine_breathe(const struct engine *engine)
{
	if (engine->config.poll)
		engine->config.poll(engine->config.poll_data);
}

#endif
