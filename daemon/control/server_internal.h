/* What the files of the control thread share: server.c (its life and its loop), accept.c (who may connect:
 * access.c, and limits), handshake.c (from a connection to a live channel), closing.c (and back), message.c
 * (control messages), answer.c (what they ask for), reply.c (what goes back).
 *
 * Thread rule: the control thread, save what server.h says. */
#ifndef TOKENRING_DAEMON_CONTROL_SERVER_INTERNAL_H
#define TOKENRING_DAEMON_CONTROL_SERVER_INTERNAL_H

#include <pthread.h>
#include <sys/socket.h>

#include "daemon/control/listener.h"
#include "daemon/control/server.h"
#include "daemon/engine/channel.h"

enum {
	UNMAPPED_UID = 65534, /* what the kernel says of a user that our user namespace does not know */
	STATUS_BYTES_MAX = 256 << 10,
};

/* What an epoll event belongs to. */
struct watch {
	enum { WATCH_LISTENER, WATCH_WAKE, WATCH_SOCKET, WATCH_PROCESS, WATCH_GHOST } kind;
	void *owner;
};

enum connection_state {
	CONNECTION_HALF_OPEN, /* offered, not mapped */
	CONNECTION_LIVE,      /* the front's */
	CONNECTION_CLOSED,    /* the socket is closed; the channel waits to be returned */
	CONNECTION_DEAD,      /* freed at the end of this round of events */
};

/* A request that arrives in parts. */
struct incoming {
	uint16_t type;
	uint32_t serial, bytes, capacity;
	unsigned char *data; /* malloc'ed; NULL: none begun */
};

/* A reply that leaves in parts, as the client makes room. */
struct outgoing {
	uint16_t type;
	uint32_t serial;
	int32_t status;
	size_t bytes, sent;
	unsigned char *data; /* malloc'ed */
	bool active;         /* something is left to send; no further request is looked at */
};

/* A user who has connections; the front counts in `account` what its channels have in use. */
struct user {
	struct user *next;
	uint32_t uid, n_connections;
	struct account account;
};

struct connection {
	struct server *server;
	struct user *user;
	struct connection *next, *previous;
	enum connection_state state;
	int fd, process_fd; /* -1: closed */
	uint32_t uid;
	pid_t pid;
	bool process_gone, end_asked, end_sent;
	uint64_t map_deadline_ns;
	uint64_t memory_bytes;
	uint32_t wakes_done;
	struct channel *channel;
	struct watch socket_watch, process_watch;
	struct incoming incoming;
	struct outgoing outgoing;
};

/* The memory of a process's closed channels, which it may hold mapped while it lives. */
struct ghost {
	struct ghost *next;
	int process_fd;
	uint32_t uid;
	pid_t pid;
	uint64_t memory_bytes;
	struct watch watch;
};

enum { ENDED_PROCESSES = 64 /* that are remembered; a power of two */ };

struct server {
	struct server_config config;
	struct front *front;
	struct listener listener;
	int epoll_fd, wake_fd, spare_fd; /* spare_fd: see hold_spare */
	struct watch listener_watch, wake_watch;
	struct connection *connections;
	struct ghost *ghosts;
	struct user *users;
	uint32_t n_connections, next_number;
	bool listening;
	bool unbound;             /* the kernel refused to bind a channel's memory; said once */
	uint64_t listen_again_ns; /* 0: not paused for want of descriptors */
	uint64_t notices_since_ns;
	uint32_t notices;                            /* since then, those left out included */
	struct ended_process ended[ENDED_PROCESSES]; /* the latest, by number & (ENDED_PROCESSES - 1) */
	uint32_t n_ended;
	pthread_t thread;
	bool started;

	/* ---- shared ---- */
	shared_u64 refused_for[WIRE_REASON_LIMIT];
	shared_u32 stopping, deaf;
	pthread_mutex_t reload_lock;
	struct server_config *reload; /* under the lock: not taken over yet */
	shared_u64 model;             /* const struct server_model *, release; 0: none yet */
};

/* ---- server.c ---- */
uint64_t server_clock_ns(void);
void server_notice(struct server *server, const char *format, ...) __attribute__((format(printf, 2, 3)));
const struct server_model *server_model_now(const struct server *server);
int server_watch(struct server *server, int fd, uint32_t events, struct watch *watch);
void server_unwatch(struct server *server, int fd);

/* ---- access.c ---- */

/* Whether configuration lets the peer connect at all. */
bool access_allowed(const struct server *server, int fd, const struct ucred *peer);
bool access_may_name_tenants(const struct server *server, uint32_t uid);

/* ---- accept.c ---- */
void accept_clients(struct server *server);

/* Takes the descriptor that is given up when none is left, to tell clients so. */
void hold_spare(struct server *server);

/* NO_DESCRIPTORS or NO_MEMORY. */
uint32_t reason_of_shortage(int error);

/* Counts a connection that gets no live channel. */
void count_refused(struct server *server, uint32_t reason);

/* Forgets the user with its last connection. */
void user_leave(struct server *server, struct user *user);

/* ---- handshake.c ---- */

/* Makes the channel and offers it; on failure the connection is closed, the reason sent first. */
void handshake_offer(struct connection *connection);
void handshake_socket_event(struct connection *connection);

/* Ends half-open connections whose time is over; returns when the next one's is, 0: none. */
uint64_t handshake_expire(struct server *server, uint64_t now_ns);

/* ---- closing.c ---- */

/* The sentence of enum wire_reason. */
const char *end_sentence(uint32_t reason);

/* Best effort: what does not fit the socket is not waited for. */
void send_end(int fd, uint32_t reason);

/* Sends END once, then asks the front to end the channel. */
void connection_end(struct connection *connection, uint32_t reason);

/* Closes the socket of a connection without a channel in the front, and marks it dead. */
void connection_drop(struct connection *connection, uint32_t reason);

/* What the front says of a live or closed connection's channel. */
void connection_follow(struct connection *connection);
void connection_process_gone(struct connection *connection);
void connections_bury(struct server *server);
void ghost_free(struct server *server, struct ghost *ghost);

/* Without waiting for what closing a socket may have to wait for. */
void close_socket(struct server *server, int fd);
uint64_t memory_of_uid(const struct server *server, uint32_t uid);

/* ---- message.c ---- */

/* Takes control messages of the channel's mailbox while no reply is on its way. */
void messages_take(struct connection *connection);

/* ---- answer.c ---- */

/* Whether the client may send requests of the type, and how long they may be, all parts together. */
bool answer_known(uint16_t type, uint32_t *ret_most_bytes);

/* Answers a complete request. False: its length is not that of its type. */
bool answer(struct connection *connection, const struct incoming *request);

/* ---- reply.c ---- */

/* Takes `data` (malloc'ed, or NULL with bytes 0). */
void reply_with(struct connection *connection, const struct incoming *request, unsigned char *data,
		size_t bytes);
void reply_copy(struct connection *connection, const struct incoming *request, const void *data,
		size_t bytes);
void reply_error(struct connection *connection, const struct incoming *request, int error,
		 const char *sentence);
void reply_continue(struct connection *connection);

#endif
