#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/harness/raw_client.h"

enum { PATIENCE_MS = 4000 };

int raw_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strncpy(address.sun_path, path, sizeof address.sun_path - 1);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
		return fd;
	close(fd);
	return -errno;
}

static int take_fd(struct msghdr *message)
{
	struct cmsghdr *part = CMSG_FIRSTHDR(message);
	int fd = -1;

	if (part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(part), sizeof fd);
	return fd;
}

unsigned raw_receive(int fd, struct raw_message *ret, int *ret_fd)
{
	for (;;) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};
		union {
			struct cmsghdr head;
			char space[CMSG_SPACE(sizeof(int))];
		} control;
		struct iovec part = {ret, sizeof *ret};
		struct msghdr message = {.msg_iov = &part,
					 .msg_iovlen = 1,
					 .msg_control = &control,
					 .msg_controllen = sizeof control};
		ssize_t got;

		assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
		got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
		if (got <= 0)
			return 0;
		if (ret_fd)
			*ret_fd = take_fd(&message);
		if (got > 1) {
			assert_true((size_t)got >= sizeof ret->head);
			return ret->head.type;
		}
	}
}

void raw_send(int fd, uint16_t type, uint16_t flags, const void *payload, uint32_t bytes)
{
	struct raw_message message = {.head = {.type = type, .flags = flags, .serial = 5, .bytes = bytes}};

	if (bytes)
		memcpy(message.payload, payload, bytes);
	assert_int_equal(send(fd, &message, sizeof message.head + bytes, MSG_NOSIGNAL),
			 sizeof message.head + bytes);
}

void raw_open_half(struct raw_client *client, const char *path)
{
	struct raw_message message;
	struct wire_offer offer;
	int memory = -1;

	memset(client, 0, sizeof *client);
	client->fd = raw_connect(path);
	assert_true(client->fd >= 0);
	assert_int_equal(raw_receive(client->fd, &message, &memory), WIRE_CONTROL_OFFER);
	assert_true(memory >= 0);
	memcpy(&offer, message.payload, sizeof offer);
	assert_int_equal(segment_map(&client->segment, memory, offer.bytes, NULL, 0), 0);
	close(memory);
	client->next_order = 1;
}

void raw_finish_open(struct raw_client *client)
{
	struct raw_message message;

	raw_send(client->fd, WIRE_CONTROL_MAPPED, 0, NULL, 0);
	assert_int_equal(raw_receive(client->fd, &message, NULL), WIRE_CONTROL_LIVE);
	assert_int_equal(segment_read(&client->segment, &client->layout, NULL, 0), 0);
	segment_client_rings(&client->segment, &client->layout, &client->submissions, &client->completions);
}

void raw_open(struct raw_client *client, const char *path)
{
	raw_open_half(client, path);
	raw_finish_open(client);
}

void raw_close(struct raw_client *client)
{
	segment_destroy(&client->segment);
	close(client->fd);
}

struct wire_submission raw_slot(struct raw_client *client, uint8_t op, uint32_t index)
{
	return (struct wire_submission){
	    .op = op, .n_tok = 1, .id = client->next_order++ << 16 | index, .max_new = 4, .tok = {9}};
}

void raw_submit(struct raw_client *client, const struct wire_submission *slot)
{
	char byte = 0;

	if (ring_room(&client->submissions) == 0)
		assert_true(ring_writer_refresh(&client->submissions));
	assert_true(ring_room(&client->submissions) > 0);
	ring_publish(&client->submissions, slot);
	fence_full();
	if (load_relaxed_u32(&segment_header(&client->segment)->daemon_sleep) & 1 &&
	    send(client->fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		assert_int_not_equal(errno, EINVAL);
}

struct wire_completion raw_completion(struct raw_client *client)
{
	struct wire_completion completion;
	struct timespec nap = {.tv_nsec = 50000};

	for (int i = 0; i < 40000; i++) {
		if (ring_read(&client->completions, &completion)) {
			ring_reader_publish(&client->completions);
			return completion;
		}
		nanosleep(&nap, NULL);
	}
	fail_msg("no completion came");
	return (struct wire_completion){0};
}

uint32_t raw_end_reason(struct raw_client *client)
{
	struct raw_message message;
	struct wire_end end;
	unsigned type;

	do {
		type = raw_receive(client->fd, &message, NULL);
		assert_int_not_equal(type, 0);
	} while (type != WIRE_CONTROL_END);
	memcpy(&end, message.payload, sizeof end);
	assert_int_equal(raw_receive(client->fd, &message, NULL), 0);
	return end.reason;
}
