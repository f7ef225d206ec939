/* A bounded queue between two threads of one process: one writer, one reader, elements of a fixed size.
 *
 * Thread rule: one thread an end; wait-free; no allocation after queue_init. Trusts both ends: for a hostile
 * peer there is ring.h. */
#ifndef TOKENRING_SHM_QUEUE_H
#define TOKENRING_SHM_QUEUE_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shm/atomics.h"
#include "shm/resident.h"

struct queue {
	uint8_t *elements; /* (mask + 1, element_bytes) */
	uint32_t element_bytes, mask;
	_Alignas(64) shared_u32 head; /* writer */
	_Alignas(64) shared_u32 tail; /* reader */
};

/* `slots` is a power of two. -ENOMEM. The queue's memory is the caller's until queue_free. */
static inline int queue_init(struct queue *queue, uint32_t slots, uint32_t element_bytes)
{
	queue->elements = resident_calloc(slots, element_bytes);
	if (!queue->elements)
		return -ENOMEM;
	queue->element_bytes = element_bytes;
	queue->mask = slots - 1;
	store_relaxed_u32(&queue->head, 0);
	store_relaxed_u32(&queue->tail, 0);
	return 0;
}

static inline void queue_free(struct queue *queue)
{
	free(queue->elements);
	queue->elements = NULL;
}

/* False: full. */
static inline bool queue_push(struct queue *queue, const void *element)
{
	uint32_t head = load_relaxed_u32(&queue->head);

	/* Acquire: pairs with the release in queue_pop; the slot's old content has been copied out. */
	if (head - load_acquire_u32(&queue->tail) > queue->mask)
		return false;
	memcpy(queue->elements + (size_t)(head & queue->mask) * queue->element_bytes, element,
	       queue->element_bytes);
	/* Release: pairs with the acquire in queue_pop; the element is visible before its index. */
	store_release_u32(&queue->head, head + 1);
	return true;
}

/* False: empty. */
static inline bool queue_pop(struct queue *queue, void *ret_element)
{
	uint32_t tail = load_relaxed_u32(&queue->tail);

	if (tail == load_acquire_u32(&queue->head))
		return false;
	memcpy(ret_element, queue->elements + (size_t)(tail & queue->mask) * queue->element_bytes,
	       queue->element_bytes);
	store_release_u32(&queue->tail, tail + 1);
	return true;
}

/* For the writer: whether a push would fail. */
static inline bool queue_full(const struct queue *queue)
{
	return load_relaxed_u32(&queue->head) - load_acquire_u32(&queue->tail) > queue->mask;
}

/* For the reader. */
static inline bool queue_empty(const struct queue *queue)
{
	return load_relaxed_u32(&queue->tail) == load_acquire_u32(&queue->head);
}

#endif
