/* Control messages as the control thread takes them from a channel's mailbox: input is {u16 length, bytes}
 * again and again. Replies go to a socket that is read empty after each. */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/control/server_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct engine_link link_;
static struct server server;
static struct server_model model = {.info = {.vocab = 1000, .state = WIRE_MODEL_READY, .n_stop = 1}};

static int tokenize(void *context, const char *text, size_t bytes, uint32_t flags, uint32_t **ret,
		    size_t *ret_n)
{
	(void)context;
	(void)flags;
	*ret = calloc(bytes + 1, sizeof **ret);
	for (size_t i = 0; i < bytes; i++)
		(*ret)[i] = (unsigned char)text[i];
	*ret_n = bytes;
	return 0;
}

static int detokenize(void *context, const uint32_t *tokens, size_t n, uint32_t flags, char **ret,
		      size_t *ret_bytes)
{
	(void)context;
	(void)flags;
	*ret = calloc(n + 1, 1);
	for (size_t i = 0; i < n; i++)
		(*ret)[i] = (char)tokens[i];
	*ret_bytes = n;
	return 0;
}

static int status(void *context, char *json, size_t capacity)
{
	(void)context;
	memcpy(json, "{}", capacity < 2 ? capacity : 2);
	return 2;
}

static void prepare(void)
{
	struct front_config config = {.max_clients = 1, .block_bytes = WIRE_BLOCK_BYTES_MAX};
	char why[128];

	link_.n_requests = 1;
	link_.requests = calloc(1, sizeof(struct request));
	if (queue_init(&link_.commands, 2, sizeof(struct engine_command)) ||
	    queue_init(&link_.events, 128, sizeof(struct engine_event)) ||
	    front_create(&server.front, &config, &link_, why, sizeof why))
		abort();
	server.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	server.config.status = status;
	model.tokenize = tokenize;
	model.detokenize = detokenize;
	server_set_model(&server, &model);
}

static void drain(struct connection *connection, int fd)
{
	static char sink[WIRE_CONTROL_BYTES_MAX];
	int rounds = 0;

	do {
		while (recv(fd, sink, sizeof sink, MSG_DONTWAIT) > 0)
			;
		reply_continue(connection);
	} while (connection->outgoing.active && ++rounds < 10000);
}

static void feed(struct connection *connection, int fd, const uint8_t *data, size_t size)
{
	struct control_envelope envelope;

	while (size >= 2 && !connection->end_sent) {
		size_t bytes = (size_t)data[0] | (size_t)data[1] << 8;

		data += 2;
		size -= 2;
		bytes = bytes < size ? bytes : size;
		bytes = bytes < sizeof envelope.data ? bytes : sizeof envelope.data;
		envelope.bytes = (uint32_t)bytes;
		memcpy(envelope.data, data, bytes);
		data += bytes;
		size -= bytes;
		if (bytes < 2)
			continue; /* a wake-up: the front keeps it */
		queue_push(&connection->channel->mailbox, &envelope);
		messages_take(connection);
		drain(connection, fd);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct connection connection = {.server = &server, .state = CONNECTION_LIVE};
	struct channel *channel = aligned_alloc(64, (sizeof *channel + 63) & ~(size_t)63);
	int pair[2];

	if (!server.front)
		prepare();
	memset(channel, 0, sizeof *channel);
	channel->segment.fd = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) ||
	    queue_init(&channel->mailbox, CHANNEL_MAILBOX_SLOTS, sizeof(struct control_envelope)))
		abort();
	connection.fd = pair[0];
	connection.channel = channel;
	connection.socket_watch = (struct watch){WATCH_SOCKET, &connection};
	feed(&connection, pair[1], data, size);
	free(connection.incoming.data);
	free(connection.outgoing.data);
	channel_free(channel);
	close(pair[0]);
	close(pair[1]);
	return 0;
}
