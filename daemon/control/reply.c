/* Replies: in parts, as fast as the client makes room, never waiting for it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "daemon/control/server_internal.h"

enum { PART_BYTES_MAX = WIRE_CONTROL_BYTES_MAX - sizeof(struct wire_control) };

/* -EAGAIN: no room for it yet. */
static int send_part(struct connection *connection)
{
	struct outgoing *outgoing = &connection->outgoing;
	size_t left = outgoing->bytes - outgoing->sent, bytes = left < PART_BYTES_MAX ? left : PART_BYTES_MAX;
	struct wire_control head = {
	    .type = outgoing->type,
	    .flags = WIRE_CONTROL_REPLY | (bytes < left ? WIRE_CONTROL_MORE : 0),
	    .serial = outgoing->serial,
	    .status = outgoing->status,
	    .bytes = (uint32_t)bytes,
	};
	struct iovec parts[2] = {{&head, sizeof head}, {outgoing->data + outgoing->sent, bytes}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = bytes ? 2 : 1};

	if (sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	outgoing->sent += bytes;
	return 0;
}

static void finish(struct connection *connection)
{
	free(connection->outgoing.data);
	connection->outgoing = (struct outgoing){0};
}

/* A client that is gone is the front's to notice; what was left to say is dropped. */
static void send_parts(struct connection *connection)
{
	struct outgoing *outgoing = &connection->outgoing;
	int error;

	do
		error = send_part(connection);
	while (error == -EINTR || (error == 0 && outgoing->sent < outgoing->bytes));
	if (error != -EAGAIN && error != -ENOBUFS)
		finish(connection);
}

static void start(struct connection *connection, const struct incoming *request, int32_t status,
		  unsigned char *data, size_t bytes)
{
	connection->outgoing = (struct outgoing){
	    .type = request->type,
	    .serial = request->serial,
	    .status = status,
	    .bytes = bytes,
	    .data = data,
	    .active = true,
	};
	send_parts(connection);
	if (connection->outgoing.active &&
	    server_watch(connection->server, connection->fd, EPOLLOUT, &connection->socket_watch) < 0)
		finish(connection);
}

void reply_continue(struct connection *connection)
{
	if (!connection->outgoing.active)
		return;
	send_parts(connection);
	if (connection->outgoing.active)
		return;
	server_unwatch(connection->server, connection->fd);
	messages_take(connection);
}

void reply_with(struct connection *connection, const struct incoming *request, unsigned char *data,
		size_t bytes)
{
	start(connection, request, 0, data, bytes);
}

static void copy_and_start(struct connection *connection, const struct incoming *request, int32_t status,
			   const void *data, size_t bytes)
{
	unsigned char *copy = malloc(bytes ? bytes : 1);

	if (copy && bytes)
		memcpy(copy, data, bytes);
	start(connection, request, copy ? status : -ENOMEM, copy, copy ? bytes : 0);
}

void reply_copy(struct connection *connection, const struct incoming *request, const void *data, size_t bytes)
{
	copy_and_start(connection, request, 0, data, bytes);
}

void reply_error(struct connection *connection, const struct incoming *request, int error,
		 const char *sentence)
{
	copy_and_start(connection, request, error, sentence, strlen(sentence));
}
