/* Submitting: one slot filled and published; no system call, no allocation. */
#include <errno.h>
#include <string.h>

#include "libclient/client.h"

/* Where the parts of a request's first word lie. */
enum { OP_SHIFT = 32, PRIORITY_SHIFT = 48 };

/* A request is the slot that it becomes, but for the words of the sequence and of the id. */
#define SAME_PLACE(request_field, slot_field)                            \
	_Static_assert(offsetof(struct tr_request, request_field) ==     \
			   offsetof(struct wire_submission, slot_field), \
		       "publish copies words")
SAME_PLACE(op, op);
SAME_PLACE(n_tokens, n_tok);
SAME_PLACE(priority, flags);
SAME_PLACE(profile, profile);
SAME_PLACE(extra, id);
SAME_PLACE(deadline_ns, deadline_ns);
SAME_PLACE(reserved, block);
SAME_PLACE(model, model);
SAME_PLACE(max_new, max_new);
SAME_PLACE(tokens, tok);
_Static_assert(sizeof(struct tr_request) == WIRE_SLOT_BYTES, "publish copies words");

static inline uint64_t word_of(const void *from, int i)
{
	uint64_t word;

	memcpy(&word, (const char *)from + 8 * i, sizeof word);
	return word;
}

/* Size and operation counted from zero, and the priority: what is valid has no bit outside its field. */
static inline uint64_t head_faults(uint64_t head)
{
	const uint64_t forbidden = UINT32_MAX | UINT64_C(0xfc) << OP_SHIFT | UINT64_C(0xf8) << PRIORITY_SHIFT;

	return (head - sizeof(struct tr_request) - ((uint64_t)TR_GENERATE << OP_SHIFT)) & forbidden;
}

_Static_assert(TR_GENERATE == 1 && TR_ECHO == 4, "head_faults tests these bounds");

/* Names the next request: a table entry that is in use from here on, and a rising count. */
static inline uint64_t take_entry(struct tr_client *client)
{
	uint64_t *table = client->table, entry = table[--client->gate.n_free];

	return table[entry] = (client->id_base += ID_STEP) + entry;
}

/* There is a free table entry, and so a free slot; the request has no extra. */
static inline void publish(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id)
{
	const uint32_t *mask = client->token_masks[request->n_tokens];
	uint64_t head = word_of(request, 0), id = *ret_id = take_entry(client);
	uint32_t seq;
	struct wire_slot *slot = ring_begin(&client->submissions, &seq);

	store_relaxed_u64(&slot->word[1], id);
	store_relaxed_u64(&slot->word[2], word_of(request, 2));
	store_relaxed_u64(&slot->word[3], word_of(request, 3));
	store_relaxed_u64(&slot->word[4], word_of(request, 4) & word_of(mask, 0));
	store_relaxed_u64(&slot->word[5], word_of(request, 5) & word_of(mask, 1));
	store_relaxed_u64(&slot->word[6], word_of(request, 6) & word_of(mask, 2));
	store_relaxed_u64(&slot->word[7], word_of(request, 7) & word_of(mask, 3));
	ring_commit(slot, head + seq - sizeof(struct tr_request));
}

/* Publishes a request whose extras go into a block; the slot's own tokens, profile and max_new are zero. */
static int submit_block(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id)
{
	struct flight *flight =
	    &client->flights[client->table[client->gate.n_free - 1] - client->layout.max_inflight];
	struct tr_request rest = *request;
	int error = block_build(client, request, flight);

	if (error < 0)
		return error;
	rest.n_tokens = rest.profile = 0;
	rest.max_new = 0;
	rest.reserved = (uint32_t)(client->layout.arena_off / ARENA_UNIT_BYTES) + flight->block - 1;
	publish(client, &rest, ret_id);
	return 0;
}

/* The daemon sleeps: one system call. A dead peer is reported by the next poll, for the request is in the
 * ring. */
static __attribute__((noinline, cold)) int submit_wake(struct tr_client *client)
{
	if (wake_look(&client->waker) < 0)
		client_hung_up(client);
	return 0;
}

/* All that keeps a request off the short path: a closed gate, another version of the struct, extras, a full
 * table. */
static __attribute__((noinline)) int submit_long(struct tr_client *client, const struct tr_request *request,
						 uint64_t *ret_id)
{
	struct tr_request known;

	if (!client_open(client))
		return client_closed(client);
	if (copy_versioned(&known, sizeof known, request, sizeof known) < 0)
		return -EINVAL;
	known.size = sizeof known;
	if (head_faults(word_of(&known, 0)) || known.n_tokens > TR_INLINE_TOKENS || known.reserved)
		return -EINVAL;
	if (client->gate.n_free == 0)
		return -EAGAIN;
	if (known.extra)
		return submit_block(client, &known, ret_id);
	publish(client, &known, ret_id);
	return 0;
}

/* Whether nothing but publishing is left to do. Every version of the struct has the bytes that are read here.
 */
static inline bool is_short(const struct tr_client *client, const struct tr_request *request)
{
	uint64_t faults = head_faults(word_of(request, 0)) | word_of(request, 1) | request->reserved;

	return __builtin_expect(!faults && request->n_tokens <= TR_INLINE_TOKENS && client->gate.n_free != 0,
				1);
}

static inline int submit(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id)
{
	if (!is_short(client, request))
		return submit_long(client, request, ret_id);
	publish(client, request, ret_id);
	return 0;
}

static __attribute__((noinline)) int submit_long_and_wake(struct tr_client *client,
							  const struct tr_request *request, uint64_t *ret_id)
{
	int error = submit_long(client, request, ret_id);

	return error == 0 && wake_wanted(&client->waker) ? submit_wake(client) : error;
}

int tr_submit(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id)
{
	if (!is_short(client, request))
		return submit_long_and_wake(client, request, ret_id);
	publish(client, request, ret_id);
	/* [C3] Without a fence: the next empty poll fences and looks again. */
	return __builtin_expect(waker_sees_sleep(&client->waker), 0) ? submit_wake(client) : 0;
}

int tr_submit_many(struct tr_client *client, const struct tr_request *requests, unsigned n, uint64_t *ret_ids)
{
	const unsigned char *request = (const unsigned char *)requests;
	unsigned done;
	int error = 0;

	if (!client_open(client))
		return client_closed(client);
	if (n > INT32_MAX)
		n = INT32_MAX;
	for (done = 0; done < n; done++, request += requests->size) {
		const struct tr_request *next = (const struct tr_request *)request;

		error = next->size == requests->size ? submit(client, next, &ret_ids[done]) : -EINVAL;
		if (error < 0)
			break;
	}
	if (done && wake_wanted(&client->waker))
		submit_wake(client);
	return done ? (int)done : error;
}

/* How many slots no table entry has. */
static uint32_t spare_slots(const struct tr_client *client)
{
	return client->layout.sq_slots - client->layout.max_inflight;
}

/* Each table entry has a slot of its own, free or not: cancels that are not copied must fit into the others.
 * What is free at the moment says nothing: an answer frees an entry whose slot was free before. */
static int find_room_to_cancel(struct tr_client *client)
{
	struct ring_writer *ring = &client->submissions;

	if (client->n_cancels < spare_slots(client))
		return 0;
	if (!ring_writer_refresh(ring)) /* [C1] */
		return client_die(client, -ECONNABORTED, WIRE_REASON_BAD_CONSUMED, false);
	while (client->n_cancels &&
	       (int64_t)(ring->limit - client->layout.sq_slots - client->cancels[client->first_cancel]) > 0) {
		client->first_cancel = (client->first_cancel + 1) % spare_slots(client);
		client->n_cancels--;
	}
	return client->n_cancels < spare_slots(client) ? 0 : -EAGAIN;
}

static void publish_cancel(struct tr_client *client, uint64_t id)
{
	struct wire_submission cancel = {.op = WIRE_OP_CANCEL};

	memcpy(cancel.tok, &id, sizeof id);
	client->cancels[(client->first_cancel + client->n_cancels++) % spare_slots(client)] =
	    client->submissions.index;
	ring_publish(&client->submissions, &cancel); /* [C15] */
}

int tr_cancel(struct tr_client *client, uint64_t id)
{
	uint32_t index = id & ID_INDEX;
	int error;

	if (!client_open(client))
		return client_closed(client);
	if (index >= client->layout.max_inflight || client->ids[index] != id)
		return 0;
	error = find_room_to_cancel(client);
	if (error < 0)
		return error;
	publish_cancel(client, id);
	if (wake_wanted(&client->waker))
		submit_wake(client);
	return 0;
}

int tr_flush(struct tr_client *client)
{
	if (!client_open(client))
		return client_closed(client);
	client_fences(client); /* [C16] */
	if (wake_fence(&client->waker) < 0)
		return client_hung_up(client);
	return 0;
}

int tr_session_fork(struct tr_client *client, uint32_t session, uint64_t *ret_id)
{
	return client_open(client) ? -EOPNOTSUPP : client_closed(client);
}
