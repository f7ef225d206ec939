/* Reaching the daemon from the command line, and saying in a sentence why it cannot be reached. */
#ifndef TOKENRING_TOOLS_CLI_CONNECT_H
#define TOKENRING_TOOLS_CLI_CONNECT_H

#include <tokenring/tokenring.h>

#include "tools/cli/verb.h"

/* Opens a client; blocks as tr_open does. Complains on failure and leaves *ret alone. */
enum exit_code connect_daemon(const char *socket, struct tr_client **ret);

/* The same, and waits until the model is loaded, with progress on standard error if that takes long. */
enum exit_code connect_ready(const char *socket, struct tr_client **ret, struct tr_model_info *ret_info);

/* The same for a daemon that has just been started: one that does not listen yet is waited for, too. */
enum { CONNECT_START_S = 10 };
enum exit_code connect_started(const char *socket, struct tr_client **ret, struct tr_model_info *ret_info);

/* A sentence for the error of a call on the client; `what` says what was tried: "cannot submit the request".
 */
enum exit_code complain_call(const struct tr_client *client, const char *what, int error);

/* A sentence for a REFUSED event, or a FINAL event that failed. */
enum exit_code complain_event(const struct tr_event *event);

/* The daemon's status, NUL-terminated, to be freed; NULL: *ret_error is a negative errno. */
char *connect_status(struct tr_client *client, int *ret_error);

/* The same with another call for JSON: tr_status or tr_topology. */
char *connect_json(struct tr_client *client, int (*ask)(struct tr_client *, char *, size_t, size_t *),
		   int *ret_error);

#endif
