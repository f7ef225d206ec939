/* What a hostile client writes into the memory that it shares. */
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/stress/hostile.h"

enum { UNITS = 64 /* of the arena, where crafted blocks lie */, BURST = 200, RACES = 20000 };

/* ---- noise ---- */

static void fill(struct hostile *hostile, unsigned char *at, size_t bytes)
{
	if (hostile_below(hostile, 3) == 0) {
		memset(at, hostile_below(hostile, 2) ? 0xff : 0, bytes);
		return;
	}
	for (size_t i = 0; i + 4 <= bytes; i += 4) {
		uint32_t word = hostile_random(hostile);

		memcpy(at + i, &word, 4);
	}
}

void hostile_scribble(struct hostile *hostile)
{
	unsigned char *base = hostile->segment.base;
	const struct segment_layout *layout = &hostile->layout;

	switch (hostile_below(hostile, 6)) {
	case 0:
		fill(hostile, base, hostile->segment.bytes);
		break;
	case 1:
		fill(hostile, base, 4096); /* the header */
		break;
	case 2:
		fill(hostile, base + layout->sq_off, (size_t)layout->sq_slots * WIRE_SLOT_BYTES);
		break;
	case 3:
		fill(hostile, base + layout->cq_off, (size_t)layout->cq_slots * WIRE_SLOT_BYTES);
		break;
	case 4:
		fill(hostile, base + layout->arena_off, layout->arena_bytes);
		break;
	default: /* single words anywhere */
		for (uint32_t i = hostile_below(hostile, 1000); i > 0; i--)
			fill(hostile, base + hostile_below(hostile, (uint32_t)hostile->segment.bytes / 4) * 4,
			     4);
	}
}

/* ---- requests ---- */

/* Right but for a few words. */
static void write_block(struct hostile *hostile, uint32_t unit)
{
	uint32_t tokens = 1 + hostile_below(hostile, 80);
	struct wire_block block = {
	    .bytes = 72 + 16 + tokens * 4,
	    .version = WIRE_BLOCK_VERSION,
	    .n_tokens = tokens,
	    .tokens_off = 88,
	    .max_new = 1 + hostile_below(hostile, 8),
	    .temperature = (float)hostile_below(hostile, 3),
	    .top_p = 1,
	    .penalty = 1,
	    .reply_off = (uint32_t)(hostile->layout.arena_off / 64 + UNITS + hostile_below(hostile, 64)),
	    .reply_cap = hostile_below(hostile, 2) ? 16 + 8 * 8 : 4096,
	};
	struct wire_tlv option = {.type = WIRE_TLV_STOP_IDS, .bytes = 8};
	unsigned char *at = hostile->segment.base + hostile->layout.arena_off + unit * 64;
	uint32_t words[sizeof block / 4];

	memcpy(words, &block, sizeof words);
	for (uint32_t i = hostile_below(hostile, 3); i > 0; i--)
		words[hostile_below(hostile, sizeof block / 4)] =
		    hostile_below(hostile, 2) ? hostile_random(hostile) : hostile_below(hostile, 4096);
	memcpy(at, words, sizeof words);
	if (hostile_below(hostile, 4) == 0)
		option.type = (uint16_t)hostile_below(hostile, 9);
	if (hostile_below(hostile, 8) == 0)
		option.bytes = hostile_random(hostile);
	memcpy(at + 72, &option, sizeof option);
	memset(at + 80, 0, 8 + tokens * 4);
}

static struct wire_submission any_slot(struct hostile *hostile)
{
	static const uint8_t ops[] = {WIRE_OP_GENERATE, WIRE_OP_GENERATE, WIRE_OP_GENERATE, WIRE_OP_ECHO,
				      WIRE_OP_ECHO,     WIRE_OP_CANCEL,   WIRE_OP_SCORE,    WIRE_OP_EMBED};
	uint64_t index = hostile->order % hostile->layout.max_inflight;
	struct wire_submission slot = {
	    .op = ops[hostile_below(hostile, sizeof ops)],
	    .n_tok = 1,
	    .id = hostile->order++ << 16 | index,
	    .max_new = (uint16_t)(1 + hostile_below(hostile, hostile_below(hostile, 4) ? 6 : 400)),
	    .flags = (uint8_t)hostile_below(hostile, 8),
	    .tok = {hostile_below(hostile, 100)},
	};

	if (slot.op == WIRE_OP_CANCEL)
		slot = (struct wire_submission){.op = WIRE_OP_CANCEL,
						.tok = {(uint32_t)(hostile->order - 2) << 16, 0}};
	if (hostile_below(hostile, 16) == 0)
		slot.deadline_ns = hostile_random(hostile);
	if (hostile_below(hostile, 300) ==
	    0) /* an id that is wrong ends the channel: seldom, or nothing else is tried */
		slot.id = hostile_random(hostile);
	return slot;
}

/* Publishes whether there is room or not. */
static void submit(struct hostile *hostile, const struct wire_submission *slot)
{
	const struct wire_header *header = segment_header(&hostile->segment);
	char byte = 0;

	ring_publish(&hostile->submissions, slot);
	if (load_relaxed_u32(&header->daemon_sleep) & 1 &&
	    send(hostile->fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
}

/* The words that the client owns of the header. */
static void touch_header(struct hostile *hostile)
{
	struct wire_header *header = segment_header(&hostile->segment);

	if (hostile_below(hostile, 4) == 0)
		store_release_u64(&header->cq_consumed,
				  hostile->completions.index + hostile_below(hostile, 600));
	store_relaxed_u32(&header->client_sleep, hostile_random(hostile) | 1);
}

static void drain_completions(struct hostile *hostile)
{
	struct wire_completion completion;

	for (int i = 0; i < BURST && ring_read(&hostile->completions, &completion); i++)
		;
	ring_reader_publish(&hostile->completions);
}

static void one_request(struct hostile *hostile)
{
	struct wire_submission slot = any_slot(hostile);
	uint32_t unit = hostile_below(hostile, UNITS);

	if (hostile_below(hostile, 2) && slot.op != WIRE_OP_CANCEL) {
		write_block(hostile, unit);
		slot.block = (uint32_t)(hostile->layout.arena_off / 64 + unit);
		slot.n_tok = 0;
		slot.tok[0] = 0;
	}
	if (hostile_below(hostile, 40) == 0)
		((unsigned char *)&slot)[4 + hostile_below(hostile, 60)] =
		    (unsigned char)hostile_random(hostile);
	submit(hostile, &slot);
	if (slot.block && hostile_below(hostile, 2))
		write_block(hostile, unit); /* while it is being read */
}

void hostile_requests(struct hostile *hostile)
{
	bool reads = hostile_below(hostile, 3); /* else it never reads */
	uint32_t most = 1 + hostile_below(hostile, hostile_below(hostile, 3) ? 8 : BURST);

	for (uint32_t i = 0; i < most; i++) {
		one_request(hostile);
		if (hostile_below(hostile, 32) == 0)
			touch_header(hostile);
	}
	usleep(hostile_below(hostile, 3000));
	if (reads)
		drain_completions(hostile);
}

/* As many long answers as it may ask for, none of them collected. */
void hostile_hoard(struct hostile *hostile)
{
	for (uint32_t i = 0; i < hostile->layout.max_inflight; i++) {
		struct wire_submission slot = {.op = WIRE_OP_GENERATE,
					       .n_tok = 1,
					       .id = hostile->order << 16 |
						     hostile->order % hostile->layout.max_inflight,
					       .max_new = 500,
					       .tok = {1 + hostile_below(hostile, 50)}};

		hostile->order++;
		submit(hostile, &slot);
	}
	usleep(hostile_below(hostile, hostile_below(hostile, 8) ? 5000 : 400000));
	drain_completions(hostile);
}

/* ---- races ---- */

struct racer {
	struct hostile hostile; /* its own numbers, the same channel */
	shared_u32 stop;
};

/* Flips single fields of what was just submitted, again and again: a value that is read twice is seen twice.
 */
static void *race(void *argument)
{
	struct racer *racer = argument;
	struct hostile *hostile = &racer->hostile;
	const struct segment_layout *layout = &hostile->layout;
	unsigned char *base = hostile->segment.base;

	for (int i = 0; i < RACES && !load_relaxed_u32(&racer->stop); i++) {
		unsigned char *block = base + layout->arena_off + hostile_below(hostile, UNITS) * 64;
		unsigned char *slot = base + layout->sq_off + hostile_below(hostile, layout->sq_slots) * 64;
		unsigned char *word = hostile_below(hostile, 4) ? block + hostile_below(hostile, 24) * 4
								: slot + 4 + hostile_below(hostile, 15) * 4;
		shared_u32 *shared = (shared_u32 *)(void *)word;
		uint32_t before = load_relaxed_u32(shared);

		store_relaxed_u32(shared, hostile_below(hostile, 2) ? hostile_random(hostile) : 0x7fffffff);
		if (hostile_below(hostile, 8))
			store_relaxed_u32(shared, before);
	}
	return NULL;
}

void hostile_race(struct hostile *hostile)
{
	struct racer racer = {.hostile = *hostile};
	pthread_t thread;

	racer.hostile.seed ^= 0x5bd1e995;
	if (pthread_create(&thread, NULL, race, &racer))
		return;
	for (uint32_t i = hostile_below(hostile, 20); i > 0; i--)
		hostile_requests(hostile);
	store_relaxed_u32(&racer.stop, 1);
	pthread_join(thread, NULL);
}
