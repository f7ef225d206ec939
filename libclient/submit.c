/* Submitting: one slot filled and published; no system call, no allocation. */
#include <errno.h>
#include <string.h>

#include "libclient/client.h"

enum { ID_STEP = 1 << 16, REQUEST_BYTES_LEAST = offsetof(struct tr_request, extra) };

/* Where the parts of a request's first word lie. */
enum { OP_SHIFT = 32, TOKENS_SHIFT = 40, PRIORITY_SHIFT = 48, PROFILE_SHIFT = 56 };

/* n tokens kept, the rest zero: what lies behind them in the caller's memory stays there. */
static const uint64_t token_masks[TR_INLINE_TOKENS + 1][TR_INLINE_TOKENS / 2] = {
#define LOW  UINT64_C(0xffffffff)
#define BOTH UINT64_MAX
    {0, 0, 0, 0},          {LOW, 0, 0, 0},          {BOTH, 0, 0, 0},
    {BOTH, LOW, 0, 0},     {BOTH, BOTH, 0, 0},      {BOTH, BOTH, LOW, 0},
    {BOTH, BOTH, BOTH, 0}, {BOTH, BOTH, BOTH, LOW}, {BOTH, BOTH, BOTH, BOTH},
#undef LOW
#undef BOTH
};

/* Whether a slot is free. The daemon's `consumed` is read only when the ring seems full. */
static inline int find_room(struct tr_client *client)
{
	if (__builtin_expect(ring_room(&client->submissions) != 0, 1))
		return 0;
	if (!ring_writer_refresh(&client->submissions))
		return client_die(client, -ECONNABORTED, WIRE_REASON_BAD_CONSUMED, false);
	return ring_room(&client->submissions) ? 0 : -EAGAIN;
}

static inline uint64_t word_of(const struct tr_request *request, int i)
{
	uint64_t word;

	memcpy(&word, (const char *)request + 8 * i, sizeof word);
	return word;
}

/* The first word with size and operation counted from zero: what is valid has no bit outside its field. */
static inline uint64_t normalised(uint64_t word)
{
	return word - sizeof(struct tr_request) - ((uint64_t)TR_GENERATE << OP_SHIFT);
}

/* Size, operation, count of tokens and priority in one test. Adding 7 lifts 9 to 15 tokens out of the field,
 * too. */
static inline bool is_head_valid(uint64_t word)
{
	const uint64_t forbidden = UINT32_MAX | UINT64_C(0xfc) << OP_SHIFT | UINT64_C(0xf0) << TOKENS_SHIFT |
				   UINT64_C(0xf8) << PRIORITY_SHIFT;
	uint64_t head = normalised(word);

	return ((head | (head + (UINT64_C(7) << TOKENS_SHIFT))) & forbidden) == 0;
}

_Static_assert(TR_GENERATE == 1 && TR_ECHO == 4 && TR_INLINE_TOKENS == 8, "is_head_valid tests these bounds");

/* The words of a request and of a slot are the same but for the id, the block and the order of the halves of
 * word 1. `block`: 0, or the block that replaces tokens, profile and max_new. There is room and a free index.
 */
static inline void publish(struct tr_client *client, const struct tr_request *request, uint64_t head,
			   uint64_t block, uint64_t *ret_id)
{
	struct wire_slot *slot = ring_begin(&client->submissions);
	const uint64_t *mask = token_masks[head >> TOKENS_SHIFT & 0xff];
	uint32_t index = client->free_indices[--client->n_free];
	uint64_t id = (client->last_id += ID_STEP) | index;

	client->flights[index].id = *ret_id = id;
	store_relaxed_u64(&slot->word[1], id);
	store_relaxed_u64(&slot->word[2], word_of(request, 2));
	store_relaxed_u64(&slot->word[3], word_of(request, 1) << 32 | block);
	store_relaxed_u64(&slot->word[4], word_of(request, 3) & mask[0]);
	store_relaxed_u64(&slot->word[5], word_of(request, 4) & mask[1]);
	store_relaxed_u64(&slot->word[6], word_of(request, 5) & mask[2]);
	store_relaxed_u64(&slot->word[7], word_of(request, 6) & mask[3]);
	ring_commit(&client->submissions, slot, head - sizeof(struct tr_request));
	client->fence_owed = true;
}

/* Publishes a request whose extras go into a block; the slot's own tokens, profile and max_new are zero. */
static int submit_block(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id)
{
	struct flight *flight = &client->flights[client->free_indices[client->n_free - 1]];
	struct tr_request rest = *request;
	int error = block_build(client, request, flight);

	if (error < 0)
		return error;
	rest.n_tokens = rest.profile = 0;
	rest.max_new = 0;
	publish(client, &rest, word_of(&rest, 0),
		client->layout.arena_off / ARENA_UNIT_BYTES + flight->block - 1, ret_id);
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

/* All that keeps a request off the short path: another version of the struct, extras, a ring that seems full.
 */
static __attribute__((noinline)) int submit_long(struct tr_client *client, const struct tr_request *request,
						 uint64_t *ret_id)
{
	struct tr_request known;
	int error;

	if (copy_versioned(&known, sizeof known, request, REQUEST_BYTES_LEAST) < 0)
		return -EINVAL;
	known.size = sizeof known;
	if (!is_head_valid(word_of(&known, 0)) || known.reserved)
		return -EINVAL;
	error = find_room(client);
	if (error < 0)
		return error;
	if (client->n_free == 0)
		return -EAGAIN;
	if (known.extra)
		return submit_block(client, &known, ret_id);
	publish(client, &known, word_of(&known, 0), 0, ret_id);
	return 0;
}

/* Whether nothing but publishing is left to do. The size is tested before anything behind it is read. */
static inline bool is_short(const struct tr_client *client, const struct tr_request *request)
{
	return __builtin_expect(is_head_valid(word_of(request, 0)) && !request->reserved && !request->extra &&
				    ring_room(&client->submissions) != 0 && client->n_free != 0,
				1);
}

static __attribute__((noinline)) int submit_long_and_wake(struct tr_client *client,
							  const struct tr_request *request, uint64_t *ret_id)
{
	int error = submit_long(client, request, ret_id);

	return error == 0 && wake_wanted(&client->waker) ? submit_wake(client) : error;
}

int tr_submit(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id)
{
	if (!client_open(client))
		return client_closed(client);
	if (!is_short(client, request))
		return submit_long_and_wake(client, request, ret_id);
	publish(client, request, word_of(request, 0), 0, ret_id);
	/* Without a fence: the next empty poll fences and looks again. */
	return __builtin_expect(wake_wanted(&client->waker), 0) ? submit_wake(client) : 0;
}

static int submit(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id)
{
	if (!is_short(client, request))
		return submit_long(client, request, ret_id);
	publish(client, request, word_of(request, 0), 0, ret_id);
	return 0;
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

int tr_cancel(struct tr_client *client, uint64_t id)
{
	struct wire_submission cancel = {.op = WIRE_OP_CANCEL};
	uint32_t index = id & (ID_STEP - 1);
	int error;

	if (!client_open(client))
		return client_closed(client);
	if (id == 0 || index >= client->layout.max_inflight || client->flights[index].id != id)
		return 0;
	error = find_room(client);
	if (error < 0)
		return error;
	memcpy(cancel.tok, &id, sizeof id);
	ring_publish(&client->submissions, &cancel);
	client->fence_owed = true;
	if (wake_wanted(&client->waker))
		submit_wake(client);
	return 0;
}

int tr_flush(struct tr_client *client)
{
	if (!client_open(client))
		return client_closed(client);
	client->fence_owed = false;
	if (wake_fence(&client->waker) < 0)
		return client_hung_up(client);
	return 0;
}

int tr_session_fork(struct tr_client *client, uint32_t session, uint64_t *ret_id)
{
	return client_open(client) ? -EOPNOTSUPP : client_closed(client);
}
