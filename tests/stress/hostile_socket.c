/* The hostile client's socket: connections, messages, descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/stress/hostile.h"

enum { PATIENCE_MS = 3000, DESCRIPTORS_MAX = 253 /* of one message: the kernel's bound */ };

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strncpy(address.sun_path, path, sizeof address.sun_path - 1);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
		return fd;
	close(fd);
	return -1;
}

/* The type of the next control message and a descriptor that came with it; 0: none came. */
static unsigned receive(int fd, unsigned char *payload, size_t bytes, int *ret_fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct wire_control head;
	struct iovec parts[2] = {{&head, sizeof head}, {payload, bytes}};
	struct msghdr message = {
	    .msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
	struct cmsghdr *part;
	ssize_t got;

	do {
		if (poll(&ready, 1, PATIENCE_MS) != 1)
			return 0;
		message.msg_controllen = sizeof control;
		got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	} while (got == 1); /* a wake-up */
	if (got < (ssize_t)sizeof head)
		return 0;
	part = CMSG_FIRSTHDR(&message);
	if (part && part->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(part), sizeof *ret_fd);
	return head.type;
}

bool hostile_connect(struct hostile *hostile)
{
	struct wire_offer offer = {0};
	uint64_t seed = hostile->seed;

	*hostile =
	    (struct hostile){.path = hostile->path, .seed = seed, .memory = -1, .segment.fd = -1, .order = 1};
	hostile->fd = connect_to(hostile->path);
	if (hostile->fd < 0 || receive(hostile->fd, (unsigned char *)&offer, sizeof offer,
				       &hostile->memory) != WIRE_CONTROL_OFFER)
		return false;
	hostile->segment.bytes = offer.bytes;
	hostile->segment.base =
	    mmap(NULL, offer.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, hostile->memory, 0);
	if (hostile->segment.base == MAP_FAILED)
		hostile->segment.base = NULL;
	return hostile->segment.base != NULL;
}

bool hostile_go_live(struct hostile *hostile)
{
	struct wire_control mapped = {.type = WIRE_CONTROL_MAPPED};
	unsigned char payload[256];
	int none = -1;

	if (send(hostile->fd, &mapped, sizeof mapped, MSG_NOSIGNAL) < 0 ||
	    receive(hostile->fd, payload, sizeof payload, &none) != WIRE_CONTROL_LIVE ||
	    segment_read(&hostile->segment, &hostile->layout, NULL, 0) < 0)
		return false;
	segment_client_rings(&hostile->segment, &hostile->layout, &hostile->submissions,
			     &hostile->completions);
	hostile->live = true;
	return true;
}

void hostile_leave(struct hostile *hostile)
{
	if (hostile->segment.base)
		munmap(hostile->segment.base, hostile->segment.bytes);
	if (hostile->memory >= 0)
		close(hostile->memory);
	if (hostile->fd >= 0)
		close(hostile->fd);
	hostile->segment.base = NULL;
	hostile->live = false;
	hostile->memory = hostile->fd = -1;
}

/* ---- messages ---- */

static void send_some(struct hostile *hostile, const void *bytes, size_t n)
{
	if (send(hostile->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return; /* full, or the daemon has hung up */
}

/* Right in most fields, so that what lies behind the first check is reached too. */
static void send_crafted(struct hostile *hostile)
{
	static const uint16_t types[] = {WIRE_CONTROL_PROFILE, WIRE_CONTROL_MODEL, WIRE_CONTROL_TOKENIZE,
					 WIRE_CONTROL_DETOKENIZE, WIRE_CONTROL_STATUS};
	static const uint32_t lengths[] = {0, 4, 8, 12, 40, 44, 296, 300, 3000, 4080};
	struct {
		struct wire_control head;
		uint32_t payload[1024];
	} message = {.head = {.type = types[hostile_below(hostile, 5)],
			      .flags = hostile_below(hostile, 3) == 0,
			      .serial = hostile_below(hostile, 3),
			      .bytes = lengths[hostile_below(hostile, 10)]}};
	size_t bytes = sizeof message.head + message.head.bytes;

	for (uint32_t i = 0; i < message.head.bytes / 4; i++)
		message.payload[i] = hostile_below(hostile, 2) ? hostile_random(hostile) : 0;
	if (hostile_below(hostile, 3))
		message.payload[0] = 0;
	switch (hostile_below(hostile, 12)) {
	case 0:
		message.head.bytes = hostile_random(hostile);
		break;
	case 1:
		bytes = hostile_below(hostile, (uint32_t)bytes + 1); /* half a message */
		break;
	case 2:
		message.head.status = -1;
		break;
	default:
		break;
	}
	send_some(hostile, &message, bytes);
}

static void send_noise(struct hostile *hostile)
{
	unsigned char bytes[9000];
	uint32_t n = hostile_below(hostile, hostile_below(hostile, 2) ? 64 : sizeof bytes);

	for (uint32_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)hostile_random(hostile);
	send_some(hostile, bytes, n);
}

void hostile_messages(struct hostile *hostile)
{
	switch (hostile_below(hostile, 8)) {
	case 0:
		send_noise(hostile);
		break;
	case 1:
		for (int i = 0; i < 2000; i++)
			send_some(hostile, "", 1);
		break;
	case 2:
		if (hostile_below(hostile, 8) == 0)
			shutdown(hostile->fd, (int)hostile_below(hostile, 3));
		break;
	default: /* and never reads the replies */
		for (uint32_t i = hostile_below(hostile, 20); i > 0; i--)
			send_crafted(hostile);
	}
}

/* ---- descriptors ---- */

static int any_descriptor(struct hostile *hostile)
{
	switch (hostile_below(hostile, 7)) {
	case 0:
		return epoll_create1(0);
	case 1:
		return eventfd(0, 0);
	case 2:
		return memfd_create("passed", MFD_CLOEXEC);
	case 3:
		return socket(AF_INET, SOCK_STREAM, 0);
	case 4:
		return open("/proc/self/mem", O_RDONLY);
	case 5:
		return dup(hostile->fd); /* a socket in its own queue */
	default:
		return hostile->memory >= 0 ? dup(hostile->memory) : open("/dev/null", O_RDWR);
	}
}

static void send_with(const struct hostile *hostile, const int *fds, uint32_t n, const void *bytes,
		      size_t size)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
	} control = {.head = {.cmsg_len = CMSG_LEN(n * sizeof(int)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS}};
	struct iovec part = {(void *)bytes, size};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = CMSG_SPACE(n * sizeof(int))};

	memcpy(CMSG_DATA(&control.head), fds, n * sizeof(int));
	if (sendmsg(hostile->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return; /* EPERM: the kernel knows SO_PASSRIGHTS */
}

void hostile_descriptors(struct hostile *hostile)
{
	struct wire_control head = {.type = hostile->live ? WIRE_CONTROL_STATUS : WIRE_CONTROL_MAPPED};
	uint32_t n = hostile_below(hostile, 4) ? 1 : 1 + hostile_below(hostile, DESCRIPTORS_MAX);
	int fds[DESCRIPTORS_MAX], one = any_descriptor(hostile);

	for (uint32_t i = 0; i < n; i++)
		fds[i] = one;
	if (one >= 0)
		send_with(hostile, fds, n, &head, hostile_below(hostile, 2) ? sizeof head : 1);
	if (one >= 0)
		close(one);
}

/* ---- connections ---- */

void hostile_crowd(struct hostile *hostile)
{
	int fds[64];
	uint32_t n = 1 + hostile_below(hostile, 64);

	for (uint32_t i = 0; i < n; i++)
		fds[i] = connect_to(hostile->path);
	for (uint32_t i = 0; i < n; i++)
		if (fds[i] >= 0 && hostile_below(hostile, 8) == 0 && send(fds[i], "xyz", 3, MSG_NOSIGNAL) < 0)
			continue;
	usleep(hostile_below(hostile, 100000));
	for (uint32_t i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}
