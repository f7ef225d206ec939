/* One direction of a channel: slots that carry their own sequence word, one writer, one reader.
 *
 * Each end keeps a private 64-bit index i; the slot is i & mask. A slot of index i is published when the low
 * half of its word 0 equals (u32)(i + 1). `consumed` is read by the writer only when its ring seems full.
 * Thread rule: one thread an end. Wait-free, no system call, no allocation. The peer may write anything at
 * any time: the reader copies a line once and judges the copy; no index, count or pointer is taken from the
 * memory. */
#ifndef TOKENRING_SHM_RING_H
#define TOKENRING_SHM_RING_H

#include <string.h>

#include "shm/wire.h"

struct ring_writer {
	struct wire_slot *slots;
	const shared_u64 *consumed; /* written by the reader */
	uint64_t mask;
	uint64_t index; /* of the next slot to publish */
	uint64_t limit; /* slots below it are known to be free; grows only by ring_writer_refresh */
};

struct ring_reader {
	const struct wire_slot *slots;
	shared_u64 *consumed; /* written here */
	uint64_t mask;
	uint64_t index;     /* of the next slot to read */
	uint64_t published; /* the last value stored to `consumed` */
};

/* Makes every slot look unpublished for the first lap: slot of index i gets word 0 = (u32)(i + 1 - n). */
static inline void ring_preset(struct wire_slot *slots, uint32_t n, uint64_t first_index)
{
	/* [R1] */
	for (uint64_t i = first_index; i != first_index + n; i++)
		store_relaxed_u64(&slots[i & (n - 1)].word[0], (uint32_t)(i + 1 - n));
}

/* Takes the writer's next slot and its sequence number, and advances. Words 1 to 7 may be stored (relaxed)
 * before ring_commit. The caller has seen room: index != limit. */
static inline struct wire_slot *ring_begin(struct ring_writer *ring, uint32_t *ret_seq)
{
	uint64_t index = ring->index;

	ring->index = index + 1;
	*ret_seq = (uint32_t)index + 1;
	return &ring->slots[index & ring->mask];
}

/* Publishes the slot of ring_begin: its sequence number is the low half of word 0. */
static inline void ring_commit(struct wire_slot *slot, uint64_t word_0)
{
	/* [R3] Release: pairs with the acquire in ring_read; words 1 to 7 are visible to whoever sees this
	 * sequence. */
	store_release_u64(&slot->word[0], word_0);
}

/* Publishes one message (`message`: 64 bytes whose first four, the sequence, are ignored). Room as above. */
static inline void ring_publish(struct ring_writer *ring, const void *message)
{
	uint32_t seq;
	struct wire_slot *slot = ring_begin(ring, &seq);
	uint64_t words[8];

	memcpy(words, message, sizeof words);
	/* [R2] */
	store_relaxed_u64(&slot->word[1], words[1]);
	store_relaxed_u64(&slot->word[2], words[2]);
	store_relaxed_u64(&slot->word[3], words[3]);
	store_relaxed_u64(&slot->word[4], words[4]);
	store_relaxed_u64(&slot->word[5], words[5]);
	store_relaxed_u64(&slot->word[6], words[6]);
	store_relaxed_u64(&slot->word[7], words[7]);
	ring_commit(slot, (words[0] & ~(uint64_t)UINT32_MAX) | seq);
}

/* Copies the next message to `message` (64 bytes) and advances; false when none is published. Each word is
 * loaded once; the copy is what the caller may judge. */
static inline bool ring_read(struct ring_reader *ring, void *message)
{
	const struct wire_slot *slot = &ring->slots[ring->index & ring->mask];
	uint64_t words[8];

	/* [R4] Acquire: pairs with the release in ring_commit. */
	words[0] = load_acquire_u64(&slot->word[0]);
	if ((uint32_t)words[0] != (uint32_t)(ring->index + 1))
		return false;
	/* [R5] */
	words[1] = load_relaxed_u64(&slot->word[1]);
	words[2] = load_relaxed_u64(&slot->word[2]);
	words[3] = load_relaxed_u64(&slot->word[3]);
	words[4] = load_relaxed_u64(&slot->word[4]);
	words[5] = load_relaxed_u64(&slot->word[5]);
	words[6] = load_relaxed_u64(&slot->word[6]);
	words[7] = load_relaxed_u64(&slot->word[7]);
	memcpy(message, words, sizeof words);
	ring->index++;
	return true;
}

/* The next message where it lies, with its word 0; NULL: none. The peer may change the other words meanwhile:
 * whoever judges one loads it once (relaxed). ring_skip consumes it. */
static inline const struct wire_slot *ring_peek(const struct ring_reader *ring, uint64_t *ret_word_0)
{
	const struct wire_slot *slot = &ring->slots[ring->index & ring->mask];

	/* Acquire: pairs with the release in ring_commit. */
	*ret_word_0 = load_acquire_u64(&slot->word[0]);
	return (uint32_t)*ret_word_0 == (uint32_t)(ring->index + 1) ? slot : NULL;
}

static inline void ring_skip(struct ring_reader *ring)
{
	ring->index++;
}

/* Whether a message is waiting; does not consume it. */
static inline bool ring_ready(const struct ring_reader *ring)
{
	/* [R8] Acquire: as in ring_read. */
	return (uint32_t)load_acquire_u64(&ring->slots[ring->index & ring->mask].word[0]) ==
	       (uint32_t)(ring->index + 1);
}

/* Tells the writer that all slots below `index` are copied. Release: pairs with the acquire in
 * ring_writer_refresh, so that no slot is overwritten before its copy is complete. */
static inline void ring_reader_publish(struct ring_reader *ring)
{
	if (ring->published == ring->index)
		return;
	store_release_u64(ring->consumed, ring->index); /* [R6] */
	ring->published = ring->index;
}

/* Reads the peer's `consumed` once and, if it lies between what was known and what was produced, raises the
 * limit. False: the peer wrote an impossible value; nothing changes. */
static inline bool ring_writer_refresh(struct ring_writer *ring)
{
	/* [R7] Acquire: pairs with the release in ring_reader_publish. */
	uint64_t consumed = load_acquire_u64(ring->consumed);
	uint64_t last = ring->limit - (ring->mask + 1);

	if (consumed - last > ring->index - last)
		return false;
	ring->limit = consumed + ring->mask + 1;
	return true;
}

/* Slots that can be published without looking at the peer. */
static inline uint64_t ring_room(const struct ring_writer *ring)
{
	return ring->limit - ring->index;
}

#endif
