/* The ends of requests and channels. */
#include "daemon/engine/front_internal.h"

uint32_t request_take(struct front *front, struct channel *channel, const struct wire_submission *slot)
{
	uint32_t request = front->first_free;
	struct pending *pending;

	if (request == NOWHERE)
		return NOWHERE;
	pending = &front->pending[request];
	front->first_free = pending->next;
	front->n_requests++;
	pending->channel = channel;
	pending->state = PENDING_COPYING;
	pending->end_sent = false;
	pending->end_finish = 0;
	pending->index = slot->id & 0xffff;
	pending->turn = front->turn;
	pending->block_bytes = 0;
	pending->tenant = NOWHERE;
	pending->blocked_since_ns = 0;
	pending->first_unplaced = pending->n_unplaced = pending->reply_bytes = 0;
	pending->previous = CHANNEL_NO_REQUEST;
	pending->next = channel->first_request;
	if (pending->next != CHANNEL_NO_REQUEST)
		front->pending[pending->next].previous = request;
	channel->first_request = request;
	channel->table[pending->index] = request;
	channel->n_in_flight++; /* [D4] */
	channel->account->n_requests++;
	front_request(front, request)->index = request;
	front_request(front, request)->channel = channel->number;
	store_relaxed_u64(&front->counts.in_flight, front->n_requests);
	return request;
}

static void unchain(struct front *front, struct pending *pending)
{
	struct channel *channel = pending->channel;

	if (pending->next != CHANNEL_NO_REQUEST)
		front->pending[pending->next].previous = pending->previous;
	if (pending->previous != CHANNEL_NO_REQUEST)
		front->pending[pending->previous].next = pending->next;
	else
		channel->first_request = pending->next;
}

static void leave_list(struct front *front, uint32_t request)
{
	struct pending *pending = &front->pending[request];

	if (pending->place == NOWHERE)
		return;
	requests_remove(front, pending->state == PENDING_HELD ? &front->held : &front->outbox, request);
	store_relaxed_u64(&front->counts.held, front->held.n);
}

/* The front and the engine hold nothing of the channel any more: its memory may go. */
static void channel_return(struct front *front, struct channel *channel)
{
	store_release_u32(&channel->returned, 1);
	count(&front->counts.channels, (uint64_t)-1);
	front->control_wanted = true;
}

/* From here on the client may use the table index and the arena's block again. */
static void give_to_client(struct pending *pending)
{
	pending->channel->table[pending->index] = CHANNEL_NO_REQUEST;
	pending->channel->n_in_flight--;
	pending->channel->block_bytes -= pending->block_bytes;
}

void request_release(struct front *front, uint32_t request)
{
	struct pending *pending = &front->pending[request];
	struct channel *channel = pending->channel;

	leave_list(front, request);
	unchain(front, pending);
	if (pending->state != PENDING_ANSWERED)
		give_to_client(pending);
	if (pending->block_bytes) {
		arena_give(&front->blocks, pending->unit);
		channel->account->block_bytes -= pending->block_bytes;
	}
	if (pending->tenant != NOWHERE) {
		front->tenants.items[pending->tenant].block_bytes -= pending->block_bytes;
		tenants_leave(&front->tenants, pending->tenant);
	}
	channel->account->n_requests--;
	pending->channel = NULL;
	pending->state = PENDING_FREE;
	pending->next = front->first_free;
	front->first_free = request;
	front->n_requests--;
	store_relaxed_u64(&front->counts.in_flight, front->n_requests);
	if (load_relaxed_u32(&channel->ended_reason) && channel->first_request == CHANNEL_NO_REQUEST)
		channel_return(front, channel);
}

/* Whether an event of the engine will still come. */
static bool is_engines(const struct pending *pending)
{
	return pending->state == PENDING_RUNNING || pending->state == PENDING_ANSWERED;
}

/* The queue is full when the engine is far behind: the end is then owed. */
static void send_end(struct front *front, uint32_t request)
{
	struct pending *pending = &front->pending[request];
	struct engine_command command = {.kind = COMMAND_END,
					 .finish = pending->end_finish,
					 .reason = pending->end_reason,
					 .request = request};

	pending->end_sent = queue_push(&front->link->commands, &command);
	front->commands_pushed = true;
	front->ends_owed |= !pending->end_sent;
}

void request_end(struct front *front, uint32_t request, uint32_t finish, uint32_t reason)
{
	struct pending *pending = &front->pending[request];

	if (pending->end_finish)
		return;
	pending->end_finish = (uint8_t)finish;
	pending->end_reason = (uint16_t)reason;
	send_end(front, request);
}

void request_end_owed(struct front *front)
{
	front->ends_owed = false;
	for (uint32_t i = 0; i < front->link->n_requests; i++) {
		const struct pending *pending = &front->pending[i];

		if (is_engines(pending) && pending->end_finish && !pending->end_sent)
			send_end(front, i);
	}
}

/* The terminal of a request of which no token waits. */
static struct wire_completion bare_final(struct front *front, uint32_t request, uint32_t finish,
					 uint32_t reason)
{
	count(&front->counts.failed_for[reason], 1);
	return (struct wire_completion){
	    .kind = WIRE_KIND_FINAL,
	    .finish = (uint8_t)finish,
	    .id = front_request(front, request)->client_id,
	    .first = front->pending[request].first_unplaced,
	    .status = channel_status(reason),
	    .aux = reason,
	    .since = deliver_since(front, request),
	};
}

static void finish_held(struct front *front, uint32_t request, uint32_t finish, uint32_t reason)
{
	struct channel *channel = front->pending[request].channel;
	struct wire_completion slot = bare_final(front, request, finish, reason);

	request_release(front, request);
	deliver(front, channel, &slot);
}

/* Answers before the engine has heard of it, which may take a step. Not where the engine may be writing to
 * the reply area, which is the client's again with its terminal, nor where tokens wait for room. */
static void answer_running(struct front *front, uint32_t request, uint32_t finish, uint32_t reason)
{
	struct pending *pending = &front->pending[request];
	struct wire_completion slot;

	if (front_request(front, request)->reply || pending->place != NOWHERE)
		return;
	slot = bare_final(front, request, finish, reason);
	pending->state = PENDING_ANSWERED;
	give_to_client(pending);
	count(&front->counts.finished, 1);
	deliver(front, pending->channel, &slot);
}

void request_cancel(struct front *front, uint32_t request, uint32_t finish, uint32_t reason)
{
	switch (front->pending[request].state) {
	case PENDING_RUNNING:
		request_end(front, request, finish, reason);
		answer_running(front, request, finish, reason);
		break;
	case PENDING_HELD:
		finish_held(front, request, finish, reason);
		break;
	default: /* FINISHED: its terminal is on the way. ANSWERED: it has one. COPYING: a cancel cannot
		    overtake its request. */
		break;
	}
}

/* ---- channels ---- */

void channel_doom(struct front *front, struct channel *channel, uint32_t reason)
{
	if (channel->doomed)
		return;
	channel->doomed = reason;
	front->doomed.items[front->doomed.n++] = channel;
}

static void end_requests(struct front *front, struct channel *channel)
{
	uint32_t request = channel->first_request;

	channel->copy.request = CHANNEL_NO_REQUEST;
	while (request != CHANNEL_NO_REQUEST) {
		uint32_t next = front->pending[request].next;

		if (is_engines(&front->pending[request])) {
			if (front->pending[request].place != NOWHERE)
				requests_remove(front, &front->outbox, request);
			request_end(front, request, WIRE_FINISH_CANCELLED, WIRE_REASON_PEER_GONE);
		} else {
			request_release(front, request);
		}
		request = next;
	}
}

static void forget_unwoken(struct front *front, struct channel *channel)
{
	for (uint32_t i = 0; i < front->unwoken.n; i++)
		if (front->unwoken.items[i] == channel)
			front->unwoken.items[i--] = front->unwoken.items[--front->unwoken.n];
	channel->unwoken = false;
}

static void bury(struct front *front, struct channel *channel)
{
	store_relaxed_u32(&channel->header->reason, channel->doomed);
	/* Release: pairs with the client's acquire of `state`; the reason is visible with it. */
	store_release_u32(&channel->header->state, WIRE_STATE_ENDED);
	/* [X6] */
	channels_remove(channel->active ? &front->active : &front->parked, channel);
	forget_unwoken(front, channel);
	sockets_forget(front, channel);
	end_requests(front, channel);
	count(&front->counts.channels_ended, 1);
	count(&front->counts.ended_for[channel->doomed], 1);
	/* Release: pairs with the control thread's acquire, which may then close the socket. */
	store_release_u32(&channel->ended_reason, channel->doomed);
	front->control_wanted = true;
	if (channel->first_request == CHANNEL_NO_REQUEST)
		channel_return(front, channel);
}

void bury_doomed(struct front *front)
{
	while (front->doomed.n)
		bury(front, front->doomed.items[--front->doomed.n]);
}

/* ---- drain ---- */

static void drain_end_requests(struct front *front)
{
	for (uint32_t i = 0; i < front->link->n_requests; i++)
		if (front->pending[i].channel && !front->pending[i].channel->doomed)
			request_cancel(front, i, WIRE_FINISH_SHUTDOWN, WIRE_REASON_SHUTDOWN);
	front->drain_ended = true;
}

static bool engine_has_requests(const struct front *front)
{
	for (uint32_t i = 0; i < front->link->n_requests; i++)
		if (is_engines(&front->pending[i]))
			return true;
	return false;
}

uint32_t drain_reason(const struct front *front)
{
	/* Acquire: pairs with engine_fail_model. */
	return load_acquire_u32(&front->link->limits.state) == WIRE_MODEL_FAILED ? WIRE_REASON_MODEL_FAILED
										 : WIRE_REASON_SHUTDOWN;
}

static void doom_all(struct front *front, struct channel_list *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		channel_doom(front, list->items[i], drain_reason(front));
}

void drain_step(struct front *front)
{
	bool late = front_now(front) >= load_relaxed_u64(&front->drain_deadline_ns);

	front->draining = true;
	if (late && !front->drain_ended)
		drain_end_requests(front);
	if (front->n_requests == 0 || (late && !engine_has_requests(front))) {
		doom_all(front, &front->active);
		doom_all(front, &front->parked);
		bury_doomed(front);
	}
	/* Release: pairs with the acquire in front_drained. */
	if (front->n_requests == 0 && front->active.n + front->parked.n == 0)
		store_release_u32(&front->drained, 1);
}
