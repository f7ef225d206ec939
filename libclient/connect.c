/* From an address to a mapped and checked channel. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libclient/client.h"

static const char system_path[] = "/run/tokenring/socket";

enum {
	CROWDED = -EBUSY, /* within this file: too many channels of this user are being set up right now */
	PAUSE_LEAST_NS = 2000000,
	PAUSE_MOST_NS = 64000000,
};

static int socket_with_timeout(uint32_t timeout_ms)
{
	struct timeval timeout = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	/* Bounds connect(), which waits while the daemon's backlog is full; nothing else here blocks. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) < 0) {
		int error = -errno;

		close(fd);
		return error;
	}
	return fd;
}

static int connect_path(const char *path, uint32_t timeout_ms)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket_with_timeout(timeout_ms);
	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		int error = errno;

		close(fd);
		return error == EAGAIN || error == EINPROGRESS ? -ETIMEDOUT : -error;
	}
	return fd;
}

/* The system's daemon, else the user's own; when neither is there, the error of the system's. */
static int connect_default(uint32_t timeout_ms)
{
	const char *named = secure_getenv("TOKENRING_SOCKET"), *runtime = secure_getenv("XDG_RUNTIME_DIR");
	char path[sizeof((struct sockaddr_un *)0)->sun_path];
	size_t length = runtime ? strlen(runtime) : 0;
	int fd, second;

	if (named && *named)
		return connect_path(named, timeout_ms);
	fd = connect_path(system_path, timeout_ms);
	if ((fd != -ENOENT && fd != -ECONNREFUSED) || length == 0 ||
	    length + sizeof "/tokenring/socket" > sizeof path)
		return fd;
	memcpy(path, runtime, length);
	strcpy(path + length, "/tokenring/socket");
	second = connect_path(path, timeout_ms);
	return second == -ENOENT ? fd : second;
}

static int connect_address(const char *address, uint32_t timeout_ms)
{
	if (!address)
		return connect_default(timeout_ms);
	if (strstr(address, "://"))
		return -EPROTONOSUPPORT;
	return connect_path(address, timeout_ms);
}

static void say(struct why why, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct why why, const char *format, ...)
{
	va_list arguments;

	if (!why.text)
		return;
	va_start(arguments, format);
	vsnprintf(why.text, why.bytes, format, arguments);
	va_end(arguments);
}

/* An END instead of what was expected: its reason's errno says more than a hang-up would, and its sentence is
 * there also for a reason that only later versions know. */
static int refused(const struct message *message, struct why why)
{
	struct wire_end end = {.reason = WIRE_REASON_NONE};
	int error;

	memcpy(&end, message->payload, message->head.bytes < sizeof end ? message->head.bytes : sizeof end);
	end.sentence[sizeof end.sentence - 1] = '\0';
	if (end.reason == WIRE_REASON_TOO_MANY_HALF_OPEN)
		return CROWDED;
	say(why, "the daemon refused the channel: %s",
	    end.sentence[0] ? end.sentence : tr_strreason(end.reason));
	error = tr_reason_errno(end.reason);
	return error ? -error : -ECONNRESET;
}

static int another_version(uint32_t major, uint32_t minor, struct why why)
{
	say(why,
	    "the daemon speaks version %u.%u of the channel, this library (libtokenring %s) version %u.%u; "
	    "install tokenringd and libtokenring of one version",
	    major, minor, tr_version(), WIRE_MAJOR, WIRE_MINOR);
	return -EPROTONOSUPPORT;
}

/* Waits for one control message of the type expected; wake-up bytes in between are dropped. */
static int expect(int fd, uint16_t type, struct message *ret, int *ret_fd, uint64_t deadline_ns,
		  struct why why)
{
	int kind;

	while ((kind = socket_receive(fd, ret, ret_fd)) == RECEIVED_NOTHING || kind == RECEIVED_WAKE) {
		int ready = kind == RECEIVED_WAKE ? 1 : socket_wait(fd, POLLIN, deadline_ns);

		if (ready == 0)
			return -ETIMEDOUT;
		if (ready < 0 && ready != -EINTR)
			return ready;
	}
	if (kind < 0)
		return kind;
	if (ret->head.type == WIRE_CONTROL_END)
		return refused(ret, why);
	return ret->head.type == type ? 0 : -EPROTO;
}

/* Later versions may offer more, after these fields. */
static int map_offer(struct channel *channel, const struct message *message, int fd, struct why why)
{
	struct wire_offer offer;

	if (message->head.bytes < sizeof offer || fd < 0)
		return -EPROTO;
	memcpy(&offer, message->payload, sizeof offer);
	if (offer.major != WIRE_MAJOR)
		return another_version(offer.major, offer.minor, why);
	return segment_map(&channel->segment, fd, offer.bytes, why.text, why.bytes);
}

static int accept_offer(struct channel *channel, uint64_t deadline_ns, struct why why)
{
	struct message message;
	int fd = -1, error = expect(channel->socket, WIRE_CONTROL_OFFER, &message, &fd, deadline_ns, why);

	if (error == 0)
		error = map_offer(channel, &message, fd, why);
	if (fd >= 0)
		close(fd);
	return error;
}

static int report_mapped(int fd)
{
	struct wire_control mapped = {.type = WIRE_CONTROL_MAPPED};

	if (send(fd, &mapped, sizeof mapped, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return errno == EPIPE ? -ECONNRESET : -errno;
	return 0;
}

static int handshake(struct channel *channel, uint64_t deadline_ns, struct why why)
{
	struct message message;
	int error = accept_offer(channel, deadline_ns, why), stray = -1;

	if (error == 0)
		error = report_mapped(channel->socket);
	if (error == 0)
		error = expect(channel->socket, WIRE_CONTROL_LIVE, &message, &stray, deadline_ns, why);
	if (stray >= 0)
		close(stray);
	if (error == 0)
		error = segment_read(&channel->segment, &channel->layout, why.text, why.bytes);
	if (error == 0)
		error = segment_populate(&channel->segment);
	return error;
}

static uint32_t left_ms(uint64_t deadline_ns)
{
	uint64_t now_ns = clock_now_ns();

	return now_ns < deadline_ns ? (uint32_t)((deadline_ns - now_ns + 999999) / 1000000) : 1;
}

static int connect_once(struct channel *ret, const char *address, uint64_t deadline_ns, struct why why)
{
	struct channel channel = {.segment.fd = -1};
	int error;

	channel.socket = connect_address(address, left_ms(deadline_ns));
	if (channel.socket < 0)
		return channel.socket;
	error = handshake(&channel, deadline_ns, why);
	if (error < 0) {
		channel_destroy(&channel);
		return error;
	}
	*ret = channel;
	return 0;
}

/* Many clients that start together exceed for a moment what may be set up at once: each waits for its turn.
 */
static int connect_in_turn(struct channel *ret, const char *address, uint32_t timeout_ms, struct why why)
{
	uint64_t deadline_ns = clock_now_ns() + (uint64_t)timeout_ms * 1000000;
	struct timespec pause = {.tv_nsec = PAUSE_LEAST_NS};
	int error;

	while ((error = connect_once(ret, address, deadline_ns, why)) == CROWDED &&
	       clock_now_ns() + (uint64_t)pause.tv_nsec < deadline_ns) {
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < PAUSE_MOST_NS)
			pause.tv_nsec *= 2;
	}
	return error == CROWDED ? -EUSERS : error;
}

int channel_connect(struct channel *ret, const char *address, uint32_t timeout_ms, struct why why)
{
	int error;

	if (why.text)
		why.text[0] = '\0';
	error = connect_in_turn(ret, address, timeout_ms, why);
	if (error < 0 && why.text && !why.text[0])
		say(why, "%s", tr_strerror(error));
	return error;
}

void channel_destroy(struct channel *channel)
{
	segment_destroy(&channel->segment);
	if (channel->socket >= 0)
		close(channel->socket);
	channel->socket = -1;
}
