/* The ends of connections, and the memory that outlives them. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/control/server_internal.h"

static const char *const sentences[] = {
#define X(number, name, error, sentence) [number] = sentence,
    WIRE_REASONS(X)
#undef X
};

const char *end_sentence(uint32_t reason)
{
	if (reason < sizeof sentences / sizeof sentences[0] && sentences[reason])
		return sentences[reason];
	return "unknown reason";
}

void send_end(int fd, uint32_t reason)
{
	struct {
		struct wire_control head;
		struct wire_end end;
	} message = {
	    .head = {.type = WIRE_CONTROL_END, .bytes = sizeof(struct wire_end)},
	    .end = {.reason = reason},
	};

	memccpy(message.end.sentence, end_sentence(reason), 0, sizeof message.end.sentence - 1);
	if (send(fd, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return; /* the header's state and the hang-up say it too */
}

/* ---- sockets ---- */

/* Unread messages would turn the hang-up into an ECONNRESET, which a client sees before the END that it was
 * sent. After the shutdown nothing more can arrive. */
static void close_politely(int fd)
{
	char byte;

	shutdown(fd, SHUT_RDWR);
	while (recv(fd, &byte, 1, MSG_DONTWAIT) > 0)
		;
	close(fd);
}

static void *close_alone(void *fd)
{
	close_politely((int)(intptr_t)fd);
	return NULL;
}

void close_socket(struct server *server, int fd)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	if (server->listener.descriptors_refused) {
		close_politely(fd);
		return;
	}
	/* Descriptors in its queue die with it, and that may take seconds. */
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attributes, close_alone, (void *)(intptr_t)fd);
	pthread_attr_destroy(&attributes);
	if (error)
		close_politely(fd);
}

static void send_end_once(struct connection *connection, uint32_t reason)
{
	if (!connection->end_sent && connection->fd >= 0 && reason != WIRE_REASON_PEER_GONE)
		send_end(connection->fd, reason);
	connection->end_sent = true;
}

static void close_connection_socket(struct connection *connection)
{
	if (connection->fd < 0)
		return;
	server_unwatch(connection->server, connection->fd);
	close_socket(connection->server, connection->fd);
	connection->fd = -1;
}

/* ---- memory ---- */

uint64_t memory_of_uid(const struct server *server, uint32_t uid)
{
	uint64_t bytes = 0;

	for (const struct connection *at = server->connections; at; at = at->next)
		bytes += at->uid == uid ? at->memory_bytes : 0;
	for (const struct ghost *at = server->ghosts; at; at = at->next)
		bytes += at->uid == uid ? at->memory_bytes : 0;
	return bytes;
}

static bool process_lives(int process_fd)
{
	struct pollfd gone = {.fd = process_fd, .events = POLLIN};

	return poll(&gone, 1, 0) == 0;
}

/* The ghost that the process left before. While a process lives nobody else has its number; 0 is any process
 * of another namespace. */
static struct ghost *find_ghost(const struct server *server, const struct connection *connection)
{
	for (struct ghost *at = server->ghosts; at; at = at->next)
		if (at->pid == connection->pid && at->uid == connection->uid && at->pid > 0 &&
		    process_lives(at->process_fd))
			return at;
	return NULL;
}

/* A client that has closed its channel may hold it mapped all the same. One ghost a process: else one that
 * comes and goes would use up the daemon's descriptors. */
static void leave_ghost(struct connection *connection)
{
	struct server *server = connection->server;
	struct ghost *ghost = find_ghost(server, connection);

	if (ghost) {
		ghost->memory_bytes += connection->memory_bytes;
		return;
	}
	ghost = calloc(1, sizeof *ghost);
	if (!ghost)
		return;
	/* It takes over the connection's pidfd. */
	server_unwatch(server, connection->process_fd);
	ghost->process_fd = connection->process_fd;
	ghost->uid = connection->uid;
	ghost->pid = connection->pid;
	ghost->memory_bytes = connection->memory_bytes;
	ghost->watch = (struct watch){WATCH_GHOST, ghost};
	ghost->next = server->ghosts;
	server->ghosts = ghost;
	connection->process_fd = -1;
	if (server_watch(server, ghost->process_fd, EPOLLIN, &ghost->watch) < 0)
		ghost_free(server, ghost);
}

/* The last call for a process says when all is back. */
static void note_return(struct server *server, pid_t pid)
{
	server->ended[server->n_ended++ & (ENDED_PROCESSES - 1)] =
	    (struct ended_process){.pid = pid, .returned_ns = server_clock_ns()};
}

unsigned server_ended_processes(const struct server *server, struct ended_process *ret, unsigned max)
{
	uint32_t n = server->n_ended < ENDED_PROCESSES ? server->n_ended : ENDED_PROCESSES;

	n = n < max ? n : max;
	for (uint32_t i = 0; i < n; i++)
		ret[i] = server->ended[(server->n_ended - 1 - i) & (ENDED_PROCESSES - 1)];
	return n;
}

void ghost_free(struct server *server, struct ghost *ghost)
{
	struct ghost **link = &server->ghosts;

	while (*link != ghost)
		link = &(*link)->next;
	*link = ghost->next;
	/* Closing would do, but for a forked process that still holds the descriptor. */
	server_unwatch(server, ghost->process_fd);
	close(ghost->process_fd);
	note_return(server, ghost->pid);
	free(ghost);
}

/* ---- connections ---- */

static void bury(struct server *server, struct connection *connection)
{
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		server->connections = connection->next;
	if (connection->next)
		connection->next->previous = connection->previous;
	server->n_connections--;
	close_connection_socket(connection);
	if (connection->memory_bytes && !connection->process_gone)
		leave_ghost(connection);
	if (connection->process_fd >= 0) {
		server_unwatch(server, connection->process_fd);
		close(connection->process_fd);
	}
	channel_free(connection->channel);
	user_leave(server, connection->user);
	if (connection->process_gone)
		note_return(server, connection->pid);
	free(connection->incoming.data);
	free(connection->outgoing.data);
	free(connection);
}

void connections_bury(struct server *server)
{
	struct connection *next;

	for (struct connection *at = server->connections; at; at = next) {
		next = at->next;
		if (at->state == CONNECTION_DEAD)
			bury(server, at);
	}
}

void connection_drop(struct connection *connection, uint32_t reason)
{
	count_refused(connection->server, reason);
	send_end_once(connection, reason);
	close_connection_socket(connection);
	connection->state = CONNECTION_DEAD;
}

void connection_end(struct connection *connection, uint32_t reason)
{
	send_end_once(connection, reason);
	if (!connection->end_asked &&
	    front_end_channel(connection->server->front, connection->channel, reason) == 0)
		connection->end_asked = true;
}

static void note_end(struct connection *connection, uint32_t reason)
{
	uint32_t refused = load_relaxed_u32(&connection->channel->n_refused);

	if (refused)
		server_notice(connection->server,
			      "refused %u requests of a channel of process %d of user %u; the last: %s",
			      refused, connection->pid, connection->uid,
			      end_sentence(load_relaxed_u32(&connection->channel->last_refusal)));
	if (reason != WIRE_REASON_PEER_GONE && reason != WIRE_REASON_SHUTDOWN &&
	    reason != WIRE_REASON_MODEL_FAILED)
		server_notice(connection->server, "ended the channel of process %d of user %u: %s",
			      connection->pid, connection->uid, end_sentence(reason));
}

/* The front has let go of the socket: it may be closed, whatever the channel's requests still do. */
static void follow_end(struct connection *connection)
{
	/* Acquire: pairs with the front's release; its epoll no longer knows the socket. */
	uint32_t reason = load_acquire_u32(&connection->channel->ended_reason);

	if (reason == 0)
		return;
	note_end(connection, reason);
	send_end_once(connection, reason);
	close_connection_socket(connection);
	connection->state = CONNECTION_CLOSED;
}

static void follow_return(struct connection *connection)
{
	/* Acquire: both pair with the front's releases; after them it touches the channel no more. */
	if (load_acquire_u32(&connection->channel->returned) &&
	    (!connection->end_asked || load_acquire_u32(&connection->channel->end_taken)))
		connection->state = CONNECTION_DEAD;
}

/* Wakes that cost the front too much: one is as good as many. */
static void follow_wakes(struct connection *connection)
{
	/* Acquire: pairs with the front's release; what was published is visible before the byte arrives. */
	uint32_t asked = load_acquire_u32(&connection->channel->wakes_asked);
	char byte = 0;

	if (asked == connection->wakes_done)
		return;
	connection->wakes_done = asked;
	if (send(connection->fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return; /* full: it wakes as well */
}

void connection_follow(struct connection *connection)
{
	if (connection->state == CONNECTION_LIVE) {
		follow_wakes(connection);
		messages_take(connection);
		follow_end(connection);
	}
	if (connection->state == CONNECTION_CLOSED)
		follow_return(connection);
}

void connection_process_gone(struct connection *connection)
{
	if (!connection->process_gone)
		server_unwatch(connection->server, connection->process_fd);
	connection->process_gone = true;
	if (connection->state == CONNECTION_HALF_OPEN)
		connection_drop(connection, WIRE_REASON_PEER_GONE);
	else if (connection->state == CONNECTION_LIVE)
		connection_end(connection, WIRE_REASON_PEER_GONE);
}
