/* Receiving: judge each completion, wait for the next, notice a daemon that died or hangs. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "libclient/client.h"

enum {
	EVENT_BYTES_LEAST = offsetof(struct tr_event, scored),
	SPINS_A_CLOCK = 16, /* looks at the ring between two reads of the clock in tr_wait */
	ID_INDEX = 0xffff,
};

_Static_assert((int)TR_EVENT_SESSION == (int)WIRE_KIND_SESSION &&
		   (int)TR_FINISH_DONE == (int)WIRE_FINISH_DONE,
	       "the public numbers are those of the wire");
_Static_assert(sizeof(struct tr_scored) == sizeof(struct wire_scored),
	       "records are handed out where they lie");

static bool is_terminal(uint8_t kind)
{
	return kind != WIRE_KIND_TOKENS;
}

static __attribute__((noinline, cold)) int garbage(struct tr_client *client)
{
	return client_die(client, -ECONNABORTED, WIRE_REASON_BAD_COMPLETION, false);
}

/* Where the records of a whole answer lie: the sizes that the daemon wrote are read once and judged against
 * what was asked for; the values are its own. */
static bool whole_reply(const unsigned char *at, const struct wire_completion *answer, uint32_t *ret_count)
{
	struct wire_reply reply;

	memcpy(&reply, at, sizeof reply);
	*ret_count = reply.count;
	return (reply.kind == WIRE_REPLY_LOGPROBS || reply.kind == WIRE_REPLY_LOGITS) &&
	       reply.stride == sizeof(struct wire_scored) &&
	       (uint64_t)reply.count * reply.stride <= answer->aux - sizeof reply;
}

/* Points an event at its records. While tokens stream, an event carries those of its own tokens, and the
 * header of the reply is not looked at: the daemon may be writing what belongs to the next tokens. */
static bool attach_reply(const struct tr_client *client, const struct flight *flight,
			 const struct wire_completion *answer, struct tr_event *event)
{
	const unsigned char *at = client->segment.base + (uint64_t)flight->reply_off * ARENA_UNIT_BYTES;
	uint64_t skipped = 0, written;
	uint32_t count;

	if (flight->block == 0 || flight->reply_off == 0 || answer->aux > flight->reply_cap ||
	    answer->aux < sizeof(struct wire_reply))
		return false;
	if (answer->kind == WIRE_KIND_TOKENS) {
		written = (answer->aux - sizeof(struct wire_reply)) / sizeof(struct wire_scored);
		skipped = (uint64_t)answer->first * flight->records;
		count = answer->n_tok * flight->records;
		if (skipped + count > written)
			return false;
	} else if (!whole_reply(at, answer, &count)) {
		return false;
	}
	event->scored = (const struct tr_scored *)(at + sizeof(struct wire_reply)) + skipped;
	event->n_scored = count;
	event->scored_stride = flight->records;
	return true;
}

static void fill_refusal(const struct wire_completion *answer, struct tr_event *event)
{
	memcpy(&event->predicted_ns, &answer->tok[0], sizeof event->predicted_ns);
	memcpy(&event->retry_ns, &answer->tok[2], sizeof event->retry_ns);
	event->asked = answer->tok[4];
	event->limit = answer->tok[5];
	memset(event->tokens, 0, sizeof event->tokens);
}

/* Field by field: a compound literal is cleared by a string instruction, which alone takes longer than the
 * rest. */
static inline void fill_event(const struct wire_completion *answer, struct tr_event *event)
{
	event->size = sizeof *event;
	event->kind = answer->kind;
	event->n_tokens = answer->n_tok;
	event->finish = answer->finish;
	event->reserved = 0;
	event->id = answer->id;
	event->first = answer->first;
	event->status = answer->status;
	event->reason = 0;
	event->since_ns_100 = answer->since;
	memcpy(event->tokens, answer->tok, sizeof event->tokens);
	event->scored = NULL;
	event->n_scored = event->scored_stride = 0;
	event->predicted_ns = event->retry_ns = 0;
	event->asked = event->limit = 0;
}

static void end_flight(struct tr_client *client, struct flight *flight)
{
	/* The block outlives this call: its reply may be in the caller's hands until the next poll. */
	if (flight->block) {
		client->ended[client->n_ended++] = flight->block - 1;
		flight->block = 0;
	}
	flight->id = 0;
	client->free_indices[client->n_free++] = (uint16_t)(flight - client->flights);
}

static bool is_refusal(const struct wire_completion *answer)
{
	return answer->kind == WIRE_KIND_REFUSED;
}

/* Turns a private copy of a completion into an event (every field is stored); false: it does not add up. */
static inline bool take_answer(struct tr_client *client, const struct wire_completion *answer,
			       struct tr_event *event)
{
	uint32_t index = answer->id & ID_INDEX;
	struct flight *flight;

	if (index >= client->layout.max_inflight || answer->id == 0)
		return false;
	flight = &client->flights[index];
	if (flight->id != answer->id || answer->kind - 1u > WIRE_KIND_SESSION - 1u ||
	    answer->n_tok > WIRE_SLOT_TOKENS || answer->finish > WIRE_FINISH_DONE || answer->status > 0 ||
	    (is_refusal(answer) && answer->n_tok))
		return false;
	fill_event(answer, event);
	if (is_refusal(answer))
		fill_refusal(answer, event);
	if (is_refusal(answer) || (answer->kind == WIRE_KIND_FINAL && answer->status))
		event->reason = answer->aux;
	else if (answer->aux && !attach_reply(client, flight, answer, event))
		return false;
	if (is_terminal(answer->kind))
		end_flight(client, flight);
	return true;
}

/* The same in the caller's version of the struct, `size` bytes long. */
static __attribute__((noinline)) bool
take_answer_as(struct tr_client *client, const struct wire_completion *answer, void *to, size_t size)
{
	struct tr_event event;

	if (!take_answer(client, answer, &event))
		return false;
	event.size = (uint32_t)size;
	if (size > sizeof event)
		memset((char *)to + sizeof event, 0, size - sizeof event);
	memcpy(to, &event, size < sizeof event ? size : sizeof event);
	return true;
}

static void give_back_ended(struct tr_client *client)
{
	while (client->n_ended)
		arena_give(&client->arena, client->ended[--client->n_ended]);
}

/* Events that are in the ring now: a count, or -ECONNABORTED when the first one does not add up. */
static int collect(struct tr_client *client, struct tr_event *events, unsigned max)
{
	struct ring_reader *ring = &client->completions;
	unsigned char *to = (unsigned char *)events;
	size_t size = events->size;
	struct wire_completion answer;
	unsigned n;

	client->had_events = true;
	for (n = 0; n < max && ring_read(ring, &answer); n++, to += size) {
		bool is_sound = size == sizeof *events ? take_answer(client, &answer, (struct tr_event *)to)
						       : take_answer_as(client, &answer, to, size);

		if (!is_sound) {
			garbage(client);
			break;
		}
		if (ring->index - ring->published > ring->mask / 4)
			ring_reader_publish(ring);
	}
	ring_reader_publish(ring);
	return n || client->gate->open || client->drain ? (int)n : client->error;
}

/* After the end: what the daemon published before it comes first. */
static __attribute__((noinline, cold)) int poll_closed(struct tr_client *client, struct tr_event *events,
						       unsigned max)
{
	int n;

	if (gate_forked(client->gate) || !client->drain)
		return client_closed(client);
	n = ring_ready(&client->completions) ? collect(client, events, max) : 0;
	return n ? n : client->error;
}

static int look_at_socket(struct tr_client *client, uint64_t now_ns)
{
	client->looked_ns = now_ns;
	return sleeper_asleep(&client->sleeper) ? client_peek(client) : client_drain(client);
}

/* What costs a clock: the state that the daemon left, its heartbeat, and the socket after 2 ms without
 * events. */
static int look_at_health(struct tr_client *client, uint64_t now_ns)
{
	const struct wire_header *header = segment_header(&client->segment);
	bool is_quiet;

	if (client->had_events) {
		client->had_events = false;
		client->quiet_since_ns = now_ns;
	}
	is_quiet = now_ns - client->quiet_since_ns >= SOCKET_LOOK_NS;
	if ((is_quiet && now_ns - client->looked_ns >= SOCKET_LOOK_NS) ||
	    load_relaxed_u32(&header->state) == WIRE_STATE_ENDED) {
		int error = look_at_socket(client, now_ns);

		if (error < 0)
			return error;
	}
	return client_heartbeat(client, now_ns);
}

/* The clock is read every so many empty polls: every time for those who poll seldom, every 64th for those who
 * spin. */
static __attribute__((noinline)) int poll_health(struct tr_client *client, struct tr_event *events,
						 unsigned max)
{
	uint64_t now_ns = clock_now_ns(), gap_ns = now_ns - client->clock_ns;
	int error;

	client->clock_ns = now_ns;
	if (gap_ns > SOCKET_LOOK_NS / 2)
		client->polls_a_clock = 1;
	else if (gap_ns < SOCKET_LOOK_NS / 16 && client->polls_a_clock < POLLS_A_CLOCK_MAX)
		client->polls_a_clock *= 2;
	client->polls_left = client->polls_a_clock;
	error = look_at_health(client, now_ns);
	if (error == -EHOSTDOWN)
		client->polls_left = client->polls_a_clock = 1;
	return client->gate->open ? error : poll_closed(client, events, max);
}

/* The fence that tr_submit left out, before anything that finds no events. */
static int pay_fence(struct tr_client *client)
{
	client->fence_owed = false;
	if (wake_fence(&client->waker) < 0)
		return client_hung_up(client);
	return 0;
}

static __attribute__((noinline)) int poll_long(struct tr_client *client, struct tr_event *events,
					       unsigned max)
{
	if (max == 0 || events->size < EVENT_BYTES_LEAST || events->size % 8)
		return -EINVAL;
	if (!client_open(client))
		return poll_closed(client, events, max);
	give_back_ended(client);
	if (ring_ready(&client->completions))
		return collect(client, events, max);
	if (client->fence_owed && pay_fence(client) < 0)
		return poll_closed(client, events, max);
	if (client->polls_left <= 1)
		return poll_health(client, events, max);
	client->polls_left--;
	return 0;
}

int tr_poll(struct tr_client *client, struct tr_event *events, unsigned max)
{
	/* Nothing there and nothing owed: the case that a spinning caller meets. */
	if (client_open(client) && events->size >= EVENT_BYTES_LEAST && !client->n_ended &&
	    !client->fence_owed && !ring_ready(&client->completions) && client->polls_left > 1) {
		client->polls_left--;
		return 0;
	}
	return poll_long(client, events, max);
}

/* Looks at the ring until the clock says `until_ns`: 1 ready, 0 not, or an error. */
static int spin(struct tr_client *client, uint64_t until_ns)
{
	for (;;) {
		uint64_t now_ns;
		int error;

		for (int i = 0; i < SPINS_A_CLOCK; i++)
			if (ring_ready(&client->completions))
				return 1;
		spin_pause();
		now_ns = clock_now_ns();
		error = look_at_health(client, now_ns);
		if (error < 0)
			return error;
		if (now_ns >= until_ns)
			return 0;
	}
}

static int sleep_in_poll(struct tr_client *client, uint64_t deadline_ns)
{
	uint64_t slice_ns = clock_now_ns() + SLEEP_SLICE_NS;

	return socket_wait(client->socket, POLLIN, slice_ns < deadline_ns ? slice_ns : deadline_ns);
}

/* One sleep, of one slice at most: 1 events are ready, 0 not, or an error. */
static int sleep_slice(struct tr_client *client, uint64_t deadline_ns)
{
	shared_u32 *word = &segment_header(&client->segment)->client_sleep;
	int error = 0;

	sleep_begin(&client->sleeper, word);
	/* The same fence serves what was submitted. */
	client->fence_owed = false;
	if (wake_look(&client->waker) < 0)
		error = client_hung_up(client);
	if (error == 0 && !ring_ready(&client->completions))
		error = sleep_in_poll(client, deadline_ns);
	if (error > 0)
		error = client_drain(client);
	sleep_end(&client->sleeper, word);
	if (ring_ready(&client->completions))
		return 1;
	return error < 0 ? error : client_heartbeat(client, clock_now_ns());
}

int tr_wait(struct tr_client *client, struct tr_event *events, unsigned max, int64_t timeout_ns)
{
	int n = tr_poll(client, events, max), ready;
	uint64_t start_ns, deadline_ns, spin_end_ns;

	if (n != 0 || timeout_ns == 0)
		return n;
	start_ns = clock_now_ns();
	deadline_ns = timeout_ns < 0 ? UINT64_MAX : start_ns + (uint64_t)timeout_ns;
	spin_end_ns = client->spin_ns == UINT32_MAX ? UINT64_MAX : start_ns + client->spin_ns;
	ready = spin(client, spin_end_ns < deadline_ns ? spin_end_ns : deadline_ns);
	while (ready == 0 && clock_now_ns() < deadline_ns)
		ready = sleep_slice(client, deadline_ns);
	if (!client->gate->open)
		return poll_closed(client, events, max);
	return ready == 1 ? collect(client, events, max) : ready;
}

int tr_arm(struct tr_client *client)
{
	int error;

	if (!client_open(client))
		return client_closed(client);
	/* A wake-up byte that nobody took makes epoll return at once, for ever. */
	error = client_drain(client);
	if (error == 0)
		error = client_heartbeat(client, clock_now_ns());
	if (error == 0) {
		sleep_begin(&client->sleeper, &segment_header(&client->segment)->client_sleep);
		client->fence_owed = false;
		if (wake_look(&client->waker) < 0)
			error = client_hung_up(client);
	}
	client->polls_left = client->polls_a_clock = 1;
	if (ring_ready(&client->completions)) {
		sleep_end(&client->sleeper, &segment_header(&client->segment)->client_sleep);
		return 1;
	}
	return error;
}
