/* What a daemon is made of; shared by daemon.c (life) and status.c (what it says of itself). */
#ifndef TOKENRING_DAEMON_DAEMON_INTERNAL_H
#define TOKENRING_DAEMON_DAEMON_INTERNAL_H

#include "daemon/control/server.h"
#include "daemon/daemon.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/front.h"
#include "daemon/engine/loop.h"
#include "daemon/load.h"
#include "daemon/memory.h"
#include "daemon/placement.h"

/* What a start takes its time for, one after the other. */
enum start_phase { START_SET_UP, START_HEADER, START_MEMORY, START_WEIGHTS, START_WARM_UP, START_PHASES };

struct daemon {
	struct config config;
	char socket[108];
	uint64_t start_ns, epoch;
	uint64_t channel_bytes; /* of one channel */
	struct topology topology;
	struct plan placement;
	struct memory *memory;
	struct engine_link link;
	struct loop *loop;
	struct front *front;
	struct engine *engine;
	struct server *server;
	struct load *load;
	bool running; /* the loop's threads run */
	bool ready;   /* server_set_model was called */
	shared_u32 draining;
	struct server_model model; /* what clients are told */

	/* the control thread's: the last answer about the topology */
	char *look;
	int look_bytes;
	uint64_t looked_ns;
};

enum { BLOCK_MEMORY_BYTES = 64 << 20 /* private copies of request blocks, all channels together */ };

/* CLOCK_MONOTONIC */
uint64_t daemon_clock_ns(void);

/* From READY on; any thread that knows of it. */
void daemon_start_phases(const struct daemon *, uint64_t ret_ns[START_PHASES]);

/* server_config.status; `context` is the daemon. Control thread. */
int daemon_status(void *context, char *json, size_t capacity);

/* server_config.topology; the same. The machine is as it was at the start, the rest as it is. */
int daemon_topology(void *context, char *json, size_t capacity);

/* text.c: fills the callbacks and facts of `model` once the load has finished. */
void daemon_fill_model(struct daemon *);

#endif
