/* A Unix SOCK_SEQPACKET socket pair, 64 bytes a message. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/bench/pair_loops.h"

static int ends[2], own;

static int prepare(void)
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) ? -errno : 0;
}

static int open_end(bool is_near)
{
	own = ends[is_near];
	close(ends[!is_near]);
	return 0;
}

static int result_of(ssize_t n)
{
	if (n == PAIR_MESSAGE_BYTES)
		return 1;
	if (n >= 0)
		return -ECONNRESET;
	return errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

static int send_message(const void *message, bool block)
{
	return result_of(send(own, message, PAIR_MESSAGE_BYTES, (block ? 0 : MSG_DONTWAIT) | MSG_NOSIGNAL));
}

static int receive_message(void *message, bool block)
{
	return result_of(recv(own, message, PAIR_MESSAGE_BYTES, block ? 0 : MSG_DONTWAIT));
}

PAIR_LOOPS(socket, send_message, receive_message)

const struct pair_transport pair_socket = {"seqpacket", prepare, open_end, socket_near, socket_far};
