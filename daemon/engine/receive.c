#include "daemon/engine/receive.h"

#include <errno.h>
#include <sys/socket.h>

static ssize_t receive(int fd, void *buffer, size_t bytes, int flags, int *ret_flags)
{
	struct iovec part = {.iov_base = buffer, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t got;

	do
		got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_TRUNC | flags);
	while (got < 0 && errno == EINTR);
	*ret_flags = message.msg_flags;
	if (got >= 0)
		return got;
	return errno == EAGAIN || errno == ENOMEM ? -EAGAIN : -ECONNRESET;
}

ssize_t receive_message(int fd, void *buffer, size_t bytes, bool peek_first)
{
	int flags;

	if (peek_first) {
		ssize_t got = receive(fd, buffer, bytes, MSG_PEEK, &flags);

		/* There is no room for control data: CTRUNC says that some came. */
		if (got > 0 && flags & MSG_CTRUNC)
			return -EBADMSG;
		if (got <= 0)
			return got;
	}
	return receive(fd, buffer, bytes, 0, &flags);
}
