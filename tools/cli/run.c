/* tokenring run: a prompt in, its continuation or answer out, streaming. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "tools/cli/answer.h"
#include "tools/cli/chat.h"
#include "tools/cli/connect.h"
#include "tools/cli/input.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/prompt.h"

enum { SEED_RANDOM = 0, N_DEFAULT = 256 };

struct run_options {
	struct common common;
	bool greedy, chat, raw, verbose, ignore_end;
	double temperature, top_p, min_p, penalty;
	uint64_t top_k, seed, n_tokens, deadline_ms, logprobs;
	const char *system, *format;
	struct option_list stops;
};

struct run {
	const struct run_options *options;
	struct tr_client *client;
	struct tr_model_info model;
	const struct chat_format *format; /* NULL: no chat */
	struct input input;
	struct tokens prompt;
	struct tr_sampling sampling;
	struct tr_request_extra extra;
	uint32_t end_of_turn;
};

static enum exit_code check_options(const struct run_options *o)
{
	if (o->greedy && o->temperature > 0)
		return complain_usage(&verb_run, "--greedy and --temp exclude each other");
	if (o->temperature <= 0 && (o->top_k || o->top_p < 1 || o->min_p > 0 || o->seed))
		return complain_usage(&verb_run, "--top-k, --top-p, --min-p and --seed need --temp above 0");
	if (!o->chat && (o->system || o->format))
		return complain_usage(&verb_run, "--system and --chat-format need --chat");
	if (o->format && !chat_find(o->format))
		return complain_usage(&verb_run, "there is no chat format \"%s\"; there are %s", o->format,
				      chat_names());
	for (size_t i = 0; i < o->stops.n; i++)
		if (!*o->stops.text[i])
			return complain_usage(&verb_run, "--stop wants a text of one byte at least");
	return EXIT_DONE;
}

static enum exit_code choose_format(struct run *run)
{
	if (!run->options->chat)
		return EXIT_DONE;
	run->format = run->options->format ? chat_find(run->options->format)
					   : chat_for_model(run->model.name, run->model.architecture);
	if (!run->format)
		return complain(
		    "no chat format is known for the model \"%s\" (%s); choose one with --chat-format: %s",
		    run->model.name, run->model.architecture, chat_names());
	return EXIT_DONE;
}

static enum exit_code make_prompt(struct run *run)
{
	const struct run_options *o = run->options;
	if (run->format)
		return tokens_append_chat(run->client, &run->prompt, run->format, o->system, run->input.text);
	uint32_t flags = o->raw ? TR_TEXT_SPECIAL : TR_TEXT_BOS;
	return tokens_append_text(run->client, &run->prompt, run->input.text, run->input.bytes, flags);
}

/* The token that ends a turn ends the answer, also where the model does not count it as an end. */
static void find_end_of_turn(struct run *run)
{
	size_t n = 0;
	if (!run->format)
		return;
	const char *text = run->format->end_of_turn;
	int r = tr_tokenize(run->client, 0, text, strlen(text), TR_TEXT_SPECIAL, &run->end_of_turn, 1, &n);
	if (r || n != 1)
		return; /* not one token in this vocabulary: the model's own ends must do */
	run->extra.stop_ids = &run->end_of_turn;
	run->extra.n_stop_ids = 1;
}

static void choose_sampling(struct run *run)
{
	const struct run_options *o = run->options;
	run->sampling = (struct tr_sampling){
	    .size = sizeof run->sampling,
	    .top_k = (uint32_t)o->top_k,
	    .seed = o->seed,
	    .temperature = (float)o->temperature,
	    .top_p = (float)o->top_p,
	    .min_p = (float)o->min_p,
	    .penalty = (float)o->penalty,
	    .ignore_eos = o->ignore_end,
	};
	if (o->temperature > 0 && o->seed == SEED_RANDOM &&
	    getrandom(&run->sampling.seed, sizeof run->sampling.seed, 0) < 0)
		run->sampling.seed = answer_now_ns();
}

/* Without -n: 256 tokens, or what the context leaves. */
static uint32_t tokens_wanted(const struct run *run)
{
	if (run->options->n_tokens)
		return (uint32_t)run->options->n_tokens;
	if (run->prompt.n >= run->model.context)
		return 1; /* the daemon refuses it and names the numbers */
	size_t left = run->model.context - run->prompt.n;
	return left < N_DEFAULT ? (uint32_t)left : N_DEFAULT;
}

static struct tr_request make_request(struct run *run)
{
	choose_sampling(run);
	find_end_of_turn(run);
	run->extra.size = sizeof run->extra;
	run->extra.tokens = run->prompt.id;
	run->extra.n_tokens = (uint32_t)run->prompt.n;
	run->extra.sampling = &run->sampling;
	run->extra.logprobs = run->options->logprobs > 0;
	run->extra.n_logprobs = (uint32_t)run->options->logprobs;
	run->extra.max_new = tokens_wanted(run);
	uint64_t deadline_ms = run->options->deadline_ms;
	return (struct tr_request){
	    .size = sizeof(struct tr_request),
	    .op = TR_GENERATE,
	    .deadline_ns = deadline_ms ? answer_now_ns() + deadline_ms * 1000000 : 0,
	    .extra = &run->extra,
	};
}

static const char *finish_name(const struct answer *answer)
{
	static const char *const names[] = {"none",  "stop",  "length",   "cancelled", "deadline",
					    "stall", "error", "shutdown", "done"};
	if (answer->text.stopped)
		return "stop string";
	return answer->finish < sizeof names / sizeof *names ? names[answer->finish] : "unknown";
}

static void print_statistics(const struct run *run, const struct answer *a)
{
	double first_ms = a->n_tokens ? 1e-6 * (double)(a->first_ns - a->submitted_ns) : 0;
	double rest_s = 1e-9 * (double)(a->last_ns - a->first_ns);
	fprintf(stderr, "prompt %zu tokens, answer %zu tokens, end: %s\n", run->prompt.n, a->n_tokens,
		finish_name(a));
	if (a->n_tokens)
		fprintf(stderr, "first token after %.2f ms", first_ms);
	if (a->n_tokens > 1 && rest_s > 0)
		fprintf(stderr, ", then %.1f tokens/s", (double)(a->n_tokens - 1) / rest_s);
	fprintf(stderr, "%s%s, %s, %s", a->n_tokens ? "; " : "", run->model.name, run->model.numerics,
		run->model.isa);
	if (run->options->temperature > 0)
		fprintf(stderr, ", seed %" PRIu64, run->sampling.seed);
	fputc('\n', stderr);
}

static enum exit_code stream(struct run *run)
{
	struct tr_request request = make_request(run);
	struct answer answer = {
	    .client = run->client,
	    .text = {.stops = run->options->stops.text, .n_stops = run->options->stops.n},
	    .text_flags = run->options->raw ? TR_TEXT_SPECIAL : 0,
	    .end_line = !run->options->raw, /* --raw leaves the bytes as they came */
	    .show_logprobs = run->options->logprobs > 0,
	};
	enum exit_code code = answer_stream(&answer, &request);
	if (!code && answer.show_logprobs)
		answer_print_logprobs(&answer);
	if (run->options->verbose)
		print_statistics(run, &answer);
	answer_free(&answer);
	return code;
}

static enum exit_code run_connected(struct run *run)
{
	enum exit_code code = choose_format(run);
	if (!code)
		code = make_prompt(run);
	if (!code)
		code = stream(run);
	tokens_free(&run->prompt);
	return code;
}

static enum exit_code run_run(const void *options, const struct positionals *arguments)
{
	struct run run = {.options = options};
	enum exit_code code = check_options(run.options);
	if (code)
		return code;
	interrupt_watch();
	code = input_read(arguments->n ? arguments->text[0] : NULL, &run.input);
	if (code)
		return code;
	code = connect_ready(run.options->common.socket, &run.client, &run.model);
	if (!code) {
		code = run_connected(&run);
		tr_close(run.client);
	}
	input_free(&run.input);
	return code;
}

#define FIELD(name) offsetof(struct run_options, name)
static const struct option_row rows[] = {
    {"greedy", 'g', OPTION_FLAG, FIELD(greedy), NULL, 0, 0, "always the likeliest token (the default)"},
    {"temp", 't', OPTION_REAL, FIELD(temperature), "T", 0, 100, "draw at this temperature; 0: greedy"},
    {"top-k", 0, OPTION_NUMBER, FIELD(top_k), "K", 0, UINT32_MAX, "draw from the K likeliest; 0: off"},
    {"top-p", 0, OPTION_REAL, FIELD(top_p), "P", 1e-6, 1, "draw from the likeliest that make up P; 1: off"},
    {"min-p", 0, OPTION_REAL, FIELD(min_p), "P", 0, 1, "drop what is below P times the likeliest; 0: off"},
    {"penalty", 0, OPTION_REAL, FIELD(penalty), "R", 0.01, 10, "repetition penalty; 1: off"},
    {"seed", 0, OPTION_NUMBER, FIELD(seed), "N", 0, (double)UINT64_MAX, "of the draws; 0: a random one"},
    {"tokens", 'n', OPTION_NUMBER, FIELD(n_tokens), "N", 1, UINT32_MAX, "of the answer at most; else 256"},
    {"chat", 'c', OPTION_FLAG, FIELD(chat), NULL, 0, 0, "put the prompt into the model's chat format"},
    {"system", 0, OPTION_TEXT, FIELD(system), "TEXT", 0, 0, "the system text of the chat"},
    {"chat-format", 0, OPTION_TEXT, FIELD(format), "NAME", 0, 0, "smollm2, chatml or gemma; else by model"},
    {"raw", 0, OPTION_FLAG, FIELD(raw), NULL, 0, 0, "read and print special tokens; add nothing to either"},
    {"stop", 's', OPTION_LIST, FIELD(stops), "TEXT", 0, 0, "end before this text (may be repeated)"},
    {"ignore-end", 0, OPTION_FLAG, FIELD(ignore_end), NULL, 0, 0, "go on after the model's end tokens"},
    {"deadline-ms", 0, OPTION_NUMBER, FIELD(deadline_ms), "MS", 1, 1e9, "be refused or end after this time"},
    {"logprobs", 0, OPTION_NUMBER, FIELD(logprobs), "K", 1, 32,
     "log-probabilities of the K likeliest, to stderr"},
    {"verbose", 'v', OPTION_FLAG, FIELD(verbose), NULL, 0, 0, "statistics on standard error"},
    COMMON_OPTIONS,
};

const struct verb verb_run = {
    .name = "run",
    .arguments = "[PROMPT]",
    .summary = "stream the continuation of a prompt, or the answer with --chat",
    .notes =
	"Without PROMPT, or with \"-\", the prompt is read from standard input. Ctrl-C cancels the request;\n"
	"a second one ends the program at once.\n",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct run_options){.top_p = 1, .penalty = 1},
    .bytes = sizeof(struct run_options),
    .max_arguments = 1,
    .handler = run_run,
};
