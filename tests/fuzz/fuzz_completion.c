/* Completions and replies of a hostile daemon: the client ends the channel or hands out events within their
 * bounds, and its own tables stay sound. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INFLIGHT = 8, ARENA_BYTES = 8192, COMPLETIONS_MAX = 24 };

static struct tr_client *client;
static struct ring_writer answers;
static struct ring_reader requests;

/* Its tables hang on a mapping, in which a leak checker looks for no pointers. */
static void close_client(void)
{
	tr_close(client);
}

/* One client for all inputs; a channel that an input ended is replaced. */
static void open_channel(void)
{
	static int sockets[2] = {-1, -1};
	struct channel channel = {.socket = -1};

	if (!client)
		atexit(close_client);
	tr_close(client);
	close(sockets[0]);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0 ||
	    segment_layout(&channel.layout, 16, 32, INFLIGHT, ARENA_BYTES, 0) < 0 ||
	    segment_create(&channel.segment, &channel.layout, SEGMENT_PAGES_NEVER, NULL, 0) < 0 ||
	    segment_seal(&channel.segment, NULL, 0) < 0)
		exit(1);
	segment_publish(&channel.segment, &channel.layout);
	store_relaxed_u64(&segment_header(&channel.segment)->heartbeat_ns, clock_now_ns() + UINT32_MAX);
	segment_daemon_rings(&channel.segment, &channel.layout, &requests, &answers);
	channel.socket = sockets[1];
	/* The other socket stays open meanwhile: a hang-up is not what is tested here. */
	if (client_create(&client, NULL) < 0 || client_adopt(client, &channel) < 0)
		exit(1);
}

static void submit_some(void)
{
	uint32_t candidates[4] = {1, 2, 3, 4};
	struct tr_request_extra extra = {.size = sizeof extra, .max_new = 4, .logprobs = 1};
	struct tr_request request = {.size = sizeof request, .op = TR_GENERATE, .n_tokens = 1, .max_new = 4};
	uint64_t id;

	tr_submit(client, &request, &id);
	request.extra = &extra;
	tr_submit(client, &request, &id);
	request.op = TR_SCORE;
	extra.candidates = candidates;
	extra.n_candidates = 4;
	extra.logprobs = 0;
	tr_submit(client, &request, &id);
	request.op = TR_EMBED;
	extra.n_candidates = 0;
	extra.n_embedding = 9;
	tr_submit(client, &request, &id);
}

static void check_event(const struct tr_event *event)
{
	const unsigned char *from = (const unsigned char *)event->scored, *base = client->segment.base;
	volatile float sink = 0;

	if (event->n_tokens > TR_INLINE_TOKENS || event->kind < TR_EVENT_ECHO ||
	    event->kind > TR_EVENT_SESSION)
		abort();
	if (event->n_scored && (from < base + client->layout.arena_off ||
				from + event->n_scored * sizeof *event->scored > base + client->layout.bytes))
		abort();
	from = (const unsigned char *)event->embedding;
	if (event->n_embedding &&
	    (from < base + client->layout.arena_off ||
	     from + event->n_embedding * sizeof *event->embedding > base + client->layout.bytes))
		abort();
	for (uint32_t i = 0; i < event->n_embedding; i++)
		sink += event->embedding[i];
	for (uint32_t i = 0; i < event->n_scored; i++)
		sink += event->scored[i].value;
	(void)sink;
}

static void check_tables(void)
{
	uint32_t busy = 0;

	for (uint32_t i = 0; i < INFLIGHT; i++)
		busy += client->ids[i] != NO_ID;
	if (busy + client->gate.n_free != INFLIGHT || client->n_ended > INFLIGHT)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_submission seen;

	if (!client || !client->gate.open)
		open_channel();
	while (ring_read(&requests, &seen))
		ring_reader_publish(&requests);
	submit_some();
	for (int n = 0; n < COMPLETIONS_MAX && size > 64; n++, data += 64, size -= 64) {
		struct tr_event event = {.size = sizeof event};
		struct wire_completion answer;
		const struct flight *flight = &client->flights[data[0] % INFLIGHT];

		memcpy(&answer, data, sizeof answer);
		/* Most inputs name a request in flight, and some write its reply area. */
		if (data[0] & 64)
			answer.id = client->ids[data[0] % INFLIGHT];
		if (data[0] & 128 && flight->reply_off && size >= 64 + sizeof(struct wire_reply))
			memcpy(client->segment.base + flight->reply_off * 64ull, data + 64,
			       sizeof(struct wire_reply));
		if (ring_room(&answers) == 0 && !ring_writer_refresh(&answers))
			abort();
		ring_publish(&answers, &answer);
		if (tr_poll(client, &event, 1) == 1)
			check_event(&event);
		if (!client->gate.open)
			break;
		check_tables();
	}
	return 0;
}
