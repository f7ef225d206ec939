/* Completions: the engine's events, merged into slots while the client's ring has room.
 *
 * A terminal always has its reserved slot; tokens use what is left. */
#include "daemon/engine/front_internal.h"

uint32_t deliver_since(struct front *front, uint32_t request)
{
	uint64_t units;

	if (front->pending[request].turn == front->turn)
		return 0;
	units = (front_now(front) - front_request(front, request)->arrival_ns) / 100;
	return units > UINT32_MAX ? UINT32_MAX : (uint32_t)units;
}

void deliver_refusal(struct front *front, struct channel *channel, uint64_t id, uint32_t since,
		     const struct refusal *refusal)
{
	struct wire_completion answer = {
	    .kind = WIRE_KIND_REFUSED,
	    .id = id,
	    .status = channel_status(refusal->reason),
	    .aux = refusal->reason,
	    .since = since,
	    .tok = {(uint32_t)refusal->predicted_ns, (uint32_t)(refusal->predicted_ns >> 32),
		    (uint32_t)refusal->retry_ns, (uint32_t)(refusal->retry_ns >> 32), refusal->asked,
		    refusal->limit},
	};

	deliver(front, channel, &answer);
	count(&front->counts.refused, 1);
	count(&front->counts.refused_for[refusal->reason], 1);
	store_relaxed_u32(&channel->last_refusal, refusal->reason);
	store_relaxed_u32(&channel->n_refused, load_relaxed_u32(&channel->n_refused) + 1);
}

/* ---- streams ---- */

/* Moves up to a slot's worth of unplaced tokens into the completion. */
static void take_tokens(struct pending *pending, struct wire_completion *completion)
{
	uint32_t n = pending->n_unplaced < WIRE_SLOT_TOKENS ? pending->n_unplaced : WIRE_SLOT_TOKENS;

	completion->n_tok = (uint8_t)n;
	completion->first = pending->first_unplaced;
	for (uint32_t i = 0; i < n; i++)
		completion->tok[i] = pending->unplaced[(pending->first_unplaced + i) & (UNPLACED_TOKENS - 1)];
	pending->first_unplaced += n;
	pending->n_unplaced -= n;
}

static void place_tokens(struct front *front, uint32_t request)
{
	struct pending *pending = &front->pending[request];
	struct wire_completion slot = {
	    .kind = WIRE_KIND_TOKENS,
	    .id = front_request(front, request)->client_id,
	    .aux = pending->reply_bytes,
	    .since = deliver_since(front, request),
	};

	take_tokens(pending, &slot);
	deliver(front, pending->channel, &slot);
	count(&front->counts.tokens, slot.n_tok);
	/* Release: pairs with the engine's load, which lets a paused request go on. */
	store_release_u32(&front_request(front, request)->delivered, pending->first_unplaced);
}

static void note_finish(struct front *front)
{
	uint64_t now_ns = front_now(front), gap_ns = now_ns - front->last_finish_ns;

	if (front->last_finish_ns)
		front->finish_gap_ns += (gap_ns >> 3) - (front->finish_gap_ns >> 3);
	front->last_finish_ns = now_ns;
	count(&front->counts.finished, 1);
}

static void place_refusal(struct front *front, uint32_t request, const struct engine_event *event)
{
	struct channel *channel = front->pending[request].channel;
	uint64_t id = front_request(front, request)->client_id;
	uint32_t since = deliver_since(front, request);

	request_release(front, request);
	deliver_refusal(front, channel, id, since,
			&(struct refusal){
			    .reason = event->reason,
			    .asked = event->asked,
			    .limit = event->limit,
			    .predicted_ns = event->predicted_ns,
			    .retry_ns = event->retry_ns,
			});
}

/* The terminal with the last tokens. */
static void place_final(struct front *front, uint32_t request)
{
	struct pending *pending = &front->pending[request];
	struct channel *channel = pending->channel;
	const struct engine_event *event = &pending->terminal;
	struct wire_completion slot = {
	    .kind = WIRE_KIND_FINAL,
	    .finish = event->finish,
	    .id = front_request(front, request)->client_id,
	    .status = channel_status(event->reason),
	    .aux = event->reason ? event->reason : event->reply_bytes,
	    .since = deliver_since(front, request),
	};

	take_tokens(pending, &slot);
	count(&front->counts.tokens, slot.n_tok);
	note_finish(front);
	if (event->reason)
		count(&front->counts.failed_for[event->reason], 1);
	request_release(front, request); /* [D8] */
	deliver(front, channel, &slot);
}

static bool room_for_tokens(struct front *front, struct channel *channel)
{
	bool bad = false, room = channel_has_room(channel, &bad);

	if (bad)
		channel_doom(front, channel, WIRE_REASON_BAD_CONSUMED);
	return room;
}

/* A client that does not collect its tokens loses the request, not the daemon's patience with others. */
static void check_stall(struct front *front, uint32_t request)
{
	struct pending *pending = &front->pending[request];
	uint64_t now_ns = front_now(front);

	if (pending->blocked_since_ns == 0)
		pending->blocked_since_ns = now_ns;
	if (now_ns - pending->blocked_since_ns < load_relaxed_u64(&front->client_stall_ns))
		return;
	if (pending->state == PENDING_RUNNING) {
		request_end(front, request, WIRE_FINISH_STALL, WIRE_REASON_CLIENT_STALL);
		return;
	}
	/* The engine is done; the tokens between are lost, and the terminal says so. */
	pending->terminal.finish = WIRE_FINISH_STALL;
	pending->terminal.reason = WIRE_REASON_CLIENT_STALL;
	pending->n_unplaced = 0;
	place_final(front, request);
}

/* True: nothing of the request waits any more. */
static bool place(struct front *front, uint32_t request, unsigned *placed)
{
	struct pending *pending = &front->pending[request];
	bool finished = pending->state == PENDING_FINISHED;

	while (pending->n_unplaced > (finished ? WIRE_SLOT_TOKENS : 0)) {
		if (!room_for_tokens(front, pending->channel)) {
			if (!pending->channel->doomed)
				check_stall(front, request);
			return pending->channel == NULL;
		}
		pending->blocked_since_ns = 0;
		place_tokens(front, request); /* [D7] */
		++*placed;
	}
	if (finished) {
		place_final(front, request);
		++*placed;
	}
	return true;
}

unsigned deliver_outbox(struct front *front)
{
	unsigned placed = 0;

	for (uint32_t i = front->outbox.n; i-- > 0;) {
		uint32_t request = front->outbox.items[i];

		/* A release takes the request off the list itself. */
		if (place(front, request, &placed) && front->pending[request].place != NOWHERE)
			requests_remove(front, &front->outbox, request);
	}
	return placed;
}

/* ---- events ---- */

static void take_token(struct pending *pending, const struct engine_event *event)
{

	if (pending->n_unplaced == UNPLACED_TOKENS)
		return; /* the engine pauses long before */
	pending->unplaced[(pending->first_unplaced + pending->n_unplaced++) & (UNPLACED_TOKENS - 1)] =
	    event->token;
	pending->reply_bytes = event->reply_bytes;
}

static void complete_terminal(struct engine_event *event)
{
	static const uint16_t reasons[] = {
	    [WIRE_FINISH_CANCELLED] = WIRE_REASON_CANCELLED,
	    [WIRE_FINISH_DEADLINE] = WIRE_REASON_DEADLINE,
	    [WIRE_FINISH_STALL] = WIRE_REASON_CLIENT_STALL,
	    [WIRE_FINISH_SHUTDOWN] = WIRE_REASON_SHUTDOWN,
	};

	if (event->reason == WIRE_REASON_NONE && event->finish < sizeof reasons / sizeof reasons[0])
		event->reason = reasons[event->finish];
}

static void take_event(struct front *front, const struct engine_event *event)
{
	uint32_t request = event->request;
	struct pending *pending = &front->pending[request];
	struct channel *channel = pending->channel;

	if (channel->doomed || pending->state == PENDING_ANSWERED) {
		/* Nobody waits for it: what matters is that the request came back. */
		if (event->kind != EVENT_TOKEN)
			request_release(front, request);
		return;
	}
	if (event->kind == EVENT_REFUSED) {
		place_refusal(front, request, event);
		return;
	}
	if (event->has_token || event->kind == EVENT_TOKEN)
		take_token(pending, event);
	if (event->kind == EVENT_FINISH) {
		pending->state = PENDING_FINISHED;
		pending->terminal = *event;
		complete_terminal(&pending->terminal);
	}
	if (pending->place == NOWHERE)
		requests_add(front, &front->outbox, request);
}

unsigned deliver_events(struct front *front)
{
	struct engine_event event;
	unsigned n = 0;

	while (n < TURN_EVENTS && queue_pop(&front->link->events, &event)) {
		take_event(front, &event);
		n++;
	}
	return n;
}
