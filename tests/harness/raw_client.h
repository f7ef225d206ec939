/* A client that keeps no rules but those that a test wants: sockets and rings by hand.
 *
 * Thread rule: one thread for each client. Functions fail the test (cmocka) unless they say otherwise. */
#ifndef TOKENRING_TESTS_HARNESS_RAW_CLIENT_H
#define TOKENRING_TESTS_HARNESS_RAW_CLIENT_H

#include "shm/segment.h"
#include "shm/wake.h"

struct raw_client {
	int fd;
	struct segment segment;
	struct segment_layout layout;
	struct ring_writer submissions;
	struct ring_reader completions;
	uint64_t next_order; /* high 48 bits of the next id */
};

struct raw_message {
	struct wire_control head;
	unsigned char payload[WIRE_CONTROL_BYTES_MAX];
};

/* Connects; nothing is received yet. A negative errno instead of failing. */
int raw_connect(const char *path);

/* Receives one control message within two seconds; wake-up bytes are dropped. Returns its type, 0 at a
 * hang-up.
 * `*ret_fd`: a descriptor that came with it, or -1. */
unsigned raw_receive(int fd, struct raw_message *ret, int *ret_fd);

/* Connects and maps, up to before MAPPED. */
void raw_open_half(struct raw_client *client, const char *path);
void raw_open(struct raw_client *client, const char *path);

/* Sends MAPPED and waits for LIVE. */
void raw_finish_open(struct raw_client *client);
void raw_close(struct raw_client *client);
void raw_send(int fd, uint16_t type, uint16_t flags, const void *payload, uint32_t bytes);

/* A valid echo or generate request of one token; the caller may break it before raw_submit. */
struct wire_submission raw_slot(struct raw_client *client, uint8_t op, uint32_t index);

/* Publishes and wakes the daemon. */
void raw_submit(struct raw_client *client, const struct wire_submission *slot);

/* The next completion within two seconds. */
struct wire_completion raw_completion(struct raw_client *client);

/* The reason of the END that comes next, skipping other messages; then the socket must hang up. */
uint32_t raw_end_reason(struct raw_client *client);

#endif
