/* Submitting: one slot filled and published; no system call, no allocation. */
#include <errno.h>
#include <string.h>

#include "libclient/client.h"

enum { ID_STEP = 1 << 16, REQUEST_BYTES_LEAST = offsetof(struct tr_request, extra) };

/* A request's first eight bytes: size, operation, tokens, priority, profile. */
enum { OP_BYTE = 4, TOKENS_BYTE = 5, PROFILE_BYTE = 7 };
#define REQUEST_HEAD_BITS                                                                \
	(UINT64_C(0xff070f07) << 32) /* bits that a valid request may set above its size \
				      */

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

static inline bool is_valid(const uint64_t words[2])
{
	return (words[0] & ~REQUEST_HEAD_BITS) == sizeof(struct tr_request) &&
	       (words[0] >> 8 * OP_BYTE & 7) - TR_GENERATE <= TR_ECHO - TR_GENERATE &&
	       (words[0] >> 8 * TOKENS_BYTE & 0xff) <= TR_INLINE_TOKENS && words[1] >> 32 == 0;
}

/* Moves a request with extras into a block; what the block overrides is zero in the slot. */
static __attribute__((noinline)) int move_to_block(struct tr_client *client, const struct tr_request *request,
						   struct flight *flight, uint64_t words[2],
						   uint64_t *ret_block)
{
	int error = block_build(client, request, flight);

	if (error < 0)
		return error;
	words[0] &= ~(UINT64_C(0xff) << 8 * TOKENS_BYTE | UINT64_C(0xff) << 8 * PROFILE_BYTE);
	words[1] &= UINT16_MAX;
	*ret_block = client->layout.arena_off / ARENA_UNIT_BYTES + flight->block - 1;
	return 0;
}

/* The words of a request and of a slot are the same but for the id, the block and the order of the halves of
 * word 1; so they are moved as words. */
static inline int submit(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id)
{
	uint64_t words[sizeof(struct tr_request) / 8], message[8], block = 0;
	struct flight *flight;
	uint32_t index;
	int error;

	memcpy(words, request, sizeof words);
	if (__builtin_expect(!is_valid(words), 0))
		return -EINVAL;
	error = find_room(client);
	if (__builtin_expect(error < 0, 0))
		return error;
	if (__builtin_expect(client->n_free == 0, 0))
		return -EAGAIN;
	index = client->free_indices[client->n_free - 1];
	flight = &client->flights[index];
	flight->block = 0;
	if (__builtin_expect(request->extra != NULL, 0)) {
		error = move_to_block(client, request, flight, words, &block);
		if (error < 0)
			return error;
	}
	client->n_free--;
	client->last_id += ID_STEP;
	flight->id = client->last_id | index;
	message[0] = words[0];
	message[1] = flight->id;
	message[2] = words[2];
	message[3] = words[1] << 32 | block;
	for (int i = 0; i < 4; i++)
		message[4 + i] = words[3 + i] & token_masks[words[0] >> 8 * TOKENS_BYTE & 0xf][i];
	ring_publish(&client->submissions, message);
	client->fence_owed = true;
	*ret_id = flight->id;
	return 0;
}

/* A struct of another version than this library's, brought to this one's. */
static __attribute__((noinline, cold)) int
submit_other_size(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id)
{
	struct tr_request known;

	if (copy_versioned(&known, sizeof known, request, REQUEST_BYTES_LEAST) < 0)
		return -EINVAL;
	known.size = sizeof known;
	return submit(client, &known, ret_id);
}

/* The daemon sleeps: one system call. A dead peer is reported by the next poll, for the request is in the
 * ring. */
static __attribute__((noinline, cold)) void submit_wake(struct tr_client *client)
{
	if (wake_look(&client->waker) < 0)
		client_die(client, -ECONNRESET, WIRE_REASON_PEER_GONE, true);
}

int tr_submit(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id)
{
	int error;

	if (!client_open(client))
		return client_closed(client);
	if (__builtin_expect(request->size != sizeof *request, 0))
		error = submit_other_size(client, request, ret_id);
	else
		error = submit(client, request, ret_id);
	/* Without a fence: the next empty poll fences and looks again. */
	if (__builtin_expect(wake_wanted(&client->waker), 0))
		submit_wake(client);
	return error;
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

		if (next->size != requests->size)
			error = -EINVAL;
		else if (next->size == sizeof *next)
			error = submit(client, next, &ret_ids[done]);
		else
			error = submit_other_size(client, next, &ret_ids[done]);
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
		return client_die(client, -ECONNRESET, WIRE_REASON_PEER_GONE, true);
	return 0;
}

int tr_session_fork(struct tr_client *client, uint32_t session, uint64_t *ret_id)
{
	return client_open(client) ? -EOPNOTSUPP : client_closed(client);
}
