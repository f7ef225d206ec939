/* A bare pair of the channel's own rings (shm/ring.h), without a daemon, a client library, a check or a table
 * around them; and the same with 16 KiB of payload beside each message. */
#include <errno.h>
#include <string.h>

#include "shm/ring.h"
#include "tools/bench/pair_loops.h"

enum {
	SQ_SLOTS = 256,
	CQ_SLOTS = 1024,
	PAYLOAD_BYTES = 4096 * 4, /* of 4,096 tokens */
	PAYLOADS = 4,
};

struct memory {
	_Alignas(128) shared_u64 sq_consumed;
	_Alignas(128) shared_u64 cq_consumed;
	_Alignas(128) struct wire_slot sq[SQ_SLOTS];
	struct wire_slot cq[CQ_SLOTS];
	unsigned char payload[PAYLOADS][PAYLOAD_BYTES];
};

static struct memory *shared;
static struct ring_writer writer;
static struct ring_reader reader;
static unsigned char own[PAYLOAD_BYTES];
static uint64_t n_payloads;
static bool is_far;

static int prepare(void)
{
	shared = pair_memory(sizeof *shared);
	if (!shared)
		return -ENOMEM;
	ring_preset(shared->sq, SQ_SLOTS, 0);
	ring_preset(shared->cq, CQ_SLOTS, 0);
	return 0;
}

static int open_end(bool is_near)
{
	struct wire_slot *out = is_near ? shared->sq : shared->cq, *in = is_near ? shared->cq : shared->sq;
	uint64_t n_out = is_near ? SQ_SLOTS : CQ_SLOTS, n_in = is_near ? CQ_SLOTS : SQ_SLOTS;
	is_far = !is_near;
	writer = (struct ring_writer){.slots = out,
				      .consumed = is_near ? &shared->sq_consumed : &shared->cq_consumed,
				      .mask = n_out - 1,
				      .limit = n_out};
	reader = (struct ring_reader){
	    .slots = in, .consumed = is_near ? &shared->cq_consumed : &shared->sq_consumed, .mask = n_in - 1};
	return 0;
}

static int send_message(const void *message, bool block)
{
	/* The sequence takes the first four bytes of a slot: the message's number travels in its second word.
	 */
	uint64_t words[8];
	if (!ring_room(&writer) && (!ring_writer_refresh(&writer) || !ring_room(&writer)))
		return 0;
	memcpy(words, message, sizeof words);
	words[7] = words[0];
	ring_publish(&writer, words);
	return 1;
}

static int receive_message(void *message, bool block)
{
	uint64_t words[8];
	if (!ring_read(&reader, words))
		return 0;
	if (reader.index - reader.published > reader.mask / 4)
		ring_reader_publish(&reader);
	words[0] = words[7];
	memcpy(message, words, sizeof words);
	return 1;
}

static int send_payload(const void *message, bool block)
{
	if (!is_far)
		memcpy(shared->payload[n_payloads++ % PAYLOADS], own, sizeof own);
	return send_message(message, block);
}

static int receive_payload(void *message, bool block)
{
	if (!receive_message(message, block))
		return 0;
	if (is_far)
		memcpy(own, shared->payload[n_payloads++ % PAYLOADS], sizeof own);
	return 1;
}

PAIR_LOOPS(blocks, send_payload, receive_payload)

/* ---- a window of messages: word for word from registers, so that nothing but the rings is timed ---- */

/* A reader on the heels of its writer wants each line while it is being written; one that stays a little
 * behind finds many lines complete. */
static void fall_behind(const struct pair_order *order)
{
	enum { PAUSES = 8 };
	for (int i = 0; order->mode == PAIR_BATCH && i < PAUSES; i++)
		__builtin_ia32_pause();
}

static void send_number(uint64_t number)
{
	uint32_t sequence;
	struct wire_slot *slot = ring_begin(&writer, &sequence);
	store_relaxed_u64(&slot->word[1], number);
	for (int i = 2; i < 8; i++)
		store_relaxed_u64(&slot->word[i], ~number);
	ring_commit(slot, sequence);
}

static void tell_consumed(void)
{
	if (reader.index - reader.published > reader.mask / 4)
		ring_reader_publish(&reader);
}

/* 1, 0 if there is none, or -EBADMSG. */
static int receive_number(uint64_t number)
{
	const struct wire_slot *slot = &reader.slots[reader.index & reader.mask];
	uint64_t wrong = 0;
	/* Acquire: pairs with the release in ring_commit of reflect_one. */
	if ((uint32_t)load_acquire_u64(&slot->word[0]) != (uint32_t)(reader.index + 1))
		return 0;
	wrong |= load_relaxed_u64(&slot->word[1]) ^ number;
	for (int i = 2; i < 8; i++)
		wrong |= load_relaxed_u64(&slot->word[i]) ^ ~number;
	reader.index++;
	tell_consumed();
	return wrong ? -EBADMSG : 1;
}

static bool reflect_one(void)
{
	const struct wire_slot *from = &reader.slots[reader.index & reader.mask];
	/* Acquire: pairs with the release in ring_commit of send_number. */
	if ((uint32_t)load_acquire_u64(&from->word[0]) != (uint32_t)(reader.index + 1))
		return false;
	uint32_t sequence;
	struct wire_slot *to = ring_begin(&writer, &sequence);
	for (int i = 1; i < 8; i++)
		store_relaxed_u64(&to->word[i], load_relaxed_u64(&from->word[i]));
	reader.index++;
	ring_commit(to, sequence);
	tell_consumed();
	return true;
}

static bool has_room(void)
{
	return ring_room(&writer) || (ring_writer_refresh(&writer) && ring_room(&writer));
}

/* The first message waits for the other end to wake up. */
static int slots_near(const struct pair_order *order, struct floor_trips *ret)
{
	uint64_t sent = 0, got = 0, begun = 0;
	int r = 0;
	while (r >= 0 && got <= order->n) {
		uint64_t most = got ? order->window : 1;
		if (order->mode != PAIR_BATCH || 2 * (sent - got) <= most)
			while (sent <= order->n && sent - got < most && has_room())
				send_number(sent++);
		while (got < sent && (r = receive_number(got)) == 1)
			if (!got++)
				begun = floor_ticks();
		fall_behind(order);
	}
	ret->ticks = floor_ticks() - begun;
	return r < 0 ? r : 0;
}

static int slots_far(const struct pair_order *order)
{
	for (uint32_t done = 0; done <= order->n;) {
		if (has_room() && reflect_one())
			done++;
		else
			fall_behind(order);
	}
	return 0;
}

const struct pair_transport pair_slots = {"slots", prepare, open_end, slots_near, slots_far};
const struct pair_transport pair_blocks = {"blocks", prepare, open_end, blocks_near, blocks_far};
