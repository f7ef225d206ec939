#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/control/server_internal.h"

enum { EVENTS = 64, NOTICES_A_SECOND = 20 };

uint64_t server_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void tell(const struct server *server, const char *sentence)
{
	server->config.notice(server->config.notice_context, sentence);
}

/* Clients cause notices as fast as they can connect: without a bound they would fill the log's disk. */
static bool notice_allowed(struct server *server)
{
	uint64_t now_ns = server_clock_ns();
	char sentence[96];

	if (now_ns - server->notices_since_ns >= 1000000000) {
		if (server->notices > NOTICES_A_SECOND) {
			snprintf(sentence, sizeof sentence, "%u more lines like the last ones were left out",
				 server->notices - NOTICES_A_SECOND);
			tell(server, sentence);
		}
		server->notices_since_ns = now_ns;
		server->notices = 0;
	}
	return ++server->notices <= NOTICES_A_SECOND;
}

void server_notice(struct server *server, const char *format, ...)
{
	char sentence[256];
	va_list arguments;

	if (!server->config.notice || !notice_allowed(server))
		return;
	va_start(arguments, format);
	vsnprintf(sentence, sizeof sentence, format, arguments);
	va_end(arguments);
	tell(server, sentence);
}

const struct server_model *server_model_now(const struct server *server)
{
	/* Acquire: pairs with the release in server_set_model. */
	return (const struct server_model *)(uintptr_t)load_acquire_u64(&server->model);
}

void server_set_model(struct server *server, const struct server_model *model)
{
	store_release_u64(&server->model, (uintptr_t)model);
}

int server_watch(struct server *server, int fd, uint32_t events, struct watch *watch)
{
	struct epoll_event event = {.events = events, .data.ptr = watch};

	return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void server_unwatch(struct server *server, int fd)
{
	epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* ---- the loop ---- */

static void follow_all(struct server *server)
{
	uint64_t value;

	if (read(server->wake_fd, &value, sizeof value) < 0)
		return; /* another event of this round has emptied it */
	for (struct connection *at = server->connections; at; at = at->next)
		connection_follow(at);
}

static void take_reload(struct server *server)
{
	struct server_config *fresh, *config = &server->config;

	pthread_mutex_lock(&server->reload_lock);
	fresh = server->reload;
	server->reload = NULL;
	pthread_mutex_unlock(&server->reload_lock);
	if (!fresh)
		return;
	config->max_clients = fresh->max_clients;
	config->max_clients_per_uid = fresh->max_clients_per_uid;
	config->max_half_open_per_uid = fresh->max_half_open_per_uid;
	config->memory_per_uid_bytes = fresh->memory_per_uid_bytes;
	config->map_timeout_ms = fresh->map_timeout_ms;
	config->access = fresh->access;
	config->allowed_uids = fresh->allowed_uids;
	config->allowed_gids = fresh->allowed_gids;
	config->tenant_uids = fresh->tenant_uids;
	free(fresh);
}

static void handle(struct server *server, const struct watch *watch, uint32_t events)
{
	struct connection *connection = watch->owner;

	switch (watch->kind) {
	case WATCH_LISTENER:
		accept_clients(server);
		break;
	case WATCH_WAKE:
		follow_all(server);
		break;
	case WATCH_SOCKET:
		if (connection->state == CONNECTION_HALF_OPEN)
			handshake_socket_event(connection);
		else if (connection->state == CONNECTION_LIVE)
			reply_continue(connection);
		break;
	case WATCH_PROCESS:
		connection_process_gone(connection);
		break;
	case WATCH_GHOST:
		ghost_free(server, watch->owner);
		break;
	}
}

/* Follows what other threads asked of the listener, and ends the pause after descriptors ran out. */
static void tend_listener(struct server *server, uint64_t now_ns)
{
	bool wanted;

	if (load_relaxed_u32(&server->deaf)) {
		if (server->listening)
			server_unwatch(server, server->listener.fd);
		server->listening = false;
		listener_deafen(&server->listener);
		return;
	}
	if (server->listen_again_ns && now_ns >= server->listen_again_ns)
		server->listen_again_ns = 0;
	wanted = server->listen_again_ns == 0;
	if (wanted == server->listening)
		return;
	if (wanted)
		server->listening =
		    server_watch(server, server->listener.fd, EPOLLIN, &server->listener_watch) == 0;
	else {
		server_unwatch(server, server->listener.fd);
		server->listening = false;
	}
}

/* -1: no deadline. */
static int timeout_ms(struct server *server)
{
	uint64_t now_ns = server_clock_ns(), due_ns = handshake_expire(server, now_ns);

	tend_listener(server, now_ns);
	if (server->listen_again_ns && (due_ns == 0 || server->listen_again_ns < due_ns))
		due_ns = server->listen_again_ns;
	if (due_ns == 0)
		return -1;
	return due_ns > now_ns ? (int)((due_ns - now_ns) / 1000000 + 1) : 0;
}

static void *run(void *argument)
{
	struct server *server = argument;
	struct epoll_event events[EVENTS];

	while (!load_acquire_u32(&server->stopping)) {
		int n = epoll_wait(server->epoll_fd, events, EVENTS, timeout_ms(server));

		/* Before any event: who connects after server_reload is judged by the new configuration. */
		take_reload(server);
		for (int i = 0; i < n; i++)
			handle(server, events[i].data.ptr, events[i].events);
		/* Only now: an event of this round may have named what another one closed. */
		connections_bury(server);
	}
	return NULL;
}

static void wake(struct server *server)
{
	uint64_t one = 1;

	if (write(server->wake_fd, &one, sizeof one) < 0)
		return; /* full: readable */
}

/* ---- its life ---- */

static int open_descriptors(struct server *server)
{
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (server->epoll_fd < 0 || server->wake_fd < 0)
		return -errno;
	hold_spare(server);
	return server_watch(server, server->wake_fd, EPOLLIN, &server->wake_watch);
}

static int build(struct server *server, const struct server_config *config, char *why, size_t why_bytes)
{
	struct segment_layout layout;
	int error = segment_layout(&layout, config->sq_slots, config->cq_slots, config->max_inflight,
				   config->arena_bytes, 0);

	if (error < 0) {
		snprintf(why, why_bytes,
			 "sq_slots = %u and cq_slots = %u must be powers of two, and cq_slots at least twice "
			 "max_inflight = %u",
			 config->sq_slots, config->cq_slots, config->max_inflight);
		return error;
	}
	server->config = *config;
	server->config.path = NULL; /* the listener has its own */
	error = open_descriptors(server);
	if (error < 0) {
		snprintf(why, why_bytes, "cannot prepare the control thread: %s", strerror(-error));
		return error;
	}
	error = listener_open(&server->listener, config->path, config->mode, config->allow_descriptors, why,
			      why_bytes);
	if (error == 0)
		front_set_control_fd(server->front, server->wake_fd);
	return error;
}

int server_create(struct server **ret, const struct server_config *config, struct front *front, char *why,
		  size_t why_bytes)
{
	struct server *server = calloc(1, sizeof *server);
	int error;

	if (!server) {
		snprintf(why, why_bytes, "no memory for the control thread");
		return -ENOMEM;
	}
	server->front = front;
	pthread_mutex_init(&server->reload_lock, NULL);
	server->epoll_fd = server->wake_fd = server->spare_fd = server->listener.fd =
	    server->listener.lock_fd = -1;
	server->listener_watch = (struct watch){.kind = WATCH_LISTENER};
	server->wake_watch = (struct watch){.kind = WATCH_WAKE};
	error = build(server, config, why, why_bytes);
	if (error < 0) {
		server_free(server);
		return error;
	}
	*ret = server;
	return 0;
}

/* Signals are main's: this thread takes none. */
int server_start(struct server *server)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&server->thread, NULL, run, server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error == 0) {
		pthread_setname_np(server->thread, "control");
		server->started = true;
	}
	return -error;
}

int server_reload(struct server *server, const struct server_config *config)
{
	struct server_config *fresh = malloc(sizeof *fresh), *before;

	if (!fresh)
		return -ENOMEM;
	*fresh = *config;
	pthread_mutex_lock(&server->reload_lock);
	before = server->reload;
	server->reload = fresh;
	pthread_mutex_unlock(&server->reload_lock);
	free(before);
	wake(server);
	return 0;
}

const shared_u64 *server_refused_for(const struct server *server)
{
	return server->refused_for;
}

void server_close_listener(struct server *server)
{
	store_relaxed_u32(&server->deaf, 1);
	wake(server);
}

void server_stop(struct server *server)
{
	if (!server->started)
		return;
	/* Release: pairs with the acquire in run. */
	store_release_u32(&server->stopping, 1);
	wake(server);
	pthread_join(server->thread, NULL);
	server->started = false;
	listener_close(&server->listener);
}

void server_free(struct server *server)
{
	if (!server)
		return;
	server_stop(server);
	for (struct connection *at = server->connections; at; at = at->next)
		connection_drop(at, WIRE_REASON_SHUTDOWN);
	connections_bury(server);
	while (server->ghosts)
		ghost_free(server, server->ghosts);
	listener_close(&server->listener);
	if (server->epoll_fd >= 0)
		close(server->epoll_fd);
	if (server->wake_fd >= 0)
		close(server->wake_fd);
	if (server->spare_fd >= 0)
		close(server->spare_fd);
	free(server->reload);
	pthread_mutex_destroy(&server->reload_lock);
	free(server);
}
