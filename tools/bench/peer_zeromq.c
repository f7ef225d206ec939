/* ZeroMQ: two PAIR sockets over ipc, 64 bytes a message. Its I/O threads keep the CPUs that the process may
 * use: they are made before an end is pinned. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include <zmq.h>

#include "tools/bench/pair_loops.h"
#include "tools/bench/peer.h"

static char address[64];
static void *own;

static int prepare(void)
{
	snprintf(address, sizeof address, "ipc://@tokenring-bench-%d", (int)getpid());
	return 0;
}

static int open_end(bool is_near)
{
	void *context = zmq_ctx_new();
	own = context ? zmq_socket(context, ZMQ_PAIR) : NULL;
	if (!own)
		return -ENOMEM;
	return (is_near ? zmq_bind : zmq_connect)(own, address) ? -zmq_errno() : 0;
}

static int result_of(int n)
{
	if (n == PAIR_MESSAGE_BYTES)
		return 1;
	return n < 0 && (zmq_errno() == EAGAIN || zmq_errno() == EINTR) ? 0 : -EIO;
}

static int send_message(const void *message, bool block)
{
	return result_of(zmq_send(own, message, PAIR_MESSAGE_BYTES, block ? 0 : ZMQ_DONTWAIT));
}

static int receive_message(void *message, bool block)
{
	return result_of(zmq_recv(own, message, PAIR_MESSAGE_BYTES, block ? 0 : ZMQ_DONTWAIT));
}

PAIR_LOOPS(zeromq, send_message, receive_message)

const struct pair_transport pair_peer = {"zeromq", prepare, open_end, zeromq_near, zeromq_far};
