/* Who may connect: identity, and limits by user. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/control/server_internal.h"

/* Newer than the C library of Debian 12; the value is the kernel's ABI. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* Fails until another one is closed. */
void hold_spare(struct server *server)
{
	server->spare_fd = fcntl(server->wake_fd, F_DUPFD_CLOEXEC, 0);
}

enum { ACCEPTS_A_ROUND = 32, LISTEN_PAUSE_NS = 100000000 };

/* The process that called connect(), even if a child holds the socket by now. From Linux 6.5; before, by its
 * number, which the kernel vouched for at that time. -ESRCH: it is gone. */
static int open_process(int fd, pid_t pid)
{
	int process = -1;
	socklen_t bytes = sizeof process;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &bytes) == 0)
		return process;
	if (errno != ENOPROTOOPT)
		return errno == EMFILE || errno == ENFILE ? -errno : -ESRCH;
	process = (int)syscall(SYS_pidfd_open, pid, 0);
	return process < 0 ? -errno : process;
}

static uint32_t check_limits(const struct server *server, uint32_t uid)
{
	uint32_t channels = 0, half_open = 0;

	if (server->n_connections >= server->config.max_clients)
		return WIRE_REASON_TOO_MANY_CHANNELS;
	for (const struct connection *at = server->connections; at; at = at->next) {
		channels += at->uid == uid;
		half_open += at->uid == uid && at->state == CONNECTION_HALF_OPEN;
	}
	if (half_open >= server->config.max_half_open_per_uid)
		return WIRE_REASON_TOO_MANY_HALF_OPEN;
	if (channels >= server->config.max_clients_per_uid)
		return WIRE_REASON_TOO_MANY_CHANNELS;
	if (memory_of_uid(server, uid) >= server->config.memory_per_uid_bytes)
		return WIRE_REASON_MEMORY_LIMIT;
	return WIRE_REASON_NONE;
}

static uint32_t check_peer(const struct server *server, int fd, const struct ucred *peer)
{
	if (peer->uid == UNMAPPED_UID)
		return WIRE_REASON_UNMAPPED_UID;
	if (!access_allowed(server, fd, peer))
		return WIRE_REASON_USER_DENIED;
	return check_limits(server, peer->uid);
}

static struct user *user_join(struct server *server, uint32_t uid)
{
	struct user *user = server->users;

	while (user && user->uid != uid)
		user = user->next;
	if (!user) {
		user = calloc(1, sizeof *user);
		if (!user)
			return NULL;
		user->uid = uid;
		user->next = server->users;
		server->users = user;
	}
	user->n_connections++;
	return user;
}

void user_leave(struct server *server, struct user *user)
{
	struct user **link = &server->users;

	if (--user->n_connections)
		return;
	while (*link != user)
		link = &(*link)->next;
	*link = user->next;
	free(user);
}

static struct connection *add_connection(struct server *server, int fd, const struct ucred *peer, int process)
{
	struct connection *connection = calloc(1, sizeof *connection);
	struct user *user = connection ? user_join(server, peer->uid) : NULL;

	if (!user) {
		free(connection);
		return NULL;
	}
	connection->server = server;
	connection->user = user;
	connection->fd = fd;
	connection->process_fd = process;
	connection->uid = peer->uid;
	connection->pid = peer->pid;
	connection->socket_watch = (struct watch){WATCH_SOCKET, connection};
	connection->process_watch = (struct watch){WATCH_PROCESS, connection};
	connection->next = server->connections;
	if (connection->next)
		connection->next->previous = connection;
	server->connections = connection;
	server->n_connections++;
	return connection;
}

void count_refused(struct server *server, uint32_t reason)
{
	add_relaxed_u64(&server->refused_for[reason], 1);
}

static void refuse_client(struct server *server, int fd, const struct ucred *peer, uint32_t reason)
{
	server_notice(server, "refused process %d of user %u: %s", peer->pid, peer->uid,
		      end_sentence(reason));
	count_refused(server, reason);
	send_end(fd, reason);
	close_socket(server, fd);
}

uint32_t reason_of_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE ? WIRE_REASON_NO_DESCRIPTORS : WIRE_REASON_NO_MEMORY;
}

static void admit_client(struct server *server, int fd)
{
	struct ucred peer;
	socklen_t bytes = sizeof peer;
	struct connection *connection;
	uint32_t reason;
	int process;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0) {
		close_socket(server, fd);
		return;
	}
	reason = check_peer(server, fd, &peer);
	if (reason) {
		refuse_client(server, fd, &peer, reason);
		return;
	}
	process = open_process(fd, peer.pid);
	connection = process < 0 ? NULL : add_connection(server, fd, &peer, process);
	if (!connection) {
		if (process >= 0)
			close(process);
		refuse_client(server, fd, &peer,
			      process == -ESRCH ? WIRE_REASON_PEER_GONE : reason_of_shortage(process));
		return;
	}
	handshake_offer(connection);
}

/* Gives up the spare descriptor for as long as it takes to tell one client. 0, or the errno of accept4. */
static int refuse_for_want(struct server *server)
{
	struct ucred peer = {0};
	socklen_t bytes = sizeof peer;
	int fd, error;

	if (server->spare_fd >= 0)
		close(server->spare_fd);
	fd = accept4(server->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	error = errno;
	if (fd >= 0) {
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
		refuse_client(server, fd, &peer, WIRE_REASON_NO_DESCRIPTORS);
	}
	hold_spare(server);
	return fd < 0 ? error : 0;
}

/* Without descriptors the listener would stay readable and this thread would spin. */
static void pause_listening(struct server *server, int error)
{
	server->listen_again_ns = server_clock_ns() + LISTEN_PAUSE_NS;
	server_notice(server, "cannot accept clients: %s; raise LimitNOFILE or lower max_clients",
		      strerror(error));
}

void accept_clients(struct server *server)
{
	for (int i = 0; i < ACCEPTS_A_ROUND; i++) {
		int fd = accept4(server->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		int error = fd < 0 ? errno : 0;

		if (fd >= 0)
			admit_client(server, fd);
		else if (error == EMFILE || error == ENFILE)
			error = refuse_for_want(server);
		if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS)
			pause_listening(server, error);
		if (error && error != ECONNABORTED && error != EINTR)
			return;
	}
}
