/* From a connection to a live channel: OFFER, MAPPED, seal, populate, LIVE. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "daemon/control/server_internal.h"
#include "daemon/engine/receive.h"
#include "numa/memory.h"

static int send_offer(const struct connection *connection)
{
	struct {
		struct wire_control head;
		struct wire_offer offer;
	} message = {
	    .head = {.type = WIRE_CONTROL_OFFER, .bytes = sizeof(struct wire_offer)},
	    .offer = {.bytes = connection->channel->layout.bytes, .major = WIRE_MAJOR, .minor = WIRE_MINOR},
	};
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {.iov_base = &message, .iov_len = sizeof message};
	struct msghdr header = {
	    .msg_iov = &part,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof control,
	};

	control.head = (struct cmsghdr){
	    .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.head), &connection->channel->segment.fd, sizeof(int));
	return sendmsg(connection->fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* The node comes before the page size: of a node that has no reserved pages left, ordinary ones. */
static enum segment_pages pages_now(const struct server_config *config, uint64_t bytes)
{
	uint64_t nodes = config->channel_nodes;

	return nodes && (config->pages == SEGMENT_PAGES_AUTO || config->pages == SEGMENT_PAGES_PREFER) &&
		       numa_free_pages(__builtin_ctzll(nodes)) * SEGMENT_HUGE_BYTES < bytes
		   ? SEGMENT_PAGES_COLLAPSE
		   : config->pages;
}

static int make_channel(struct connection *connection, char *why, size_t why_bytes)
{
	struct server *server = connection->server;
	const struct server_config *config = &server->config;
	struct segment_layout layout;
	struct channel *channel;
	int error = segment_layout(&layout, config->sq_slots, config->cq_slots, config->max_inflight,
				   config->arena_bytes, server->next_number);

	if (error < 0)
		return error;
	layout.epoch = config->epoch;
	layout.first_index = config->first_index;
	error = channel_create(&channel, &layout, pages_now(config, layout.bytes), why, why_bytes);
	if (error < 0)
		return error;
	channel->number = server->next_number++;
	channel->uid = connection->uid;
	channel->account = &connection->user->account;
	channel->may_name_tenants = access_may_name_tenants(server, connection->uid);
	channel->peek_first = !server->listener.descriptors_refused;
	channel->fd = connection->fd;
	channel->connection = connection;
	connection->channel = channel;
	connection->memory_bytes = layout.bytes;
	return 0;
}

static void warn_of_ordinary_pages(const struct connection *connection)
{
	if (connection->server->config.pages == SEGMENT_PAGES_PREFER && !connection->channel->segment.huge)
		server_notice(
		    connection->server,
		    "the channel of process %d of user %u has ordinary pages: too few huge pages are "
		    "free; raise vm.nr_hugepages",
		    connection->pid, connection->uid);
}

void handshake_offer(struct connection *connection)
{
	struct server *server = connection->server;
	char why[192] = "no memory";
	int error = make_channel(connection, why, sizeof why);

	if (error < 0) {
		uint32_t reason = reason_of_shortage(error);

		server_notice(server, "refused process %d of user %u: %s", connection->pid, connection->uid,
			      reason == WIRE_REASON_NO_MEMORY ? why : end_sentence(reason));
		connection_drop(connection, reason);
		return;
	}
	warn_of_ordinary_pages(connection);
	connection->map_deadline_ns = server_clock_ns() + (uint64_t)server->config.map_timeout_ms * 1000000;
	if (server_watch(server, connection->fd, EPOLLIN, &connection->socket_watch) < 0 ||
	    server_watch(server, connection->process_fd, EPOLLIN, &connection->process_watch) < 0)
		connection_drop(connection, WIRE_REASON_NO_MEMORY);
	else if (send_offer(connection) < 0)
		connection_drop(connection, WIRE_REASON_PEER_GONE);
}

static void send_live(const struct connection *connection)
{
	struct wire_control live = {.type = WIRE_CONTROL_LIVE};

	/* A client that left no room for it times out. */
	if (send(connection->fd, &live, sizeof live, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
}

/* Before any page is there. A kernel that refuses leaves them where this thread runs. */
static void choose_nodes(struct server *server, const struct segment *segment)
{
	uint64_t nodes = server->config.channel_nodes;
	int error = nodes ? numa_prefer(segment->base, segment->bytes, nodes) : 0;

	if (error && !server->unbound)
		server_notice(server,
			      "channels cannot be put on their NUMA node: %s; in a container, give it the "
			      "capability CAP_SYS_NICE",
			      strerror(-error));
	server->unbound |= error != 0;
}

/* The client has mapped; from the seal on nobody can punch holes, so only now is memory put in. */
static uint32_t secure_memory(struct connection *connection)
{
	struct channel *channel = connection->channel;
	char why[192];

	if (segment_seal(&channel->segment, why, sizeof why) < 0) {
		server_notice(connection->server, "ended process %d of user %u: %s", connection->pid,
			      connection->uid, why);
		return WIRE_REASON_BAD_SEALS;
	}
	choose_nodes(connection->server, &channel->segment);
	return segment_populate(&channel->segment) < 0 ? WIRE_REASON_NO_MEMORY : WIRE_REASON_NONE;
}

static void go_live(struct connection *connection)
{
	struct server *server = connection->server;
	struct channel *channel = connection->channel;
	uint32_t reason = secure_memory(connection);

	if (reason) {
		connection_drop(connection, reason);
		return;
	}
	store_relaxed_u64(&segment_header(&channel->segment)->heartbeat_ns, server_clock_ns());
	channel_open(channel);
	/* From here on the front reads the socket. */
	server_unwatch(server, connection->fd);
	if (front_attach(server->front, channel) < 0) {
		connection_drop(connection, WIRE_REASON_TOO_MANY_CHANNELS);
		return;
	}
	connection->state = CONNECTION_LIVE;
	send_live(connection);
}

void handshake_socket_event(struct connection *connection)
{
	struct {
		struct wire_control head;
		unsigned char more;
	} message;
	ssize_t got = receive_message(connection->fd, &message, sizeof message,
				      !connection->server->listener.descriptors_refused);

	if (got == -EAGAIN || got == 1) /* a wake-up byte means nothing yet */
		return;
	if (got <= 0 && got != -EBADMSG)
		connection_drop(connection, WIRE_REASON_PEER_GONE);
	else if (got != sizeof message.head || message.head.type != WIRE_CONTROL_MAPPED ||
		 message.head.flags || message.head.bytes)
		connection_drop(connection, WIRE_REASON_BAD_CONTROL);
	else
		go_live(connection);
}

uint64_t handshake_expire(struct server *server, uint64_t now_ns)
{
	uint64_t next_ns = 0;

	for (struct connection *at = server->connections; at; at = at->next) {
		if (at->state != CONNECTION_HALF_OPEN)
			continue;
		if (at->map_deadline_ns <= now_ns)
			connection_drop(at, WIRE_REASON_MAP_TIMEOUT);
		else if (next_ns == 0 || at->map_deadline_ns < next_ns)
			next_ns = at->map_deadline_ns;
	}
	connections_bury(server);
	return next_ns;
}

size_t server_channel_ranges(const struct server *server, struct observe_range *ret, size_t max,
			     uint32_t slot)
{
	size_t n = 0;

	for (const struct connection *at = server->connections; at && n < max; at = at->next)
		if (at->state == CONNECTION_LIVE)
			ret[n++] = (struct observe_range){.base = (uintptr_t)at->channel->segment.base,
							  .bytes = at->channel->segment.bytes,
							  .slot = slot};
	return n;
}
