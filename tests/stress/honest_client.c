/* honest_client SOCKET: runs its requests alone, says "alone", and after a line on standard input runs them
 * again and again, several at once, until standard input ends. Every answer must have the bits that it had
 * alone, and come within PATIENCE_S. Prints how long answers, echoes and connections took, as one JSON
 * object.
 *
 * Exits with 1, and a sentence, when an answer differs, is missing, refused or late. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libclient/include/tokenring/tokenring.h"

enum {
	KINDS = 24,
	AT_ONCE = 6,
	TOKENS_MAX = 64,
	SCORED_MAX = 256,
	WIDTH_MAX = 1024,
	PATIENCE_S = 30,
	FAST_OPENS = 10,
	FAST_S = 1,
	SLOW_S = 20, /* closed channels count against the user's memory while it runs */
	SAMPLES = 1 << 20
};

struct answer {
	uint32_t n_tokens, n_scored, tokens[TOKENS_MAX];
	struct tr_scored scored[SCORED_MAX];
	float embedding[WIDTH_MAX];
	uint32_t n_embedding;
	uint8_t kind, finish;
	bool ended;
};

/* Times of one sort, in ns. */
struct times {
	const char *name;
	uint64_t *ns; /* (SAMPLES) */
	uint32_t n;
};

static struct times answers = {.name = "answers"}, echoes = {.name = "echoes"}, opens = {.name = "opens"};
static struct answer alone[KINDS];
static struct tr_client *client;
static const char *address;
static uint32_t vocab, width;
static uint64_t seed = 7;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "honest client: %s: %s\n", what, why);
	exit(1);
}

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint32_t noise(void)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(seed >> 33);
}

static void note(struct times *times, uint64_t since_ns)
{
	if (times->n < SAMPLES)
		times->ns[times->n++] = clock_ns() - since_ns;
}

static void open_client(void)
{
	struct tr_open_options options = {.size = sizeof options, .timeout_ms = PATIENCE_S * 1000};
	uint64_t before_ns = clock_ns();
	int error = tr_open(&client, address, &options);

	if (error)
		die("cannot connect", strerror(-error));
	note(&opens, before_ns);
}

/* ---- requests ---- */

/* Echo, generate from a slot, generate by a block with a sampler and log-probabilities, score, embed. */
static uint64_t submit(unsigned kind)
{
	uint32_t prompt[TOKENS_MAX], n = 1 + kind * 5 % 40, candidates[3] = {0, kind % vocab, vocab - 1};
	struct tr_sampling sampling = {.size = sizeof sampling,
				       .seed = kind,
				       .temperature = 0.8f,
				       .top_p = 0.9f,
				       .min_p = 0.01f,
				       .penalty = 1.1f,
				       .top_k = 20,
				       .ignore_eos = 1};
	struct tr_request_extra extra = {
	    .size = sizeof extra, .tokens = prompt, .n_tokens = n, .max_new = 4 + kind % 9};
	struct tr_request request = {.size = sizeof request,
				     .n_tokens = 3,
				     .max_new = (uint16_t)(1 + kind % 10),
				     .priority = (uint8_t)(kind % 8),
				     .tokens = {kind % vocab, 1, 2}};
	uint64_t id = 0;
	int error;

	for (uint32_t i = 0; i < n; i++)
		prompt[i] = (kind * 7919 + i * 104729) % vocab;
	switch (kind % 5) {
	case 0:
		request.op = TR_ECHO;
		request.max_new = 0;
		break;
	case 1:
		request.op = TR_GENERATE;
		break;
	case 2:
		request.op = TR_GENERATE;
		extra.sampling = &sampling;
		extra.logprobs = 1;
		extra.n_logprobs = kind % 3;
		break;
	case 3:
		request.op = TR_EMBED;
		extra.max_new = 0;
		extra.pool = kind % 2 ? TR_POOL_MEAN : TR_POOL_LAST;
		extra.n_embedding = width;
		break;
	default:
		request.op = TR_SCORE;
		extra.max_new = 0;
		extra.candidates = candidates;
		extra.n_candidates = 3;
	}
	if (kind % 5 > 1) {
		request.extra = &extra;
		request.n_tokens = 0;
		request.max_new = 0;
		memset(request.tokens, 0, sizeof request.tokens);
	}
	error = tr_submit(client, &request, &id);
	if (error)
		die("cannot submit", strerror(-error));
	return id;
}

static void take(struct answer *answer, const struct tr_event *event)
{
	if (event->kind == TR_EVENT_REFUSED)
		die("refused", tr_strreason(event->reason));
	if (event->n_tokens && event->kind != TR_EVENT_ECHO && event->first != answer->n_tokens)
		die("an answer", "tokens are missing or come twice");
	if (answer->n_tokens + event->n_tokens > TOKENS_MAX || event->n_scored > SCORED_MAX)
		die("an answer", "is longer than was asked");
	memcpy(answer->tokens + answer->n_tokens, event->tokens, event->n_tokens * sizeof event->tokens[0]);
	answer->n_tokens += event->n_tokens;
	if (event->kind == TR_EVENT_TOKENS)
		return;
	if (event->status)
		die("failed", tr_strreason(event->reason));
	/* The terminal has those of the whole answer. */
	answer->n_scored = event->n_scored;
	if (event->n_scored)
		memcpy(answer->scored, event->scored, event->n_scored * sizeof event->scored[0]);
	if (event->n_embedding != 0 && event->n_embedding != width)
		die("an embedding", "has another size");
	answer->n_embedding = event->n_embedding;
	if (event->n_embedding)
		memcpy(answer->embedding, event->embedding, width * sizeof event->embedding[0]);
	answer->kind = event->kind;
	answer->finish = event->finish;
	answer->ended = true;
}

/* Runs `n` requests of the given kinds side by side. */
static void run(const unsigned *kinds, unsigned n, struct answer *ret)
{
	struct tr_event events[16] = {{.size = sizeof events[0]}};
	uint64_t ids[AT_ONCE], begin_ns[AT_ONCE];
	unsigned left = n;

	memset(ret, 0, n * sizeof *ret);
	for (unsigned i = 0; i < n; i++) {
		begin_ns[i] = clock_ns();
		ids[i] = submit(kinds[i]);
	}
	while (left) {
		int got = tr_wait(client, events, 16, PATIENCE_S * INT64_C(1000000000));

		if (got <= 0)
			die("waiting", got == 0 ? "an answer did not come in time" : strerror(-got));
		for (int i = 0; i < got; i++)
			for (unsigned j = 0; j < n; j++)
				if (ids[j] == events[i].id && !ret[j].ended) {
					take(&ret[j], &events[i]);
					left -= ret[j].ended;
					if (ret[j].ended)
						note(kinds[j] % 5 ? &answers : &echoes, begin_ns[j]);
				}
	}
}

/* ---- rounds ---- */

static void run_alone(void)
{
	for (unsigned kind = 0; kind < KINDS; kind++)
		run(&kind, 1, &alone[kind]);
	/* A second time: what is compared must be stable without any company. */
	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct answer again;

		run(&kind, 1, &again);
		if (memcmp(&again, &alone[kind], sizeof again) != 0)
			die("alone", "an answer changed");
	}
}

static void one_round(void)
{
	static struct answer got[AT_ONCE];
	unsigned kinds[AT_ONCE], n = 1 + noise() % AT_ONCE;

	for (unsigned i = 0; i < n; i++)
		kinds[i] = noise() % KINDS;
	run(kinds, n, got);
	for (unsigned i = 0; i < n; i++)
		if (memcmp(&got[i], &alone[kinds[i]], sizeof got[i]) != 0) {
			fprintf(stderr, "kind %u: %u tokens, alone %u\n", kinds[i], got[i].n_tokens,
				alone[kinds[i]].n_tokens);
			die("in company", "an answer differs from the one alone");
		}
}

static void reopen(void)
{
	tr_close(client);
	open_client();
}

static bool input_ended(void)
{
	struct pollfd ready = {.fd = STDIN_FILENO, .events = POLLIN};
	char byte;

	return poll(&ready, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

/* ---- figures ---- */

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void print(struct times *times, const char *after)
{
	uint64_t *ns = times->ns;
	uint32_t n = times->n;

	qsort(ns, n, sizeof *ns, by_size);
	printf("\"%s\": {\"n\": %u, \"p50_us\": %" PRIu64 ", \"p99_us\": %" PRIu64 ", \"max_us\": %" PRIu64
	       "}%s",
	       times->name, n, n ? ns[n / 2] / 1000 : 0, n ? ns[n - 1 - n / 100] / 1000 : 0,
	       n ? ns[n - 1] / 1000 : 0, after);
}

int main(int argc, char **argv)
{
	struct times *all[] = {&answers, &echoes, &opens};
	struct tr_model_info model = {.size = sizeof model};
	uint64_t next_open_ns = 0;
	unsigned rounds = 0;
	char line[16];

	if (argc != 2)
		die("usage", "honest_client SOCKET");
	address = argv[1];
	for (unsigned i = 0; i < 3; i++)
		all[i]->ns = malloc(SAMPLES * sizeof(uint64_t));
	open_client();
	if (tr_model_info(client, 0, &model) || model.state != TR_MODEL_READY)
		die("model", "it is not ready");
	vocab = model.vocab;
	width = model.width;
	if (width == 0 || width > WIDTH_MAX)
		die("the model", "has a width of 0 or above 1024");
	run_alone();
	reopen(); /* so that what a closed channel leaves at the daemon is there from the beginning */
	for (unsigned i = 0; i < 3; i++)
		all[i]->n = 0;
	printf("alone\n");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 0;
	while (!input_ended()) {
		one_round();
		rounds++;
		if (clock_ns() >= next_open_ns) {
			reopen();
			next_open_ns =
			    clock_ns() + (opens.n < FAST_OPENS ? FAST_S : SLOW_S) * UINT64_C(1000000000);
		}
	}
	printf("{\"rounds\": %u, ", rounds);
	print(&answers, ", ");
	print(&echoes, ", ");
	print(&opens, "}\n");
	tr_close(client);
	return 0;
}
