#include "tools/cli/answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/cli/connect.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/json.h"
#include "tools/cli/patience.h"

enum { EVENTS = 16, TEXT_BYTES = 8192 };

/* `first`: the chosen token; what follows until the next first are the likeliest ones. */
struct answer_scored {
	uint32_t id;
	float value;
	bool first;
};

uint64_t answer_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The sink of the text stream. stdio would hold the text back or lose the error. */
static int write_text(void *context, const char *text, size_t bytes)
{
	struct answer *a = context;
	while (bytes) {
		ssize_t n = write(STDOUT_FILENO, text, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		a->last_byte = text[n - 1];
		text += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int detokenize(struct answer *a, const uint32_t *tokens, size_t n, char *text, size_t *ret_bytes)
{
	return tr_detokenize(a->client, 0, tokens, n, a->text_flags, text, TEXT_BYTES, ret_bytes);
}

static int take_tokens(struct answer *a, const struct tr_event *event)
{
	char text[TEXT_BYTES];
	size_t bytes = 0;
	if (!event->n_tokens)
		return 0;
	a->last_ns = answer_now_ns();
	if (!a->n_tokens)
		a->first_ns = a->last_ns;
	a->n_tokens += event->n_tokens;
	if (a->text.stopped || a->output_error)
		return 0;
	int r = detokenize(a, event->tokens, event->n_tokens, text, &bytes);
	if (r)
		return r;
	a->output_error = text_stream_push(&a->text, text, bytes);
	return 0;
}

static int keep_scored(struct answer *a, const struct tr_event *event)
{
	if (!a->show_logprobs || !event->n_scored)
		return 0;
	if (event->kind == TR_EVENT_FINAL)
		a->n_scored = 0; /* it carries the records of the whole answer, the earlier ones again */
	if (a->n_scored + event->n_scored > a->scored_capacity) {
		size_t capacity = 2 * (a->n_scored + event->n_scored);
		struct answer_scored *scored = realloc(a->scored, capacity * sizeof *scored);
		if (!scored)
			return -ENOMEM;
		a->scored = scored;
		a->scored_capacity = capacity;
	}
	for (uint32_t i = 0; i < event->n_scored; i++)
		a->scored[a->n_scored++] = (struct answer_scored){event->scored[i].id, event->scored[i].value,
								  i % event->scored_stride == 0};
	return 0;
}

/* Cancels once there is a cause; -EAGAIN (the ring is full) is tried again with the next event. */
static void cancel_if_due(struct answer *a, uint64_t id)
{
	bool unwanted = interrupt_count() || a->output_error;
	if (a->cancel_sent || (!unwanted && !a->text.stopped))
		return;
	a->cancelled = unwanted;
	if (tr_cancel(a->client, id) == 0) {
		a->cancel_sent = true;
		tr_flush(a->client);
	}
}

static void end_line(const struct answer *a)
{
	if (a->end_line && !a->output_error && a->last_byte && a->last_byte != '\n')
		puts("");
	fflush(stdout);
}

static enum exit_code break_off(const struct answer *a, const char *what, int error)
{
	end_line(a);
	return complain_call(a->client, what, error);
}

static enum exit_code finish(struct answer *a, const struct tr_event *event)
{
	a->finish = event->finish;
	int r = a->output_error ? 0 : text_stream_end(&a->text);
	if (!a->output_error)
		a->output_error = r;
	end_line(a);
	if (a->output_error)
		return complain("standard output cannot be written: %s", strerror(-a->output_error));
	if (event->kind == TR_EVENT_REFUSED)
		return complain_event(event);
	if (a->text.stopped)
		return EXIT_DONE;
	switch (event->finish) {
	case TR_FINISH_STOP:
	case TR_FINISH_LENGTH:
	case TR_FINISH_DONE:
		return EXIT_DONE;
	case TR_FINISH_CANCELLED:
		return complain("cancelled after %zu tokens", a->n_tokens);
	case TR_FINISH_DEADLINE:
		return complain("the deadline passed after %zu tokens", a->n_tokens);
	case TR_FINISH_SHUTDOWN:
		return complain("the daemon is stopping; the answer ends after %zu tokens", a->n_tokens);
	default:
		return complain_event(event);
	}
}

static bool is_terminal(const struct tr_event *event)
{
	return event->kind != TR_EVENT_TOKENS;
}

static enum exit_code stream_events(struct answer *a, uint64_t id)
{
	struct tr_event events[EVENTS] = {{.size = sizeof events[0]}};
	struct patience patience = {0};
	for (;;) {
		cancel_if_due(a, id);
		int n = patient_wait(&patience, a->client, events, EVENTS, 100000000);
		if (n == -EINTR)
			continue;
		if (n < 0)
			return break_off(a, "the answer breaks off", n);
		for (int i = 0; i < n; i++) {
			const struct tr_event *event = &events[i];
			if (event->id != id)
				continue;
			/* Before the tokens: detokenizing is a call that may release the records. */
			int r = keep_scored(a, event);
			if (!r)
				r = take_tokens(a, event);
			if (r)
				return break_off(a, "cannot show the answer", r);
			if (is_terminal(event))
				return finish(a, event);
		}
	}
}

enum exit_code answer_stream(struct answer *a, const struct tr_request *request)
{
	uint64_t id;
	a->text.sink = write_text;
	a->text.context = a;
	a->submitted_ns = answer_now_ns();
	int r = tr_submit(a->client, request, &id);
	if (r == -E2BIG)
		return complain(
		    "the prompt does not fit the channel's arena; arena_bytes of the daemon sets its size");
	if (r)
		return complain_call(a->client, "cannot submit the request", r);
	return stream_events(a, id);
}

static void print_scored(const struct answer *a, const struct answer_scored *scored)
{
	char text[TEXT_BYTES];
	size_t bytes = 0;
	if (tr_detokenize(a->client, 0, &scored->id, 1, TR_TEXT_SPECIAL, text, sizeof text - 1, &bytes))
		bytes = 0;
	text[bytes] = 0;
	fprintf(stderr, "%s%u ", scored->first ? "" : "  | ", scored->id);
	json_print_text(stderr, text);
	fprintf(stderr, " %.4f", (double)scored->value);
}

void answer_print_logprobs(const struct answer *a)
{
	for (size_t i = 0; i < a->n_scored; i++) {
		if (a->scored[i].first && i)
			fputc('\n', stderr);
		print_scored(a, &a->scored[i]);
	}
	if (a->n_scored)
		fputc('\n', stderr);
}

void answer_free(struct answer *a)
{
	text_stream_free(&a->text);
	free(a->scored);
	a->scored = NULL;
}
