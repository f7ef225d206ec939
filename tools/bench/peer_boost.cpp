/* boost::interprocess::message_queue: a queue each way in shared memory, with a mutex and conditions. */
#include <boost/interprocess/ipc/message_queue.hpp>
#include <string>
#include <unistd.h>

#include "tools/bench/pair_loops.h"
#include "tools/bench/peer.h"

using boost::interprocess::message_queue;

static message_queue *queues[2], *out, *in;

static int prepare(void)
{
	enum { MESSAGES = 64 };
	try {
		for (int i = 0; i < 2; i++) {
			const std::string name =
			    "tokenring-bench-" + std::to_string(getpid()) + "-" + std::to_string(i);
			queues[i] = new message_queue(boost::interprocess::create_only, name.c_str(),
						      MESSAGES, PAIR_MESSAGE_BYTES);
			/* The mapping stays with this process and those that it forks. */
			message_queue::remove(name.c_str());
		}
	} catch (...) {
		return -ENOMEM;
	}
	return 0;
}

static int open_end(bool is_near)
{
	out = queues[is_near];
	in = queues[!is_near];
	return 0;
}

static int send_message(const void *message, bool block)
{
	if (!block)
		return out->try_send(message, PAIR_MESSAGE_BYTES, 0);
	out->send(message, PAIR_MESSAGE_BYTES, 0);
	return 1;
}

static int receive_message(void *message, bool block)
{
	message_queue::size_type bytes;
	unsigned priority;
	if (!block)
		return in->try_receive(message, PAIR_MESSAGE_BYTES, bytes, priority);
	in->receive(message, PAIR_MESSAGE_BYTES, bytes, priority);
	return 1;
}

PAIR_LOOPS(boost, send_message, receive_message)

const struct pair_transport pair_peer = {"boost", prepare, open_end, boost_near, boost_far};
