/* The threads that run the front and the engine.
 *
 * Shared placement: one thread runs both; while a step runs, the backend's poll callback (loop_poll) runs
 * turns of the front, so that echo, cancel and refusal never wait for a step. Separate placement, where a CPU
 * is spare: the front has a thread of its own, the engine sleeps on a doorbell while it has nothing to do.
 * Both use the same queues, and answers do not depend on the placement.
 *
 * Thread rule: loop_create, loop_start, loop_join and loop_free from one thread (main); loop_ring from any;
 * loop_poll and loop_wake_engine as stated. */
#ifndef TOKENRING_DAEMON_ENGINE_LOOP_H
#define TOKENRING_DAEMON_ENGINE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct front;
struct loop;

struct loop_config {
	bool separate;    /* the front has a thread of its own */
	int engine_cpu;   /* -1: not pinned */
	int front_cpu;    /* separate; -1: not pinned */
	uint64_t spin_ns; /* separate: how long an idle engine looks before it sleeps */
};

/* Allocates. The loop exists before the front and the engine, whose configurations name its callbacks.
 * -ENOMEM or the errno of eventfd. */
int loop_create(struct loop **ret, const struct loop_config *);
/* After loop_join; NULL is allowed. */
void loop_free(struct loop *);

/* Starts the threads; front and engine are theirs until loop_join. Negative errno of pthread_create, or of
 * pinning a thread to a CPU that is not allowed. */
int loop_start(struct loop *, struct front *, struct engine *);

/* Waits until the front is drained and the threads have ended; at most until `deadline_ns` (CLOCK_MONOTONIC,
 * 0: no bound). -ETIMEDOUT: they still run; nothing may be freed then. */
int loop_join(struct loop *, uint64_t deadline_ns);

/* Makes the engine look again soon, after something other than a command changed (a model is there). */
void loop_ring(struct loop *);

/* The backend's and the engine's poll callback: a turn of the front in shared placement on the engine's
 * thread, nothing else. `data` is the loop. */
void loop_poll(void *data);

/* front_config.engine_wake for separate placement; `data` is the loop. Front's thread. */
void loop_wake_engine(void *data);

#endif
