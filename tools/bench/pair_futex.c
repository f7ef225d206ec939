/* A message in shared memory and a futex wake after it; the reader sleeps in a futex wait. */
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/atomics.h"
#include "tools/bench/pair_loops.h"

struct box {
	_Alignas(128) shared_u32 sequence; /* the writer's */
	_Alignas(128) shared_u64 message[8];
};

static struct box *boxes, *out, *in;
static uint32_t sent, received;

static int prepare(void)
{
	boxes = pair_memory(2 * sizeof *boxes);
	return boxes ? 0 : -ENOMEM;
}

static int open_end(bool is_near)
{
	out = &boxes[!is_near];
	in = &boxes[is_near];
	return 0;
}

static int send_message(const void *message, bool block)
{
	uint64_t words[8];
	memcpy(words, message, sizeof words);
	for (int i = 0; i < 8; i++)
		store_relaxed_u64(&out->message[i], words[i]);
	/* Release: pairs with the acquire in receive_message. */
	store_release_u32(&out->sequence, ++sent);
	if (block)
		syscall(SYS_futex, &out->sequence, FUTEX_WAKE, 1, NULL, NULL, 0);
	return 1;
}

static int receive_message(void *message, bool block)
{
	uint64_t words[8];
	while (load_acquire_u32(&in->sequence) == received) {
		if (!block)
			return 0;
		syscall(SYS_futex, &in->sequence, FUTEX_WAIT, received, NULL, NULL, 0);
	}
	for (int i = 0; i < 8; i++)
		words[i] = load_relaxed_u64(&in->message[i]);
	memcpy(message, words, sizeof words);
	received++;
	return 1;
}

PAIR_LOOPS(futex, send_message, receive_message)

const struct pair_transport pair_futex = {"futex", prepare, open_end, futex_near, futex_far};
