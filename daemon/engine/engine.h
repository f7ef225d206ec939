/* The engine: takes requests from its command queue, runs them in steps that they share, and answers by
 * events.
 *
 * A turn is: drain the commands, let the scheduler plan, run one batch, draw tokens, push events. Requests
 * join and leave at token boundaries; none changes a bit of another. Everything is allocated by engine_create
 * and engine_set_model; engine_turn allocates nothing.
 *
 * Thread rule: engine_create and engine_free by whoever starts and stops the daemon; engine_set_model and
 * engine_fail_model once, by any thread; engine_turn and engine_look_again_ns by one thread, the engine's, in
 * the contract's floating-point mode (contract_enter); engine_counts by any. */
#ifndef TOKENRING_DAEMON_ENGINE_ENGINE_H
#define TOKENRING_DAEMON_ENGINE_ENGINE_H

#include "daemon/engine/request.h"
#include "kernels/backend.h"

struct engine;

struct engine_config {
	struct engine_link *link; /* initialised; outlives the engine */
	uint64_t patience_ns;     /* see sched.h */
	uint64_t max_step_ns;     /* 0: no bound */
	uint64_t (*clock)(void);  /* CLOCK_MONOTONIC in ns */
	/* Called between the pieces of work outside program_step, every 100 us or so; may be NULL. */
	void (*poll)(void *poll_data);
	void *poll_data;
};

struct engine_model {
	struct program
	    *program; /* loaded; the engine's from now on, closed by the caller after engine_free */
	const struct tape *tape; /* outlives the engine */
	struct tape_limits
	    limits;          /* of the program; rows >= sequences, outputs == rows, logits >= sequences */
	uint32_t max_prompt; /* tokens */
	uint32_t n_eos;      /* end-of-generation ids; at most 32 */
	uint32_t eos[32];
};

enum { ENGINE_LAST_STEPS = 16 };

/* For status and metrics: gauges of now, counters since the start. */
struct engine_counts {
	shared_u64 waiting, running, paused, kv_blocks, kv_blocks_used;
	shared_u64 finished, refused, steps, rows, prompt_tokens, generated_tokens, step_ns, warmed_shapes;
	shared_u64 longest_step_ns;
	shared_u64 ready_ns; /* when the warm-up ended; 0: it has not */
	struct {
		shared_u64 ended_ns, took_ns;
	} last_steps[ENGINE_LAST_STEPS]; /* step n at n % ENGINE_LAST_STEPS */
};

/* -ENOMEM. */
int engine_create(struct engine **ret, const struct engine_config *);
/* NULL is allowed. */
void engine_free(struct engine *);

/* Hands over a loaded model and allocates what its sizes ask for. The next turns run batches that take
 * every path through the backend, one a turn, and then publish link->limits with the state READY. -EINVAL:
 * limits that do not fit each other; -ENOMEM; with a sentence. */
int engine_set_model(struct engine *, const struct engine_model *, char *why, size_t why_bytes);

/* There will be no model: every request is refused with MODEL_FAILED from now on. */
void engine_fail_model(struct engine *);

/* Runs one turn; returns the number of events pushed plus steps run, 0: there was nothing to do. */
unsigned engine_turn(struct engine *);

/* When a turn is worth while though no command has arrived (absolute, CLOCK_MONOTONIC): a deadline, or a
 * paused request to look after. 0: never. */
uint64_t engine_look_again_ns(const struct engine *);

const struct engine_counts *engine_counts(const struct engine *);

/* The engine's command queue, to look whether it is empty before sleeping. */
const struct queue *engine_commands(const struct engine *);

#endif
