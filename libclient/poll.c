/* Receiving: judge each completion, notice a daemon that died or hangs. */
#include <errno.h>
#include <string.h>

#include "libclient/client.h"

enum {
	EVENT_BYTES_LEAST = offsetof(struct tr_event, scored),
};

_Static_assert((int)TR_EVENT_SESSION == (int)WIRE_KIND_SESSION &&
		   (int)TR_FINISH_DONE == (int)WIRE_FINISH_DONE,
	       "the public numbers are those of the wire");
_Static_assert(sizeof(struct tr_scored) == sizeof(struct wire_scored),
	       "records are handed out where they lie");

/* An event begins with the slot that it came in, but for the words of the sequence and of the reason. */
#define SAME_PLACE(event_field, slot_field)                              \
	_Static_assert(offsetof(struct tr_event, event_field) ==         \
			   offsetof(struct wire_completion, slot_field), \
		       "hand_out copies words")
SAME_PLACE(kind, kind);
SAME_PLACE(n_tokens, n_tok);
SAME_PLACE(finish, finish);
SAME_PLACE(reserved, flags);
SAME_PLACE(id, id);
SAME_PLACE(first, first);
SAME_PLACE(status, status);
SAME_PLACE(reason, aux);
SAME_PLACE(since_ns_100, since);
SAME_PLACE(tokens, tok);

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
static bool whole_reply(const unsigned char *at, const struct flight *flight,
			const struct wire_completion *answer, uint32_t *ret_count)
{
	bool is_embedding = flight->records == 0;
	struct wire_reply reply;

	memcpy(&reply, at, sizeof reply);
	*ret_count = reply.count;
	if (is_embedding ? reply.kind != WIRE_REPLY_EMBEDDING
			 : reply.kind != WIRE_REPLY_LOGPROBS && reply.kind != WIRE_REPLY_LOGITS)
		return false;
	return reply.stride == (is_embedding ? sizeof(float) : sizeof(struct wire_scored)) &&
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
		if (flight->records == 0 || skipped + count > written)
			return false;
	} else if (!whole_reply(at, flight, answer, &count)) {
		return false;
	}
	if (flight->records == 0) {
		event->embedding = (const float *)(at + sizeof(struct wire_reply));
		event->n_embedding = count;
		return true;
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

/* What an event has beyond its slot. */
static inline void clear_rest(struct tr_event *event)
{
	event->scored = NULL;
	event->n_scored = event->scored_stride = 0;
	event->predicted_ns = event->retry_ns = 0;
	event->asked = event->limit = 0;
	event->embedding = NULL;
	event->n_embedding = event->reserved_2 = 0;
}

static inline void put_word(struct tr_event *event, int i, uint64_t word)
{
	memcpy((char *)event + 8 * i, &word, sizeof word);
}

/* The first word of an event in place of that of its slot. */
static inline uint64_t event_head(uint64_t word_0)
{
	return (word_0 & UINT64_C(0x00ffffff00000000)) | sizeof(struct tr_event);
}

static inline void end_flight(struct tr_client *client, uint32_t index)
{
	struct flight *flight = &client->flights[index];

	/* The block outlives this call: its reply may be in the caller's hands until the next poll. */
	if (flight->block) {
		client->ended[client->n_ended++] = flight->block - 1;
		flight->block = 0;
	}
	client->ids[index] = NO_ID; /* [C4] */
	client->table[client->gate.n_free++] = client->layout.max_inflight + index;
}

/* Whether this is the id of a request in flight. */
static inline bool is_flying(const struct tr_client *client, uint64_t id)
{
	uint32_t index = id & ID_INDEX;

	return index < client->layout.max_inflight && client->ids[index] == id;
}

static bool is_refusal(const struct wire_completion *answer)
{
	return answer->kind == WIRE_KIND_REFUSED;
}

/* Most answers: an ECHO, TOKENS or FINAL within its bounds, without status, reason or reply. In the high half
 * of word 0: the kind from 1 to 3, n_tok and finish up to 8 (7 more lifts 9 to 15 out of the field). */
static inline bool is_plain(uint64_t word_0, uint64_t word_2, uint64_t word_3)
{
	uint32_t head = (uint32_t)(word_0 >> 32);
	uint32_t faults = ((head - 1) | (head + 0x070700)) & 0xf0f0fc;

	return !(faults | (uint32_t)(word_2 >> 32) | (uint32_t)word_3);
}

_Static_assert(WIRE_KIND_ECHO == 1 && WIRE_KIND_FINAL == 3 && WIRE_SLOT_TOKENS == 8 && WIRE_FINISH_DONE == 8,
	       "is_plain tests these bounds");

/* Takes a plain answer from where it lies: each word is loaded once, and only words that tell nothing about
 * others go unjudged. False: it is not plain; it has not been taken, and take_next makes a copy of its own.
 * Word by word, because what is stored narrow and read wide waits for the store. */
static inline bool take_plain(struct tr_client *client, const struct wire_slot *slot, uint64_t word_0,
			      struct tr_event *event)
{
	uint64_t id = load_relaxed_u64(&slot->word[1]), word_2 = load_relaxed_u64(&slot->word[2]),
		 word_3 = load_relaxed_u64(&slot->word[3]);

	if (__builtin_expect(!is_plain(word_0, word_2, word_3) || !is_flying(client, id), 0))
		return false;
	put_word(event, 0, event_head(word_0));
	put_word(event, 1, id);
	put_word(event, 2, word_2);
	put_word(event, 3, word_3);
	put_word(event, 4, load_relaxed_u64(&slot->word[4]));
	put_word(event, 5, load_relaxed_u64(&slot->word[5]));
	put_word(event, 6, load_relaxed_u64(&slot->word[6]));
	put_word(event, 7, load_relaxed_u64(&slot->word[7]));
	clear_rest(event);
	ring_skip(&client->completions);
	if (is_terminal((uint8_t)(word_0 >> 32)))
		end_flight(client, id & ID_INDEX);
	return true;
}

/* Turns a private copy of a completion into an event (every field is stored); false: it does not add up. */
static bool take_answer(struct tr_client *client, const struct wire_completion *answer,
			struct tr_event *event)
{
	uint32_t index = answer->id & ID_INDEX;

	if (!is_flying(client, answer->id) || answer->kind - 1u > WIRE_KIND_SESSION - 1u ||
	    answer->n_tok > WIRE_SLOT_TOKENS || answer->finish > WIRE_FINISH_DONE || answer->status > 0 ||
	    (is_refusal(answer) && answer->n_tok))
		return false;
	memcpy(event, answer, sizeof *answer);
	put_word(event, 0,
		 event_head(((uint64_t)answer->finish << 16 | answer->n_tok << 8 | answer->kind) << 32));
	event->reason = 0;
	clear_rest(event);
	if (is_refusal(answer))
		fill_refusal(answer, event);
	if (is_refusal(answer) || (answer->kind == WIRE_KIND_FINAL && answer->status))
		event->reason = answer->aux;
	else if (answer->aux && !attach_reply(client, &client->flights[index], answer, event))
		return false;
	if (is_terminal(answer->kind))
		end_flight(client, index);
	return true;
}

/* Any answer, in the caller's version of the struct, `size` bytes long. */
static bool take_long(struct tr_client *client, const struct wire_completion *answer, void *to, size_t size)
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

/* Any answer in any version of the struct, copied once and judged as the copy. */
static __attribute__((noinline)) bool take_next(struct tr_client *client, void *to, size_t size)
{
	struct wire_completion answer;

	return ring_read(&client->completions, &answer) && take_long(client, &answer, to, size);
}

static void give_back_ended(struct tr_client *client)
{
	while (client->n_ended)
		arena_give(&client->arena, client->ended[--client->n_ended]);
}

__attribute__((noinline)) int client_collect(struct tr_client *client, struct tr_event *events, unsigned n,
					     unsigned max)
{
	struct ring_reader *ring = &client->completions;
	size_t size = events->size;
	unsigned char *to = (unsigned char *)events + n * size;
	const struct wire_slot *slot;
	uint64_t word_0;

	for (; n < max && (slot = ring_peek(ring, &word_0)); n++, to += size) {
		if ((size != sizeof *events || !take_plain(client, slot, word_0, (struct tr_event *)to)) &&
		    !take_next(client, to, size)) {
			garbage(client);
			break;
		}
		if ((ring->index & ring->mask >> 2) == 0) /* [C5] */
			ring_reader_publish(ring);
	}
	ring_reader_publish(ring);
	return n || client->gate.open || client->drain ? (int)n : client->error;
}

__attribute__((noinline, cold)) int client_poll_closed(struct tr_client *client, struct tr_event *events,
						       unsigned max)
{
	int n;

	if (client_forked(client) || !client->drain)
		return client_closed(client);
	n = ring_ready(&client->completions) ? client_collect(client, events, 0, max) : 0; /* [X3] */
	client_shut(client); /* what ended in there frees nothing */
	return n ? n : client->error;
}

static int look_at_socket(struct tr_client *client, uint64_t now_ns)
{
	client->looked_ns = now_ns; /* [C9] */
	return sleeper_asleep(&client->sleeper) ? client_peek(client) : client_drain(client);
}

int client_look_at_health(struct tr_client *client, uint64_t now_ns)
{
	const struct wire_header *header = segment_header(&client->segment);
	bool is_quiet;

	if (client->judged != client->completions.index) {
		client->judged = client->completions.index;
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
	error = client_look_at_health(client, now_ns);
	if (error == -EHOSTDOWN)
		client->polls_left = client->polls_a_clock = 1;
	return client->gate.open ? error : client_poll_closed(client, events, max);
}

/* The fence that tr_submit left out, before anything that finds no events. */
static int pay_fence(struct tr_client *client)
{
	client_fences(client); /* [C12] */
	if (wake_fence(&client->waker) < 0)
		return client_hung_up(client);
	return 0;
}

/* No event is there: what is due now and then. */
static __attribute__((noinline)) int poll_idle(struct tr_client *client, struct tr_event *events,
					       unsigned max)
{
	if (client_owes_fence(client) && pay_fence(client) < 0)
		return client_poll_closed(client, events, max);
	if (client->polls_left <= 1)
		return poll_health(client, events, max);
	client->polls_left--;
	return 0;
}

static __attribute__((noinline)) int poll_long(struct tr_client *client, struct tr_event *events,
					       unsigned max)
{
	if (max == 0 || events->size < EVENT_BYTES_LEAST || events->size % 8)
		return -EINVAL;
	if (!client_open(client))
		return client_poll_closed(client, events, max);
	give_back_ended(client);
	return ring_ready(&client->completions) ? client_collect(client, events, 0, max)
						: poll_idle(client, events, max);
}

/* One event is there. Others that are there already are taken, too. */
static inline int poll_plain(struct tr_client *client, const struct wire_slot *slot, uint64_t word_0,
			     struct tr_event *events, unsigned max)
{
	if (!take_plain(client, slot, word_0, events))
		return client_collect(client, events, 0, max);
	if (max > 1 && ring_ready(&client->completions))
		return client_collect(client, events, 1, max);
	ring_reader_publish(&client->completions);
	return 1;
}

int tr_poll(struct tr_client *client, struct tr_event *events, unsigned max)
{
	const struct wire_slot *slot;
	uint64_t word_0;

	if (!client_open(client) || events->size != sizeof *events || max == 0 || client->n_ended)
		return poll_long(client, events, max);
	slot = ring_peek(&client->completions, &word_0);
	if (slot)
		return poll_plain(client, slot, word_0, events, max);
	if (client_owes_fence(client) || client->polls_left <= 1)
		return poll_idle(client, events, max);
	client->polls_left--;
	return 0;
}
