#include "shm/wake.h"

#include <errno.h>
#include <sys/socket.h>

int wake_look(struct waker *waker)
{
	uint32_t value = load_relaxed_u32(waker->word); /* [W4] */
	char byte = 0;

	if (!(value & 1) || value == waker->woken)
		return 0;
	/* [W5] */
	if (send(waker->fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		/* [W7] A full queue wakes as well as one byte more; noting any other failure as "woken" would
		 * lose the wake-up. */
		if (errno == ENOBUFS || errno == ENOMEM || errno == EINTR)
			return 0;
		if (errno != EAGAIN)
			return -ECONNRESET; /* [X1] */
	}
	waker->woken = value; /* [W6] */
	return 1;
}
