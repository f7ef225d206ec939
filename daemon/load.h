/* Loading a model beside a daemon that already answers: from the file to an engine that warms up.
 *
 * Thread rule: load_start, load_stop and load_free by one thread (main); load_progress by any. */
#ifndef TOKENRING_DAEMON_LOAD_H
#define TOKENRING_DAEMON_LOAD_H

#include "daemon/budget.h"
#include "daemon/control/config.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/loop.h"
#include "daemon/memory.h"
#include "daemon/model/model.h"
#include "daemon/model/tokenizer.h"
#include "daemon/placement.h"
#include "kernels/backend.h"

enum load_phase { LOAD_READING, LOAD_COPYING, LOAD_WARMING, LOAD_FAILED };

struct load_config {
	const struct config *config;
	const struct plan *placement;
	const struct topology *topology;
	struct memory *memory;
	struct engine *engine;
	struct loop *loop;
	struct front *front;
	uint64_t (*clock)(void); /* CLOCK_MONOTONIC in ns */
	uint64_t channels_bytes; /* what all channels and the queues may take, for the budget */
};

struct load;

/* What the load has found out; complete from LOAD_COPYING on. */
struct load_model {
	struct model *file;
	struct tokenizer *tokenizer; /* from LOAD_WARMING on; NULL: the file has none */
	const struct tape *tape;
	struct tape_limits limits;
	struct backend *backend;
	struct program *program;
	struct demand demand;
	struct budget budget;
	uint64_t bytes, parameters; /* of the weights in the file */
	char name[64], architecture[32];
};

/* When phases ended, CLOCK_MONOTONIC: the thread began, the file's header was read, memory was there, so were
 * weights and tokenizer. */
struct load_times {
	uint64_t began_ns, opened_ns, mapped_ns, copied_ns;
};

/* Starts the loading thread. -ENOMEM or the error of pthread_create. */
int load_start(struct load **ret, const struct load_config *);

/* The phase, with acquire: what it promises is complete. `ret_share`: 0 to 1 of the weights; may be NULL. */
enum load_phase load_progress(const struct load *, double *ret_share);

/* From LOAD_COPYING on. */
const struct load_model *load_model(const struct load *);

/* The element type of its KV cache, as the configuration calls it. Static. */
const char *load_kv_type(const struct load_model *);

/* Complete from LOAD_WARMING on. */
const struct load_times *load_times(const struct load *);

/* After LOAD_FAILED: the sentence. */
const char *load_why(const struct load *);

/* Ends the loading soon and joins its thread. */
void load_stop(struct load *);

/* After load_stop, and after engine_free. NULL is allowed. */
void load_free(struct load *);

#endif
