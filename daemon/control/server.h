/* The control thread: listens on the Unix socket, sets channels up, answers control messages, takes ended
 * channels apart, and does the wakes that cost too much for the front.
 *
 * Identity is what the kernel says (SO_PEERCRED).
 *
 * Thread rule: server_create, server_start, server_stop, server_free from one thread (main);
 * server_set_model from any one thread. Everything else happens on the control thread. */
#ifndef TOKENRING_DAEMON_CONTROL_SERVER_H
#define TOKENRING_DAEMON_CONTROL_SERVER_H

#include <sys/types.h>

#include "daemon/control/config.h"
#include "daemon/engine/front.h"
#include "numa/observe.h"
#include "shm/segment.h"

struct server;

/* What the control thread says of the model, and how it turns text into tokens. */
struct server_model {
	struct wire_model info; /* n_stop ids in `stop` */
	uint32_t stop[32];
	/* Both run on the control thread, only there; NULL: -EOPNOTSUPP. `flags`: WIRE_TEXT_*. Return 0 with
	 * *ret = malloc'd memory, the caller's to free, or a negative errno. */
	int (*tokenize)(void *context, const char *text, size_t bytes, uint32_t flags, uint32_t **ret,
			size_t *ret_n);
	int (*detokenize)(void *context, const uint32_t *tokens, size_t n, uint32_t flags, char **ret,
			  size_t *ret_bytes);
	void *context;
};

/* Who may connect; the daemon's own user and root always may. */
enum server_access {
	SERVER_ACCESS_LISTED, /* and who is in allowed_uids or allowed_gids */
	SERVER_ACCESS_GROUP,  /* and members of the group that owns the socket */
	SERVER_ACCESS_EVERYONE,
};

struct server_config {
	const char *path; /* of the socket; copied */
	mode_t mode;      /* of the socket */
	uint32_t max_clients, max_clients_per_uid, max_half_open_per_uid;
	uint64_t memory_per_uid_bytes; /* channels of a user's processes, also closed ones, while they run */
	uint32_t map_timeout_ms;
	uint32_t sq_slots, cq_slots, max_inflight; /* of a channel; powers of two */
	uint64_t arena_bytes;
	enum segment_pages pages;
	uint64_t channel_nodes; /* NUMA nodes that channels should lie on, one bit each; 0: any */
	uint64_t first_index;   /* 0 except in tests of the wrap */
	bool allow_descriptors; /* tests: as on a kernel before 6.16, which lets clients pass descriptors */
	uint64_t epoch;
	enum server_access access;
	struct config_uids allowed_uids, allowed_gids;
	struct config_uids tenant_uids; /* may name tenants */
	/* Writes one JSON object, returns its length (< capacity) or a negative errno. Control thread. */
	int (*status)(void *context, char *json, size_t capacity);
	int (*topology)(void *context, char *json, size_t capacity); /* with the same context */
	void *status_context;
	/* One sentence about what is worth knowing (a channel ended for a protocol error, a refused peer).
	 * NULL: nobody listens. Control thread. */
	void (*notice)(void *context, const char *sentence);
	void *notice_context;
};

/* Binds and listens; nothing is answered yet. -EADDRINUSE: another daemon serves this path; other errors of
 * bind and listen; each with a sentence in `why`. A socket that a dead daemon left is replaced. */
int server_create(struct server **ret, const struct server_config *config, struct front *front, char *why,
		  size_t why_bytes);

/* Starts the control thread. Negative errno of pthread_create. */
int server_start(struct server *server);

/* Replaces what is said of the model (state LOADING until the first call); copied by pointer: `model` must
 * outlive the server. */
void server_set_model(struct server *server, const struct server_model *model);

/* Takes new values of max_clients (never more than the front's), max_clients_per_uid, max_half_open_per_uid,
 * memory_per_uid_bytes, map_timeout_ms, access, allowed_uids, allowed_gids and tenant_uids; the rest of
 * `config` is ignored. For clients that connect later. Any thread. -ENOMEM. */
int server_reload(struct server *server, const struct server_config *config);

/* How many connections were refused before they had a live channel, by enum wire_reason
 * (WIRE_REASON_LIMIT). Any thread. */
const shared_u64 *server_refused_for(const struct server *server);

/* The memory of live channels, at most `max` ranges of slot `slot`; returns how many. Control thread. */
size_t server_channel_ranges(const struct server *server, struct observe_range *ret, size_t max,
			     uint32_t slot);

/* Accepts nobody any more; the channels live on. Call before front_drain. Any thread. */
void server_close_listener(struct server *server);

/* A process that had channels and is gone. */
struct ended_process {
	int pid;
	uint64_t returned_ns; /* CLOCK_MONOTONIC: when the last of what its channels held was back */
};

/* The latest ones, at most `max`, the last one first; returns how many. Control thread (in `status`). */
unsigned server_ended_processes(const struct server *server, struct ended_process *ret, unsigned max);

/* After front_drained: ends what is left, joins the thread, removes the socket. */
void server_stop(struct server *server);

/* NULL is allowed. Stops first if need be. */
void server_free(struct server *server);

#endif
