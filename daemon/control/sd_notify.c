#include "daemon/control/sd_notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int notify_service(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t bytes = path ? strlen(path) : 0;

	if (!bytes)
		return 1;
	if (bytes >= sizeof(address.sun_path) || (*path != '/' && *path != '@'))
		return -EINVAL;
	memcpy(address.sun_path, path, bytes);
	if (*path == '@')
		address.sun_path[0] = '\0'; /* Linux' abstract names */
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	socklen_t address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
	ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
			      (struct sockaddr *)&address, address_bytes);
	int result = sent < 0 ? -errno : 0;
	close(fd);
	return result;
}

int notify_ready(void)
{
	return notify_service("READY=1");
}

int notify_stopping(void)
{
	return notify_service("STOPPING=1");
}

int notify_reloading(void)
{
	char state[64];
	struct timespec now;

	/* The manager matches a reload with its end by this time. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%lld",
		 (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	return notify_service(state);
}

int notify_status(const char *format, ...)
{
	char state[210] = "STATUS=";
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(state + 7, sizeof(state) - 7, format, arguments);
	va_end(arguments);
	for (char *c = state; *c; c++)
		if (*c == '\n')
			*c = ' '; /* a newline would begin another field */
	return notify_service(state);
}
