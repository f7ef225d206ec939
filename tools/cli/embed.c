/* tokenring embed: texts in, one vector each out. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/connect.h"
#include "tools/cli/input.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/json.h"
#include "tools/cli/patience.h"
#include "tools/cli/prompt.h"

enum { EVENTS = 4 };

struct embed_options {
	struct common common;
	const char *pool;
	bool json, special;
};

struct embed {
	const struct embed_options *options;
	struct tr_client *client;
	struct tr_model_info model;
	uint32_t pool;
};

static void print_floats(const struct tr_event *event, char between)
{
	for (uint32_t i = 0; i < event->n_embedding; i++) { /* nine digits are every bit of a float */
		if (i)
			putchar(between);
		printf("%.9g", (double)event->embedding[i]);
	}
}

static void print(const struct embed *e, const struct tr_event *event, size_t n_tokens)
{
	if (!e->options->json) {
		print_floats(event, ' ');
		putchar('\n');
		return;
	}
	printf("{\"tokens\":%zu,\"pool\":\"%s\",\"model\":", n_tokens, e->options->pool);
	json_print_text(stdout, e->model.name);
	printf(",\"numerics\":");
	json_print_text(stdout, e->model.numerics);
	printf(",\"embedding\":[");
	print_floats(event, ',');
	printf("]}\n");
}

static enum exit_code await(const struct embed *e, uint64_t id, size_t n_tokens)
{
	struct tr_event events[EVENTS] = {{.size = sizeof events[0]}};
	struct patience patience = {0};
	for (;;) {
		if (interrupt_count())
			return complain("interrupted");
		int n = patient_wait(&patience, e->client, events, EVENTS, 100000000);
		if (n < 0 && n != -EINTR)
			return complain_call(e->client, "an answer breaks off", n);
		for (int i = 0; i < n; i++) {
			if (events[i].id != id)
				continue;
			if (events[i].kind == TR_EVENT_REFUSED || events[i].status)
				return complain_event(&events[i]);
			print(e, &events[i], n_tokens);
			return EXIT_DONE;
		}
	}
}

static enum exit_code submit(const struct embed *e, const struct tokens *tokens)
{
	struct tr_request_extra extra = {
	    .size = sizeof extra,
	    .n_tokens = (uint32_t)tokens->n,
	    .tokens = tokens->id,
	    .pool = e->pool,
	    .n_embedding = e->model.width,
	};
	struct tr_request request = {.size = sizeof request, .op = TR_EMBED, .extra = &extra};
	uint64_t id;
	int r = tr_submit(e->client, &request, &id);
	if (r == -E2BIG)
		return complain(
		    "the text does not fit the channel's arena; arena_bytes of the daemon sets its size");
	return r ? complain_call(e->client, "cannot submit the request", r) : await(e, id, tokens->n);
}

static enum exit_code embed_text(const struct embed *e, const char *argument)
{
	uint32_t flags = TR_TEXT_BOS | (e->options->special ? TR_TEXT_SPECIAL : 0);
	struct tokens tokens = {0};
	struct input input;
	enum exit_code code = input_read(argument, &input);
	if (code)
		return code;
	code = tokens_append_text(e->client, &tokens, input.text, input.bytes, flags);
	if (!code && !tokens.n)
		code = complain("a text without tokens has no embedding");
	if (!code)
		code = submit(e, &tokens);
	tokens_free(&tokens);
	input_free(&input);
	return code;
}

static enum exit_code run_embed(const void *options, const struct positionals *arguments)
{
	struct embed e = {.options = options};
	if (strcmp(e.options->pool, "last") != 0 && strcmp(e.options->pool, "mean") != 0)
		return complain_usage(&verb_embed, "--pool is last or mean, not \"%s\"", e.options->pool);
	e.pool = strcmp(e.options->pool, "mean") == 0 ? TR_POOL_MEAN : TR_POOL_LAST;
	interrupt_watch();
	enum exit_code code = connect_ready(e.options->common.socket, &e.client, &e.model);
	if (code)
		return code;
	if (!arguments->n)
		code = embed_text(&e, NULL);
	for (size_t i = 0; i < arguments->n && !code; i++)
		code = embed_text(&e, arguments->text[i]);
	tr_close(e.client);
	return code;
}

#define FIELD(name) offsetof(struct embed_options, name)
static const struct option_row rows[] = {
    {"pool", 'p', OPTION_TEXT, FIELD(pool), "WHICH", 0, 0, "last or mean; of the last token unless given"},
    {"json", 0, OPTION_FLAG, FIELD(json), NULL, 0, 0, "one JSON object a line"},
    {"special", 0, OPTION_FLAG, FIELD(special), NULL, 0, 0, "read special tokens in the texts as such"},
    COMMON_OPTIONS,
};

const struct verb verb_embed = {
    .name = "embed",
    .arguments = "[TEXT...|-]",
    .summary = "print the embedding of each text",
    .notes = "Without TEXT, or with \"-\", a text is read from standard input. The floats of a text stand on "
	     "one line;\n"
	     "they are the model's last hidden state after its final norm, not normalised.\n",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct embed_options){.pool = "last"},
    .bytes = sizeof(struct embed_options),
    .max_arguments = SIZE_MAX,
    .handler = run_embed,
};
