#include "tools/cli/connect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/cli/interrupt.h"
#include "tools/cli/json.h"

static const char *place(const char *socket)
{
	if (socket)
		return socket;
	const char *named = getenv("TOKENRING_SOCKET");
	return named && *named ? named : "/run/tokenring/socket";
}

static enum exit_code complain_open(const char *socket, int error, const char *why)
{
	const char *at = place(socket);
	if (!*at)
		return complain("--socket is empty; name the daemon's socket, or leave the option away");
	switch (-error) {
	case ENOENT:
		return complain(
		    "there is no socket at %s; start the daemon with `tokenringd --model FILE --socket %s`, "
		    "or name its socket with --socket or TOKENRING_SOCKET",
		    at, at);
	case ECONNREFUSED:
		return complain(
		    "no daemon listens at %s; start it with `tokenringd --model FILE --socket %s`", at, at);
	default:
		return complain("cannot connect to %s: %s", at, why);
	}
}

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Short at first, so that it delays no start by much. */
static unsigned pause_us(double waited_s)
{
	double pause = 1e6 * waited_s / 32;
	return pause < 500 ? 500 : pause > 20000 ? 20000 : (unsigned)pause;
}

/* For so long a daemon is waited for that does not listen yet. */
static enum exit_code open_within(const char *socket, double seconds, struct tr_client **ret)
{
	/* A daemon that sets up a large KV cache on a busy machine may take longer than the library's 5 s. */
	char why[256] = "";
	struct tr_open_options options = {
	    .size = sizeof options, .timeout_ms = 15000, .why = why, .why_bytes = sizeof why};
	double start = now_s();
	int r = tr_open(ret, socket, &options);
	while ((r == -ENOENT || r == -ECONNREFUSED) && now_s() < start + seconds) {
		usleep(pause_us(now_s() - start));
		r = tr_open(ret, socket, &options);
	}
	return r ? complain_open(socket, r, why) : EXIT_DONE;
}

enum exit_code connect_daemon(const char *socket, struct tr_client **ret)
{
	return open_within(socket, 0, ret);
}

enum exit_code complain_call(const struct tr_client *client, const char *what, int error)
{
	uint32_t reason = tr_end_reason(client);
	switch (-error) {
	case ECONNRESET:
		return complain("%s: the daemon is gone%s%s", what, reason ? ": " : "",
				reason ? tr_strreason(reason) : "");
	case ECONNABORTED:
		return complain("%s: the daemon ended the channel: %s", what, tr_strreason(reason));
	case EHOSTDOWN:
		return complain("%s: the daemon does not react: its heartbeat is old; it hangs, or the "
				"machine is overloaded",
				what);
	case EINTR:
		return complain("%s: interrupted", what);
	default:
		return complain("%s: %s", what, tr_strerror(error));
	}
}

enum exit_code complain_event(const struct tr_event *event)
{
	char numbers[96] = "";
	if (event->kind == TR_EVENT_REFUSED && event->limit)
		snprintf(numbers, sizeof numbers, " (%" PRIu32 " asked, the limit is %" PRIu32 ")",
			 event->asked, event->limit);
	if (event->kind == TR_EVENT_REFUSED)
		return complain("the daemon refused the request: %s%s", tr_strreason(event->reason), numbers);
	return complain("the request failed: %s",
			event->reason ? tr_strreason(event->reason) : tr_strerror(event->status));
}

char *connect_status(struct tr_client *client, int *ret_error)
{
	return connect_json(client, tr_status, ret_error);
}

char *connect_json(struct tr_client *client, int (*ask)(struct tr_client *, char *, size_t, size_t *),
		   int *ret_error)
{
	size_t capacity = 16384, bytes = 0;
	for (;;) {
		char *json = malloc(capacity);
		int r = json ? ask(client, json, capacity, &bytes) : -ENOMEM;
		if (!r)
			return json;
		free(json);
		if (r != -ENOSPC || bytes + 1 <= capacity) {
			*ret_error = r;
			return NULL;
		}
		capacity = bytes + 1;
	}
}

/* What the daemon is doing, for the progress line. */
static void describe_loading(struct tr_client *client, char *text, size_t bytes)
{
	int error;
	char state[16] = "";
	double share = -1;
	char *json = connect_status(client, &error);
	if (json) {
		json_number(json, "progress", &share);
		json_text(json, "state", state, sizeof state);
	}
	free(json);
	if (!strcmp(state, "warming"))
		snprintf(text, bytes, "the model is loaded and runs batches of every kind once");
	else if (share >= 0)
		snprintf(text, bytes, "the model is loading: %.0f %%", 100 * share);
	else
		snprintf(text, bytes, "the model is loading");
}

/* One line, overwritten on a terminal. */
static void show_progress(struct tr_client *client, double seconds)
{
	char text[80];
	describe_loading(client, text, sizeof text);
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%-55s %.0f s", text, seconds);
	else
		fprintf(stderr, "%s (%.0f s)\n", text, seconds);
}

static enum exit_code wait_for_model(struct tr_client *client, struct tr_model_info *info)
{
	double start = now_s(), shown = start;
	double interval = isatty(STDERR_FILENO) ? 0.5 : 5;
	for (;;) {
		*info = (struct tr_model_info){.size = sizeof *info};
		int r = tr_model_info(client, 0, info);
		if (r)
			return complain_call(client, "cannot ask for the model", r);
		double now = now_s();
		if (info->state != TR_MODEL_LOADING) {
			if (shown > start && isatty(STDERR_FILENO))
				fputc('\n', stderr);
			return info->state == TR_MODEL_READY
				   ? EXIT_DONE
				   : complain("the daemon could not load its model; its log says why");
		}
		if (now - start > 1 && (shown == start || now - shown > interval)) {
			show_progress(client, now - start);
			shown = now;
		}
		if (interrupt_count())
			return complain("interrupted while the model was loading");
		usleep(pause_us(now - start));
	}
}

static enum exit_code ready_within(const char *socket, double seconds, struct tr_client **ret,
				   struct tr_model_info *ret_info)
{
	struct tr_client *client;
	enum exit_code code = open_within(socket, seconds, &client);
	if (code)
		return code;
	code = wait_for_model(client, ret_info);
	if (code)
		tr_close(client);
	else
		*ret = client;
	return code;
}

enum exit_code connect_ready(const char *socket, struct tr_client **ret, struct tr_model_info *ret_info)
{
	return ready_within(socket, 0, ret, ret_info);
}

enum exit_code connect_started(const char *socket, struct tr_client **ret, struct tr_model_info *ret_info)
{
	return ready_within(socket, CONNECT_START_S, ret, ret_info);
}
