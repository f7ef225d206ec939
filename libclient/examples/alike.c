/* How much alike are texts? The cosine between their embeddings, the mean of the model's last hidden states.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <tokenring/tokenring.h>

enum { TOKENS_MAX = 512 };

static void die(const char *what, const char *why)
{
	fprintf(stderr, "alike: %s: %s\n", what, why);
	exit(1);
}

static void check(int error, const char *what)
{
	if (error < 0)
		die(what, tr_strerror(error));
}

/* The model may still be loading: its width is 0 until it is there. */
static uint32_t width_of(struct tr_client *client)
{
	struct tr_model_info info = {.size = sizeof info};

	check(tr_model_info(client, 0, &info), "tr_model_info");
	while (info.state == TR_MODEL_LOADING) {
		usleep(100000);
		check(tr_model_info(client, 0, &info), "tr_model_info");
	}
	if (info.state != TR_MODEL_READY)
		die("the model", "could not be loaded");
	return info.width;
}

/* Fills `ret` (width). */
static void embed(struct tr_client *client, const char *text, uint32_t width, float *ret)
{
	uint32_t tokens[TOKENS_MAX];
	struct tr_request_extra extra = {
	    .size = sizeof extra, .tokens = tokens, .pool = TR_POOL_MEAN, .n_embedding = width};
	struct tr_request request = {.size = sizeof request, .op = TR_EMBED, .extra = &extra};
	struct tr_event event = {.size = sizeof event};
	uint64_t id;
	size_t n;

	check(tr_tokenize(client, 0, text, strlen(text), TR_TEXT_BOS, tokens, TOKENS_MAX, &n), "tr_tokenize");
	extra.n_tokens = (uint32_t)n;
	check(tr_submit(client, &request, &id), "tr_submit");
	check(tr_wait(client, &event, 1, -1), "tr_wait");
	if (event.kind != TR_EVENT_FINAL || event.status || event.n_embedding != width)
		die(text, tr_strreason(event.reason));
	memcpy(ret, event.embedding, width * sizeof *ret); /* it is the library's until the next call */
}

static double dot(const float *a, const float *b, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += (double)a[i] * b[i];
	return sum;
}

int main(void)
{
	static const char *const texts[] = {"What is the capital of France?",
					    "Which city is the capital of Italy?",
					    "Knead the dough, then let it rise for an hour."};
	struct tr_client *client;
	uint32_t width;
	float *a, *b;

	check(tr_open(&client, NULL, NULL), "tr_open");
	width = width_of(client);
	a = malloc(2 * width * sizeof *a);
	if (!a)
		die("malloc", "no memory");
	b = a + width;
	embed(client, texts[0], width, a);
	for (int i = 1; i < 3; i++) {
		embed(client, texts[i], width, b);
		printf("%.4f  %s\n", dot(a, b, width) / sqrt(dot(a, a, width) * dot(b, b, width)), texts[i]);
	}
	free(a);
	tr_close(client);
	return 0;
}
