#include "daemon/control/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Newer than the C library of Debian 12; the value is the kernel's ABI. */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum { BACKLOG = 256 };

static int fail(int error, char *why, size_t why_bytes, const char *what, const char *path)
{
	snprintf(why, why_bytes, "%s %s: %s", what, path, strerror(error));
	return -error;
}

static void lock_path(const char *path, char *ret, size_t bytes)
{
	snprintf(ret, bytes, "%s.lock", path);
}

static void make_folder(const char *path)
{
	char copy[sizeof((struct listener *)0)->path];

	strcpy(copy, path);
	mkdir(dirname(copy), 0755); /* if it fails, the next step says why */
}

/* Whether the file that was locked is still the one at the path: its holder may just have removed it. */
static bool still_there(int fd, const char *path)
{
	struct stat ours, theirs;

	return fstat(fd, &ours) == 0 && stat(path, &theirs) == 0 && ours.st_ino == theirs.st_ino &&
	       ours.st_dev == theirs.st_dev;
}

static int take_lock(const char *path, char *why, size_t why_bytes)
{
	char lock[sizeof((struct listener *)0)->path + 8];

	lock_path(path, lock, sizeof lock);
	for (;;) {
		int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

		if (fd < 0 && errno == ENOENT) {
			snprintf(why, why_bytes,
				 "cannot create %s: No such file or directory; make its folder, or choose "
				 "another --socket",
				 lock);
			return -ENOENT;
		}
		if (fd < 0)
			return fail(errno, why, why_bytes, "cannot create", lock);
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			int error = errno == EWOULDBLOCK ? EADDRINUSE : errno;

			close(fd);
			snprintf(why, why_bytes,
				 "another tokenringd serves %s: stop it, or give this one another --socket",
				 path);
			return -error;
		}
		if (still_there(fd, lock))
			return fd;
		close(fd);
	}
}

/* What a dead daemon left is removed; anything that is no socket is not ours. */
static int clear_path(const char *path, char *why, size_t why_bytes)
{
	struct stat status;

	if (lstat(path, &status) < 0)
		return errno == ENOENT ? 0 : fail(errno, why, why_bytes, "cannot look at", path);
	if (!S_ISSOCK(status.st_mode)) {
		snprintf(why, why_bytes, "%s exists and is no socket: remove it, or choose another --socket",
			 path);
		return -ENOTSOCK;
	}
	return unlink(path) < 0 ? fail(errno, why, why_bytes, "cannot remove the stale socket", path) : 0;
}

static int bind_and_listen(struct listener *listener, mode_t mode, char *why, size_t why_bytes)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, listener->path);
	/* The mode is set before the path appears, so that nobody slips in; then again, past the umask. */
	if (fchmod(listener->fd, mode) < 0 ||
	    bind(listener->fd, (struct sockaddr *)&address, sizeof address) < 0)
		return fail(errno, why, why_bytes, "cannot bind", listener->path);
	listener->bound = true;
	if (chmod(listener->path, mode) < 0 || listen(listener->fd, BACKLOG) < 0)
		return fail(errno, why, why_bytes, "cannot listen on", listener->path);
	return 0;
}

static int open_socket(struct listener *listener, mode_t mode, bool allow_descriptors, char *why,
		       size_t why_bytes)
{
	int off = 0;

	listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0)
		return fail(errno, why, why_bytes, "cannot make the socket", listener->path);
	/* Connections inherit it. Refused by kernels before 6.16. */
	if (!allow_descriptors)
		listener->descriptors_refused =
		    setsockopt(listener->fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off) == 0;
	return bind_and_listen(listener, mode, why, why_bytes);
}

int listener_open(struct listener *ret, const char *path, mode_t mode, bool allow_descriptors, char *why,
		  size_t why_bytes)
{
	struct listener listener = {.fd = -1, .lock_fd = -1};
	int error;

	if (strlen(path) >= sizeof listener.path) {
		snprintf(why, why_bytes, "%s: a socket's path may have %zu bytes at most", path,
			 sizeof listener.path - 1);
		return -ENAMETOOLONG;
	}
	strcpy(listener.path, path);
	make_folder(path);
	listener.lock_fd = take_lock(path, why, why_bytes);
	if (listener.lock_fd < 0)
		return listener.lock_fd;
	error = clear_path(path, why, why_bytes);
	if (error == 0)
		error = open_socket(&listener, mode, allow_descriptors, why, why_bytes);
	if (error < 0) {
		listener_close(&listener);
		return error;
	}
	*ret = listener;
	return 0;
}

void listener_deafen(struct listener *listener)
{
	if (listener->fd >= 0)
		close(listener->fd);
	listener->fd = -1;
}

void listener_close(struct listener *listener)
{
	char lock[sizeof listener->path + 8];

	listener_deafen(listener);
	if (listener->lock_fd < 0)
		return;
	if (listener->bound)
		unlink(listener->path);
	lock_path(listener->path, lock, sizeof lock);
	unlink(lock); /* while it is held: nobody can have taken this file in between */
	close(listener->lock_fd);
	listener->lock_fd = -1;
}
