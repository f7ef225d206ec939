/* What one user may take of what all share: places in the queue, memory for blocks. */
#include "daemon/engine/front_internal.h"

enum { RETRY_LEAST_NS = 1000000 };

/* When a place may come free: one request's end away, on average. */
static uint64_t retry_ns(const struct front *front)
{
	return front->finish_gap_ns > RETRY_LEAST_NS ? front->finish_gap_ns : RETRY_LEAST_NS;
}

bool refuse_for_now(const struct front *front, uint32_t reason, uint64_t asked, uint64_t limit,
		    struct refusal *ret_refusal)
{
	refuse(ret_refusal, reason, asked, limit);
	ret_refusal->retry_ns = retry_ns(front);
	return false;
}

bool share_of_queue(const struct front *front, const struct account *account, struct refusal *ret_refusal)
{
	uint32_t most = load_relaxed_u32(&front->queue_per_uid);

	return account->n_requests < most ||
	       refuse_for_now(front, WIRE_REASON_USER_QUEUE, account->n_requests + 1, most, ret_refusal);
}

/* Of the memory for blocks each gets the share that it has of the queue, one block at least. */
static uint64_t most_block_bytes(const struct front *front, uint32_t queue_share)
{
	uint64_t most = front->config.block_bytes / front->link->n_requests * queue_share;

	return most > WIRE_BLOCK_BYTES_MAX ? most : WIRE_BLOCK_BYTES_MAX;
}

bool share_of_blocks(const struct front *front, const struct account *account, uint32_t bytes,
		     struct refusal *ret_refusal)
{
	uint64_t most = most_block_bytes(front, load_relaxed_u32(&front->queue_per_uid));

	return account->block_bytes + bytes <= most ||
	       refuse_for_now(front, WIRE_REASON_USER_BLOCKS, account->block_bytes + bytes, most,
			      ret_refusal);
}

/* A block that is refused counts until its request is released, as its memory does. */
bool share_of_tenant(struct front *front, uint32_t request, struct refusal *ret_refusal)
{
	const struct request *asked = front_request(front, request);
	struct pending *pending = &front->pending[request];
	uint32_t most = load_relaxed_u32(&front->queue_per_tenant);
	uint64_t most_bytes = most_block_bytes(front, most);
	struct tenant *tenant;

	if (asked->tenant == asked->uid)
		return true;
	pending->tenant = tenants_join(&front->tenants, asked->uid, asked->tenant, most);
	if (pending->tenant == NOWHERE)
		return refuse_for_now(front, WIRE_REASON_TENANT_QUEUE, (uint64_t)most + 1, most, ret_refusal);
	tenant = &front->tenants.items[pending->tenant];
	tenant->block_bytes += pending->block_bytes;
	return tenant->block_bytes <= most_bytes ||
	       refuse_for_now(front, WIRE_REASON_TENANT_BLOCKS, tenant->block_bytes, most_bytes, ret_refusal);
}
