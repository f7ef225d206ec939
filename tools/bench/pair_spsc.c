/* The ring that most people write: one writer, one reader, a head and a tail index on lines of their own,
 * each end with a copy of the other's index, 64-byte messages in an array. */
#include <errno.h>

#include "shm/atomics.h"
#include "tools/bench/pair_loops.h"

enum { SLOTS = 1024 };

struct spsc {
	_Alignas(128) shared_u64 head; /* the reader's */
	uint64_t known_tail;
	_Alignas(128) shared_u64 tail; /* the writer's */
	uint64_t known_head;
	_Alignas(128) shared_u64 message[SLOTS][8];
};

static struct spsc *rings, *out, *in;

static int prepare(void)
{
	rings = pair_memory(2 * sizeof *rings);
	return rings ? 0 : -ENOMEM;
}

static int open_end(bool is_near)
{
	out = is_near ? &rings[0] : &rings[1];
	in = is_near ? &rings[1] : &rings[0];
	return 0;
}

static int send_message(const void *message, bool block)
{
	const uint64_t *words = message; /* one by one: a copy in between would wait for its own stores */
	uint64_t tail = load_relaxed_u64(&out->tail);
	if (tail - out->known_head >= SLOTS) {
		/* Acquire: pairs with the release in receive_message; the slot's copy is complete. */
		out->known_head = load_acquire_u64(&out->head);
		if (tail - out->known_head >= SLOTS)
			return 0;
	}
	for (int i = 0; i < 8; i++)
		store_relaxed_u64(&out->message[tail % SLOTS][i], words[i]);
	/* Release: pairs with the acquire in receive_message; the message is complete. */
	store_release_u64(&out->tail, tail + 1);
	return 1;
}

static int receive_message(void *message, bool block)
{
	uint64_t *words = message;
	uint64_t head = load_relaxed_u64(&in->head);
	if (head == in->known_tail) {
		in->known_tail = load_acquire_u64(&in->tail);
		if (head == in->known_tail)
			return 0;
	}
	for (int i = 0; i < 8; i++)
		words[i] = load_relaxed_u64(&in->message[head % SLOTS][i]);
	store_release_u64(&in->head, head + 1);
	return 1;
}

PAIR_LOOPS(spsc, send_message, receive_message)

const struct pair_transport pair_spsc = {"spsc", prepare, open_end, spsc_near, spsc_far};
