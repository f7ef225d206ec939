/* The listening socket: one daemon a path, and no socket left by a dead one in the way.
 *
 * A lock file beside the socket (PATH.lock) is held while the daemon lives; the kernel drops the lock when it
 * dies, however it dies. Who holds the lock may replace the socket.
 * Thread rule: one thread at a time. Blocks on the file system only. */
#ifndef TOKENRING_DAEMON_CONTROL_LISTENER_H
#define TOKENRING_DAEMON_CONTROL_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/un.h>

struct listener {
	int fd, lock_fd;
	bool bound;               /* the socket at the path is ours to remove */
	bool descriptors_refused; /* SO_PASSRIGHTS = 0: the kernel lets no client pass descriptors */
	char path[sizeof((struct sockaddr_un *)0)->sun_path];
};

/* Locks, binds with `mode` and listens (SOCK_SEQPACKET, non-blocking). The last folder of the path is made if
 * it is missing. -EADDRINUSE: another daemon serves the path; -ENAMETOOLONG; -ENOTSOCK: something else lies
 * there; errors of the kernel; each with a sentence in `why`. */
int listener_open(struct listener *ret, const char *path, mode_t mode, bool allow_descriptors, char *why,
		  size_t why_bytes);

/* Accepts nobody any more; the path stays taken. */
void listener_deafen(struct listener *listener);

/* Removes socket and lock file. Safe on a zeroed or closed listener whose descriptors are -1. */
void listener_close(struct listener *listener);

#endif
