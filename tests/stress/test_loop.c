/* The whole daemon but for the model, in this process, with clients on threads, each channel in one mapping:
 * front and engine on one thread and on two. Every answer equals the answer by definition, whoever cancels or
 * leaves beside it. */
#include "tests/unit/engine_backend.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "daemon/control/server.h"
#include "daemon/engine/loop.h"
#include "tests/harness/one_mapping.h"
#include "tests/harness/scratch.h"
#include <tokenring/tokenring.h>

enum { CLIENTS = 5, IN_FLIGHT = 6, TABLE = 128 };

static uint32_t rounds = 12;

struct stage {
	struct engine_link link;
	struct loop *loop;
	struct front *front;
	struct engine *engine;
	struct server *server;
	struct program program;
	struct tape tape;
	char folder[64], path[96], why[256];
};

static uint64_t test_clock(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void set_up_link(struct stage *s)
{
	s->link.n_requests = TABLE;
	s->link.requests = calloc(TABLE, sizeof(struct request));
	assert_non_null(s->link.requests);
	for (uint32_t i = 0; i < TABLE; i++)
		s->link.requests[i].index = i;
	assert_int_equal(queue_init(&s->link.commands, 2 * TABLE, sizeof(struct engine_command)), 0);
	assert_int_equal(queue_init(&s->link.events, 16384, sizeof(struct engine_event)), 0);
}

static void set_model(struct stage *s)
{
	struct engine_model model = {.program = &s->program, .tape = &s->tape, .max_prompt = 200};

	s->tape = (struct tape){.vocab = VOCAB, .width = WIDTH, .context = CONTEXT, .n_groups = 1};
	s->program.poll = loop_poll;
	s->program.poll_data = s->loop;
	model.limits = (struct tape_limits){.rows = ROWS,
					    .sequences = SEQUENCES,
					    .outputs = ROWS,
					    .logits = LOGITS,
					    .context = CONTEXT,
					    .blocks = {BLOCKS}};
	assert_int_equal(engine_set_model(s->engine, &model, s->why, sizeof(s->why)), 0);
	loop_ring(s->loop);
}

static void begin(struct stage *s, bool separate)
{
	struct loop_config loop = {.separate = separate, .engine_cpu = -1, .front_cpu = -1, .spin_ns = 50000};
	struct front_config front = {
	    .max_clients = 64, .block_bytes = 8 << 20, .spin_ns = 50000, .client_stall_ns = 5000000000u};
	struct engine_config engine = {.link = &s->link, .clock = test_clock};
	struct server_config server = {.mode = 0600,
				       .max_clients = 64,
				       .max_clients_per_uid = 64,
				       .max_half_open_per_uid = 64,
				       .memory_per_uid_bytes = 1 << 30,
				       .map_timeout_ms = 5000,
				       .sq_slots = 64,
				       .cq_slots = 256,
				       .max_inflight = 32,
				       .arena_bytes = 1 << 20,
				       .pages = SEGMENT_PAGES_NEVER,
				       .epoch = 7};

	memset(s, 0, sizeof(*s));
	set_up_link(s);
	assert_int_equal(loop_create(&s->loop, &loop), 0);
	front.engine_wake = separate ? loop_wake_engine : NULL;
	front.engine = s->loop;
	assert_int_equal(front_create(&s->front, &front, &s->link, s->why, sizeof(s->why)), 0);
	engine.poll = loop_poll;
	engine.poll_data = s->loop;
	assert_int_equal(engine_create(&s->engine, &engine), 0);
	assert_non_null(mkdtemp(scratch_path(s->folder, sizeof(s->folder), "tokenring-loop")));
	snprintf(s->path, sizeof(s->path), "%s/socket", s->folder);
	server.path = s->path;
	assert_int_equal(server_create(&s->server, &server, s->front, s->why, sizeof(s->why)), 0);
	assert_int_equal(server_start(s->server), 0);
	assert_int_equal(loop_start(s->loop, s->front, s->engine), 0);
}

static void end(struct stage *s)
{
	server_close_listener(s->server);
	front_drain(s->front, test_clock() + 5000000000u);
	assert_int_equal(loop_join(s->loop, 0), 0);
	assert_int_equal(load_relaxed_u64(&engine_counts(s->engine)->kv_blocks_used), 0);
	server_free(s->server);
	engine_free(s->engine);
	front_free(s->front);
	loop_free(s->loop);
	queue_free(&s->link.commands);
	queue_free(&s->link.events);
	free(s->link.requests);
	rmdir(s->folder);
}

/* ---- clients ---- */

struct in_flight {
	uint64_t id; /* 0: free */
	uint32_t tokens[CONTEXT], n, max_new, got;
	bool cancelled;
};

struct client {
	pthread_t thread;
	const char *path;
	unsigned seed;
	const char *failure; /* NULL: all went well */
};

#define EXPECT(condition)                             \
	do {                                          \
		if (!(condition)) {                   \
			client->failure = #condition; \
			return false;                 \
		}                                     \
	} while (0)

static bool submit(struct client *client, struct tr_client *tr, struct in_flight *one)
{
	struct tr_request request = {.size = sizeof(request), .op = TR_GENERATE};
	struct tr_sampling greedy = {.size = sizeof(greedy), .top_p = 1, .penalty = 1, .ignore_eos = 1};
	struct tr_request_extra extra = {.size = sizeof(extra), .sampling = &greedy, .tokens = one->tokens};

	*one = (struct in_flight){.n = 1 + (uint32_t)rand_r(&client->seed) % 60,
				  .max_new = 1 + (uint32_t)rand_r(&client->seed) % 100};
	for (uint32_t i = 0; i < one->n; i++)
		one->tokens[i] = (uint32_t)rand_r(&client->seed) % VOCAB;
	extra.n_tokens = one->n;
	extra.max_new = one->max_new;
	request.extra = &extra;
	EXPECT(tr_submit(tr, &request, &one->id) == 0);
	one->cancelled = rand_r(&client->seed) % 8 == 0;
	if (one->cancelled)
		EXPECT(tr_cancel(tr, one->id) == 0);
	continue_greedily(one->tokens, one->n, one->max_new);
	return true;
}

static bool check_event(struct client *client, struct in_flight *flights, const struct tr_event *event)
{
	struct in_flight *one = flights;

	while (one < flights + IN_FLIGHT && one->id != event->id)
		one++;
	EXPECT(one < flights + IN_FLIGHT);
	EXPECT(event->kind == TR_EVENT_TOKENS || event->kind == TR_EVENT_FINAL);
	EXPECT(event->n_tokens == 0 || event->first == one->got);
	EXPECT(one->got + event->n_tokens <= one->max_new);
	EXPECT(!memcmp(event->tokens, one->tokens + one->n + one->got, event->n_tokens * sizeof(uint32_t)));
	one->got += event->n_tokens;
	if (event->kind == TR_EVENT_TOKENS)
		return true;
	EXPECT(event->finish == TR_FINISH_LENGTH || (one->cancelled && event->finish == TR_FINISH_CANCELLED));
	EXPECT(event->finish == TR_FINISH_CANCELLED || one->got == one->max_new);
	one->id = 0;
	return true;
}

static bool run_rounds(struct client *client, struct tr_client *tr)
{
	struct in_flight flights[IN_FLIGHT] = {0};
	uint32_t started = 0, ended = 0, total = rounds * IN_FLIGHT;
	struct tr_event events[16] = {{.size = sizeof(*events)}};

	while (ended < total) {
		int n;

		for (uint32_t i = 0; i < IN_FLIGHT && started < total; i++) {
			if (flights[i].id)
				continue;
			if (!submit(client, tr, &flights[i]))
				return false;
			started++;
		}
		n = tr_wait(tr, events, 16, 60000000000);
		EXPECT(n > 0);
		for (int i = 0; i < n; i++) {
			if (!check_event(client, flights, &events[i]))
				return false;
			ended += events[i].kind == TR_EVENT_FINAL;
		}
	}
	return true;
}

/* Every other client leaves with requests in flight and comes back. */
static void *run_client(void *data)
{
	struct client *client = data;
	struct tr_client *tr;

	for (int life = 0; life < 3 && !client->failure; life++) {
		struct in_flight left;

		if (tr_open(&tr, client->path, NULL)) {
			client->failure = "tr_open";
			break;
		}
		run_rounds(client, tr);
		if (!client->failure && client->seed % 2)
			submit(client, tr, &left);
		tr_close(tr);
	}
	return NULL;
}

static void run_placement(bool separate)
{
	static struct stage stage;
	struct client clients[CLIENTS];

	begin(&stage, separate);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		clients[i] = (struct client){.path = stage.path, .seed = i + 1};
		assert_int_equal(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
	}
	set_model(&stage); /* the first requests wait for it */
	for (uint32_t i = 0; i < CLIENTS; i++)
		pthread_join(clients[i].thread, NULL);
	for (uint32_t i = 0; i < CLIENTS; i++)
		if (clients[i].failure)
			fail_msg("client %u: %s", i, clients[i].failure);
	end(&stage);
	assert_int_equal(stage.program.largest_batch, SEQUENCES);
	assert_true(one_mapping_shared() >= CLIENTS);
}

static void test_shared(void **state)
{
	run_placement(false);
}

static void test_separate(void **state)
{
	run_placement(true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_shared),
	    cmocka_unit_test(test_separate),
	};

	if (argc > 1)
		rounds = (uint32_t)atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
