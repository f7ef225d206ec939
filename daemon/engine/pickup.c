/* Submissions: from the ring to a private copy, judged, answered at once or handed to the engine.
 *
 * Everything here is about bytes that a hostile process may change at any moment: each is read once. */
#include "daemon/engine/echo.h"

static const struct engine_limits *limits_if_ready(const struct front *front)
{
	const struct engine_limits *limits = &front->link->limits;

	/* Acquire: pairs with the engine's release; the other limits are visible with READY. */
	return load_acquire_u32(&limits->state) == WIRE_MODEL_READY ? limits : NULL;
}

/* What holds for every operation and needs the channel or the clock. */
static bool admit_now(struct front *front, struct channel *channel, const struct wire_submission *slot,
		      const struct profile **ret_profile, struct refusal *ret_refusal)
{
	if (slot->profile == 0)
		*ret_profile = &profile_greedy;
	/* Acquire: pairs with the control thread's release; the profile is written before it is counted. */
	else if (slot->profile <= load_acquire_u32(&channel->n_profiles))
		*ret_profile = channel->profiles[slot->profile];
	else
		return refuse(ret_refusal, WIRE_REASON_BAD_PROFILE, slot->profile,
			      load_relaxed_u32(&channel->n_profiles));
	if (front->draining)
		return refuse(ret_refusal, drain_reason(front), 0, 0);
	if (slot->deadline_ns && slot->deadline_ns <= front_now(front))
		return refuse(ret_refusal, WIRE_REASON_DEADLINE, 0, 0);
	return true;
}

static bool take_echo(struct front *front, struct channel *channel, const struct wire_submission *slot,
		      struct refusal *ret_refusal)
{
	const struct engine_limits *limits = limits_if_ready(front);
	struct wire_completion answer = {.kind = WIRE_KIND_ECHO, .n_tok = slot->n_tok, .id = slot->id};

	if (limits && !admit_tokens(slot->tok, slot->n_tok, limits->vocab, ret_refusal))
		return false;
	memcpy(answer.tok, slot->tok, sizeof answer.tok);
	deliver(front, channel, &answer);
	count(&front->counts.echoes, 1);
	return true;
}

/* ---- requests ---- */

static void refuse_request(struct front *front, uint32_t request, const struct refusal *refusal)
{
	struct channel *channel = front->pending[request].channel;
	uint64_t id = front_request(front, request)->client_id;
	uint32_t since = deliver_since(front, request);

	request_release(front, request);
	deliver_refusal(front, channel, id, since, refusal);
}

/* False: an engine that is far behind has not taken what was sent to it. */
static bool submit(struct front *front, uint32_t request)
{
	struct engine_command command = {.kind = COMMAND_SUBMIT, .request = request};

	if (!queue_push(&front->link->commands, &command))
		return false;
	front->pending[request].state = PENDING_RUNNING;
	front->commands_pushed = true;
	count(&front->counts.submitted, 1);
	return true;
}

/* The last step: by the model if it is there, else the request is held until it is. */
static void submit_or_hold(struct front *front, uint32_t request)
{
	struct pending *pending = &front->pending[request];
	const struct engine_limits *limits = &front->link->limits;
	struct refusal refusal = {0};

	switch (load_acquire_u32(&limits->state)) { /* as in limits_if_ready */
	case WIRE_MODEL_READY:
		if (!admit_model(front_request(front, request), limits, pending->may_shorten, &refusal))
			break;
		if (submit(front, request))
			return;
		refuse_for_now(front, WIRE_REASON_QUEUE_FULL, front->n_requests, front->link->n_requests,
			       &refusal);
		break;
	case WIRE_MODEL_LOADING:
		pending->state = PENDING_HELD;
		requests_add(front, &front->held, request);
		store_relaxed_u64(&front->counts.held, front->held.n);
		return;
	default:
		refuse(&refusal, WIRE_REASON_MODEL_FAILED, 0, 0);
	}
	refuse_request(front, request, &refusal);
}

static bool held_is_due(struct front *front, uint32_t request, struct refusal *ret_refusal)
{
	uint64_t deadline_ns = front_request(front, request)->deadline_ns;

	if (deadline_ns && deadline_ns <= front_now(front))
		return !refuse(ret_refusal, WIRE_REASON_DEADLINE, 0, 0);
	return false;
}

unsigned pickup_held(struct front *front)
{
	bool loading = load_acquire_u32(&front->link->limits.state) == WIRE_MODEL_LOADING;
	unsigned did = 0;

	for (uint32_t i = front->held.n; i-- > 0;) {
		uint32_t request = front->held.items[i];
		struct refusal refusal = {0};
		bool due = held_is_due(front, request, &refusal);

		if (loading && !due)
			continue;
		requests_remove(front, &front->held, request);
		if (due)
			refuse_request(front, request, &refusal);
		else
			submit_or_hold(front, request);
		did++;
	}
	store_relaxed_u64(&front->counts.held, front->held.n);
	return did;
}

/* ---- blocks ---- */

static struct block_context context_of(const struct channel *channel, uint8_t op)
{
	return (struct block_context){
	    .arena_off = channel->layout.arena_off,
	    .arena_bytes = channel->layout.arena_bytes,
	    .uid = channel->uid,
	    .may_name_tenants = channel->may_name_tenants,
	    .op = op,
	};
}

/* Reads the head, once, and checks what must hold before the rest is copied. */
static bool read_head(const struct front *front, const struct channel *channel,
		      const struct wire_submission *slot, struct wire_block *ret_head,
		      struct refusal *ret_refusal)
{
	const struct segment_layout *layout = &channel->layout;
	struct block_context context = context_of(channel, slot->op);
	uint64_t offset = (uint64_t)slot->block * WIRE_SLOT_BYTES;
	const struct engine_limits *limits = limits_if_ready(front);

	if (offset < layout->arena_off || offset + sizeof *ret_head > layout->arena_off + layout->arena_bytes)
		return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, slot->block,
			      layout->bytes / WIRE_SLOT_BYTES);
	memcpy(ret_head, channel->segment.base + offset, sizeof *ret_head);
	if (!block_head_check(ret_head, offset, &context, ret_refusal))
		return false;
	/* Blocks of an honest client do not overlap: together they are no larger than its arena. */
	if (channel->block_bytes + ret_head->bytes > layout->arena_bytes)
		return refuse(ret_refusal, WIRE_REASON_BAD_BLOCK, ret_head->bytes, layout->arena_bytes);
	if (limits && ret_head->n_tokens > limits->max_prompt)
		return refuse(ret_refusal, WIRE_REASON_PROMPT_TOO_LONG, ret_head->n_tokens,
			      limits->max_prompt);
	return true;
}

/* Where a request's block is or will be copied to. */
static unsigned char *private_block(struct front *front, uint32_t request)
{
	return front->block_memory + (uint64_t)front->pending[request].unit * BLOCK_UNIT_BYTES;
}

/* Private memory for the block, its head in place; the rest is copied by copy_some. */
static bool begin_copy(struct front *front, struct channel *channel, uint32_t request,
		       const struct wire_submission *slot, struct refusal *ret_refusal)
{
	struct pending *pending = &front->pending[request];
	struct wire_block head;

	if (!read_head(front, channel, slot, &head, ret_refusal) ||
	    !share_of_blocks(front, channel->account, head.bytes, ret_refusal))
		return false;
	pending->unit = arena_take(&front->blocks, (head.bytes + BLOCK_UNIT_BYTES - 1) / BLOCK_UNIT_BYTES);
	if (pending->unit == ARENA_NONE)
		return refuse_for_now(front, WIRE_REASON_QUEUE_FULL, head.bytes, front->config.block_bytes,
				      ret_refusal);
	pending->block_bytes = head.bytes;
	channel->block_bytes += head.bytes;
	channel->account->block_bytes += head.bytes;
	memcpy(private_block(front, request), &head, sizeof head);
	channel->copy = (struct block_copy){
	    .request = request,
	    .op = slot->op,
	    .bytes = head.bytes,
	    .copied = sizeof head,
	    .offset = (uint64_t)slot->block * WIRE_SLOT_BYTES,
	};
	return true;
}

/* The whole block is private: from here on nothing of it can change. */
static void finish_copy(struct front *front, struct channel *channel)
{
	uint32_t index = channel->copy.request;
	struct request *request = front_request(front, index);
	struct block_context context = context_of(channel, channel->copy.op);
	uint64_t reply_off = 0;
	struct refusal refusal = {0};

	channel->copy.request = CHANNEL_NO_REQUEST;
	if (front->draining)
		refuse(&refusal, drain_reason(front), 0, 0);
	else if (block_parse(private_block(front, index), channel->copy.bytes, &context, request, &reply_off,
			     &refusal))
		share_of_tenant(front, index, &refusal);
	if (refusal.reason) {
		refuse_request(front, index, &refusal);
		return;
	}
	request->reply = reply_off ? channel->segment.base + reply_off : NULL;
	front->pending[index].may_shorten = false;
	submit_or_hold(front, index);
}

/* True: the block is complete, and its request on its way or refused. */
static bool copy_some(struct front *front, struct channel *channel, uint32_t *budget)
{
	struct block_copy *copy = &channel->copy;
	uint32_t n = copy->bytes - copy->copied;

	n = n < *budget ? n : *budget;
	n = n < front->block_bytes_left ? n : front->block_bytes_left;
	memcpy(private_block(front, copy->request) + copy->copied,
	       channel->segment.base + copy->offset + copy->copied, n);
	copy->copied += n;
	*budget -= n;
	front->block_bytes_left -= n;
	if (copy->copied < copy->bytes)
		return false;
	finish_copy(front, channel);
	return true;
}

/* ---- slots ---- */

static void fill_common(struct front *front, struct channel *channel, const struct wire_submission *slot,
			struct request *request)
{
	request->op = slot->op;
	request->priority = slot->flags & WIRE_FLAG_PRIORITY;
	request->model = slot->model;
	request->uid = request->tenant = channel->uid;
	request->arrival_ns = front_now(front);
	request->deadline_ns = slot->deadline_ns;
	request->client_id = slot->id;
	request->reply = NULL;
	request->reply_cap = 0;
	store_relaxed_u32(&request->delivered, 0);
}

static bool take_request(struct front *front, struct channel *channel, const struct wire_submission *slot,
			 const struct profile *profile, struct refusal *ret_refusal)
{
	uint32_t index;
	struct pending *pending;

	if (load_acquire_u32(&front->link->limits.state) == WIRE_MODEL_FAILED)
		return refuse(ret_refusal, WIRE_REASON_MODEL_FAILED, 0, 0);
	if (!share_of_queue(front, channel->account, ret_refusal))
		return false;
	index = request_take(front, channel, slot);
	if (index == NOWHERE)
		return refuse_for_now(front, WIRE_REASON_QUEUE_FULL, front->n_requests,
				      front->link->n_requests, ret_refusal);
	pending = &front->pending[index];
	fill_common(front, channel, slot, front_request(front, index));
	if (slot->block) {
		if (begin_copy(front, channel, index, slot, ret_refusal))
			return true;
		request_release(front, index);
		return false;
	}
	pending->may_shorten = slot->max_new == 0;
	admit_inline(slot, profile, pending->inline_tokens, front_request(front, index));
	submit_or_hold(front, index);
	return true;
}

/* Cancel has no answer of its own: what cannot be understood, or names nothing, is ignored. */
static void take_cancel(struct front *front, struct channel *channel, const struct wire_submission *slot)
{
	uint64_t target = (uint64_t)slot->tok[1] << 32 | slot->tok[0];
	uint32_t request = channel_lookup(channel, target);

	count(&front->counts.cancels, 1);
	if (request != CHANNEL_NO_REQUEST && front_request(front, request)->client_id == target)
		request_cancel(front, request, WIRE_FINISH_CANCELLED, WIRE_REASON_CANCELLED);
}

/* Ids are the client's book-keeping; one that is wrong means that both ends disagree, and ends the channel.
 */
static uint32_t check_id(struct channel *channel, uint64_t id)
{
	uint32_t index = id & 0xffff;

	if (index >= channel->max_in_flight)
		return WIRE_REASON_ID_INDEX;
	if (channel->table[index] != CHANNEL_NO_REQUEST)
		return WIRE_REASON_ID_IN_USE;
	if (id >> 16 <= channel->last_order)
		return WIRE_REASON_ID_ORDER;
	channel->last_order = id >> 16;
	return WIRE_REASON_NONE;
}

static __attribute__((noinline)) void take_slot(struct front *front, struct channel *channel,
						const struct wire_submission *slot)
{
	const struct profile *profile;
	struct refusal refusal = {0};
	uint32_t reason;

	if (slot->op == WIRE_OP_CANCEL && slot->id == 0) {
		take_cancel(front, channel, slot);
		return;
	}
	reason = check_id(channel, slot->id);
	if (reason) {
		channel_doom(front, channel, reason);
		return;
	}
	if (admit_slot(slot, &refusal) && admit_now(front, channel, slot, &profile, &refusal) &&
	    (slot->op == WIRE_OP_ECHO ? take_echo(front, channel, slot, &refusal)
				      : take_request(front, channel, slot, profile, &refusal)))
		return;
	deliver_refusal(front, channel, slot->id, 0, &refusal);
}

/* A slot is read only when its answer has a place to go. */
static inline bool next_slot(struct front *front, struct channel *channel, uint64_t ret_words[8])
{
	bool bad = false;

	if (!channel_has_room(channel, &bad)) {
		if (bad)
			channel_doom(front, channel, WIRE_REASON_BAD_CONSUMED);
		else if (ring_ready(&channel->submissions))
			front->pickup_waits = true; /* [D5] */
		return false;
	}
	return ring_read(&channel->submissions, ret_words);
}

static inline void take_words(struct front *front, struct channel *channel, const uint64_t words[8])
{
	struct wire_submission slot;

	if (echo_at_once(front, channel, words))
		return;
	memcpy(&slot, words, sizeof slot);
	take_slot(front, channel, &slot);
}

static unsigned take_slots(struct front *front, struct channel *channel, uint32_t *block_budget)
{
	unsigned most = TURN_CHANNEL_SLOTS < front->slots_left ? TURN_CHANNEL_SLOTS : front->slots_left;
	uint64_t quarter = (channel->submissions.mask + 1) / 4;
	uint64_t words[8];
	unsigned n = 0;

	while (n < most && !channel->doomed && next_slot(front, channel, words)) {
		n++;
		take_words(front, channel, words);
		if (channel->submissions.index - channel->submissions.published >= quarter)
			ring_reader_publish(&channel->submissions); /* [D3] */
		if (channel->copy.request != CHANNEL_NO_REQUEST && !copy_some(front, channel, block_budget))
			break;
	}
	front->slots_left -= n;
	return n;
}

unsigned pickup_channel(struct front *front, struct channel *channel)
{
	uint32_t block_budget = TURN_CHANNEL_BLOCK_BYTES;
	unsigned pieces = 0, n;

	if (channel->doomed)
		return 0;
	if (channel->copy.request != CHANNEL_NO_REQUEST) {
		pieces = 1;
		if (!copy_some(front, channel, &block_budget))
			return pieces;
	}
	n = take_slots(front, channel, &block_budget);
	if (n) {
		ring_reader_publish(&channel->submissions); /* [D6] */
		channel->served = true;
		count(&front->counts.picked_up, n);
	}
	return n + pieces;
}
