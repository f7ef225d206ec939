/* A whole daemon as an object: tokenringd's main drives one; tests run it inside their own process.
 *
 * The socket listens from daemon_start on, before the model is loaded: echo and status work, other requests
 * wait.
 *
 * Thread rule: one thread (main) makes all calls. */
#ifndef TOKENRING_DAEMON_DAEMON_H
#define TOKENRING_DAEMON_DAEMON_H

#include <stdbool.h>

#include "daemon/control/config.h"

struct daemon;

enum daemon_state {
	DAEMON_LOADING,
	DAEMON_READY,
	DAEMON_FAILED, /* the model could not be loaded: daemon_why */
};

/* Starts every subsystem and the loading of the model. `config` is copied. On failure everything is undone; a
 * negative errno and a sentence. */
int daemon_start(struct daemon **ret, const struct config *config, char *why, size_t why_bytes);

/* Looks how far the model is; on the way to READY tells the control thread. Call it a few times a second
 * until it is READY or FAILED. `ret_share`: loaded part of the weights; may be NULL. */
enum daemon_state daemon_poll(struct daemon *, double *ret_share);

/* After FAILED. */
const char *daemon_why(const struct daemon *);

/* The socket's path. */
const char *daemon_socket(const struct daemon *);

/* One line about what was loaded and how it runs. From READY on. */
void daemon_describe(const struct daemon *, char *text, size_t bytes);

/* How long the start took, phase by phase. From READY on. */
void daemon_describe_start(const struct daemon *, char *text, size_t bytes);

/* Accepts nobody and nothing new; what runs may finish within drain_ms, 0: is ended at once. May be called
 * again with less. */
void daemon_drain(struct daemon *, uint64_t drain_ms);

/* Whether the drain is complete, waiting for it at most `timeout_ms`. */
bool daemon_drained(struct daemon *, uint64_t timeout_ms);

/* Takes the options of `fresh` that may change while running. Same result and `kept` as config_reload. */
unsigned daemon_reload(struct daemon *, const struct config *fresh, char *kept, size_t kept_bytes);

/* After daemon_drained said true. NULL is allowed. */
void daemon_free(struct daemon *);

#endif
