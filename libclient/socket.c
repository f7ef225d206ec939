/* Reading the socket: wake-up bytes, control messages, END and hang-up. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "libclient/client.h"

/* How many messages one drain reads: more at a time is a daemon that floods, and the next call goes on. */
enum { DRAIN_MAX = 256 };

/* Takes the first descriptor of the message, closes any other. */
static int take_descriptor(struct msghdr *header)
{
	int taken = -1;

	for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
		size_t n;

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
			if (taken < 0)
				taken = fd;
			else
				close(fd);
		}
	}
	return taken;
}

static int classify(const struct message *message, ssize_t bytes)
{
	if (bytes == 0)
		return -ECONNRESET;
	if (bytes == 1)
		return RECEIVED_WAKE;
	if (bytes < (ssize_t)sizeof message->head || bytes > (ssize_t)sizeof *message ||
	    message->head.bytes != (size_t)bytes - sizeof message->head)
		return -EPROTO;
	return RECEIVED_CONTROL;
}

int socket_receive(int fd, struct message *ret, int *ret_fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
	struct iovec parts = {ret, sizeof *ret};
	struct msghdr header = {.msg_iov = &parts, .msg_iovlen = 1};
	int kind, taken;
	ssize_t bytes;

	/* Without room for it the kernel itself drops a descriptor that nobody asked for. */
	if (ret_fd) {
		header.msg_control = control;
		header.msg_controllen = sizeof control;
	}
	bytes = recvmsg(fd, &header, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
	/* A peer that left something unread: the kernel says so once, before what the peer had still sent. */
	if (bytes < 0 && errno == ECONNRESET)
		bytes = recvmsg(fd, &header, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
	if (bytes < 0)
		return errno == EAGAIN || errno == EINTR ? RECEIVED_NOTHING : -ECONNRESET;
	taken = ret_fd ? take_descriptor(&header) : -1;
	if (ret_fd && taken < 0 && header.msg_flags & MSG_CTRUNC)
		return -EMFILE; /* the kernel dropped the descriptor: this process may hold no more */
	kind = classify(ret, bytes);
	if (kind == RECEIVED_CONTROL && ret_fd)
		*ret_fd = taken;
	else if (taken >= 0)
		close(taken);
	return kind;
}

int socket_wait(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd poll_fd = {.fd = fd, .events = events};
	uint64_t now_ns = clock_now_ns(), left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
	struct timespec left = {.tv_sec = (time_t)(left_ns / 1000000000),
				.tv_nsec = (long)(left_ns % 1000000000)};
	int n = ppoll(&poll_fd, 1, &left, NULL);

	return n < 0 ? -errno : n;
}

static int ended_by_daemon(struct tr_client *client, const struct message *message)
{
	uint32_t reason = WIRE_REASON_NONE;

	if (message->head.bytes >= sizeof reason)
		memcpy(&reason, message->payload, sizeof reason);
	return client_die(client, reason_to_error(reason), reason, true);
}

static int judge(struct tr_client *client, const struct message *message, int kind)
{
	if (kind == -ECONNRESET)
		return client_die(client, -ECONNRESET, WIRE_REASON_PEER_GONE, true); /* [X2] */
	if (kind < 0)
		return client_die(client, -ECONNABORTED, WIRE_REASON_BAD_CONTROL, false);
	if (kind == RECEIVED_CONTROL && message->head.type == WIRE_CONTROL_END)
		return ended_by_daemon(client, message);
	return kind;
}

int client_receive(struct tr_client *client, struct message *ret)
{
	if (sleeper_asleep(&client->sleeper)) /* [C7] */
		sleep_end(&client->sleeper, &segment_header(&client->segment)->client_sleep);
	return judge(client, ret, socket_receive(client->socket, ret, NULL));
}

int client_drain(struct tr_client *client)
{
	struct message message;
	int kind = RECEIVED_WAKE;

	for (int n = 0; n < DRAIN_MAX && kind > RECEIVED_NOTHING; n++)
		kind = client_receive(client, &message);
	return kind < 0 ? kind : 0;
}

int client_hung_up(struct tr_client *client)
{
	int error = client_drain(client);

	return error ? error : client_die(client, -ECONNRESET, WIRE_REASON_PEER_GONE, true);
}

int client_peek(struct tr_client *client)
{
	char start[2];
	ssize_t bytes = recv(client->socket, start, sizeof start, MSG_DONTWAIT | MSG_PEEK);

	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	/* [C8] A wake-up that nobody has taken hides what comes after it, but for a hang-up. */
	if (bytes == 1 && socket_wait(client->socket, POLLRDHUP, 0) <= 0)
		return 0;
	return client_drain(client);
}

int client_heartbeat(const struct tr_client *client, uint64_t now_ns)
{
	uint64_t beat_ns = load_relaxed_u64(&segment_header(&client->segment)->heartbeat_ns);

	/* Signed: the clock was read before the heartbeat, which may be the younger of the two. */
	return (int64_t)(now_ns - beat_ns) > WIRE_STALE_NS ? -EHOSTDOWN : 0;
}
