/* Reads one message of a client's socket without ever blocking, whatever was sent with it.
 *
 * A passed descriptor that nobody takes is closed by the kernel during the receive, and closing some (a TCP
 * socket that lingers) takes seconds. From Linux 6.16 SO_PASSRIGHTS = 0 on the listener refuses them at the
 * sender; before, the reader looks first and leaves the message where it is. */
#ifndef TOKENRING_DAEMON_ENGINE_RECEIVE_H
#define TOKENRING_DAEMON_ENGINE_RECEIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The message's length (more than `bytes` if it was cut), 0: hang-up, -EAGAIN: nothing there, -EBADMSG: it
 * carries a descriptor (only with peek_first); else -ECONNRESET. Any thread. */
ssize_t receive_message(int fd, void *buffer, size_t bytes, bool peek_first);

#endif
