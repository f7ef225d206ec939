/* A loop for callgrind: submit, answer, poll, with both ends of the channel in one thread, so that every call
 * does the same each time.
 *
 *   count_instructions ROUNDS N_TOKENS     echoes of N_TOKENS, one after the other
 *   count_instructions ROUNDS N_TOKENS MANY     MANY at a time by tr_submit_many
 *
 * tests/e2e/test_instructions.py runs it and reads the counts. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "libclient/client.h"

enum { SLOTS = 64, INFLIGHT = 32, ARENA_BYTES = 4096 };

struct loop {
	struct tr_client *client;
	struct ring_reader submissions;
	struct ring_writer completions;
};

static void must(int condition, const char *what)
{
	if (!condition) {
		fprintf(stderr, "count_instructions: %s\n", what);
		exit(1);
	}
}

static void open_loop(struct loop *loop)
{
	struct channel channel = {.socket = -1};
	int sockets[2];

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0, "socketpair");
	must(segment_layout(&channel.layout, SLOTS, SLOTS, INFLIGHT, ARENA_BYTES, 0) == 0 &&
		 segment_create(&channel.segment, &channel.layout, SEGMENT_PAGES_NEVER, NULL, 0) == 0 &&
		 segment_seal(&channel.segment, NULL, 0) == 0,
	     "no channel");
	segment_publish(&channel.segment, &channel.layout);
	store_relaxed_u64(&segment_header(&channel.segment)->heartbeat_ns, clock_now_ns() + UINT32_MAX);
	segment_daemon_rings(&channel.segment, &channel.layout, &loop->submissions, &loop->completions);
	channel.socket = sockets[1];
	must(client_create(&loop->client, NULL) == 0 && client_adopt(loop->client, &channel) == 0,
	     "no client");
}

/* The daemon's end: every request is an echo. Returns how many there were. */
static unsigned answer_all(struct loop *loop)
{
	struct wire_submission request;
	unsigned n = 0;

	for (; ring_read(&loop->submissions, &request); n++) {
		struct wire_completion answer = {
		    .kind = WIRE_KIND_ECHO, .n_tok = request.n_tok, .id = request.id};

		memcpy(answer.tok, request.tok, sizeof answer.tok);
		must(ring_room(&loop->completions) || ring_writer_refresh(&loop->completions), "no room");
		ring_publish(&loop->completions, &answer);
	}
	ring_reader_publish(&loop->submissions);
	return n;
}

static void one_by_one(struct loop *loop, unsigned rounds, struct tr_request *request)
{
	struct tr_event event = {.size = sizeof event};
	uint64_t id;

	for (unsigned i = 0; i < rounds; i++) {
		request->tokens[0] = i;
		must(tr_submit(loop->client, request, &id) == 0, "tr_submit");
		must(answer_all(loop) == 1, "a request is lost");
		must(tr_poll(loop->client, &event, 1) == 1, "tr_poll");
		must(event.id == id && event.tokens[0] == (request->n_tokens ? i : 0), "another answer");
	}
}

static void many_at_once(struct loop *loop, unsigned rounds, const struct tr_request *request, unsigned many)
{
	struct tr_request requests[INFLIGHT];
	struct tr_event events[INFLIGHT] = {{.size = sizeof events[0]}};
	uint64_t ids[INFLIGHT];

	must(many <= INFLIGHT, "too many");
	for (unsigned i = 0; i < many; i++)
		requests[i] = *request;
	for (unsigned i = 0; i < rounds; i++) {
		must(tr_submit_many(loop->client, requests, many, ids) == (int)many, "tr_submit_many");
		must(answer_all(loop) == many, "a request is lost");
		must(tr_poll(loop->client, events, INFLIGHT) == (int)many, "tr_poll");
		must(events[many - 1].id == ids[many - 1], "another answer");
	}
}

int main(int argc, char **argv)
{
	struct tr_request request = {.size = sizeof request, .op = TR_ECHO};
	struct loop loop = {0};

	must(argc >= 3, "usage: count_instructions ROUNDS N_TOKENS [MANY]");
	request.n_tokens = (uint8_t)atoi(argv[2]);
	open_loop(&loop);
	if (argc > 3)
		many_at_once(&loop, (unsigned)atoi(argv[1]), &request, (unsigned)atoi(argv[3]));
	else
		one_by_one(&loop, (unsigned)atoi(argv[1]), &request);
	tr_close(loop.client);
	return 0;
}
