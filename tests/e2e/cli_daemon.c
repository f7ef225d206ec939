/* A daemon for tests of the command line: a byte is a token, and the prompt says how the answer goes.
 *
 *   cli_daemon [LOADING_REPLIES]     prints its socket's path and serves until it gets SIGTERM
 *
 *   say:TEXT   answers TEXT, three tokens an event      print       answers the prompt itself
 *   slow       answers "xxx" and waits for a cancel     refuse      refuses, with numbers
 *   fail       ends with an error after "abc"           deadline    ends for its deadline after "abc"
 *   die        ends the process after "abc"             logprobs    answers "ok" with records
 *
 * Tokens 256 up: begin of sequence, <|im_start|>, <|im_end|>. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/fake_daemon.h"

enum { BOS = 256, START, END, VOCABULARY, TOKENS_MAX = 4096 };

static const char *const specials[] = {"<s>", "<|im_start|>", "<|im_end|>"};
static int loading_replies;
static uint64_t slow_id;
static unsigned step_us; /* between two events of an answer */
static struct wire_completion answer;

static size_t tokenize(const char *text, size_t n, uint32_t flags, uint32_t *tokens)
{
	size_t count = 0;
	if (flags & WIRE_TEXT_BOS)
		tokens[count++] = BOS;
	for (size_t i = 0; i < n;) {
		uint32_t token = (unsigned char)text[i];
		size_t bytes = 1;
		for (uint32_t s = START; s <= END && (flags & WIRE_TEXT_SPECIAL); s++)
			if (n - i >= strlen(specials[s - BOS]) &&
			    !memcmp(text + i, specials[s - BOS], strlen(specials[s - BOS]))) {
				token = s;
				bytes = strlen(specials[s - BOS]);
			}
		tokens[count++] = token;
		i += bytes;
	}
	return count;
}

static size_t detokenize(const uint32_t *tokens, size_t n, uint32_t flags, char *text)
{
	size_t bytes = 0;
	for (size_t i = 0; i < n; i++)
		if (tokens[i] < BOS)
			text[bytes++] = (char)tokens[i];
		else if (flags & WIRE_TEXT_SPECIAL)
			bytes += (size_t)sprintf(text + bytes, "%s", specials[tokens[i] - BOS]);
	return bytes;
}

static void reply_model(struct fake_daemon *fake, const struct message *message)
{
	struct {
		struct wire_model model;
		uint32_t stop[1];
	} reply = {.model = {.vocab = VOCABULARY,
			     .context = 512,
			     .bos = BOS,
			     .eos = END,
			     .n_stop = 1,
			     .bytes = 1 << 20,
			     .parameters = 1 << 20,
			     .name = "smollm2-of-bytes",
			     .architecture = "llama",
			     .numerics = "exact",
			     .isa = "generic"},
		   .stop = {END}};
	reply.model.state = loading_replies-- > 0 ? WIRE_MODEL_LOADING : WIRE_MODEL_READY;
	fake_reply(fake, message, &reply, offsetof(__typeof__(reply), stop) + sizeof reply.stop);
}

static void reply_text(struct fake_daemon *fake, const struct message *message)
{
	static uint32_t tokens[TOKENS_MAX];
	static char text[16 * TOKENS_MAX];
	struct wire_text head;
	const unsigned char *body = message->payload + sizeof head;
	size_t n = message->head.bytes - sizeof head;
	memcpy(&head, message->payload, sizeof head);
	if (message->head.type == WIRE_CONTROL_TOKENIZE) {
		n = tokenize((const char *)body, n, head.flags, tokens);
		fake_reply(fake, message, tokens, n * sizeof *tokens);
	} else {
		memcpy(tokens, body, n);
		n = detokenize(tokens, n / sizeof *tokens, head.flags, text);
		fake_reply(fake, message, text, n);
	}
}

static void on_control(struct fake_daemon *fake, const struct message *message)
{
	static const char status[] =
	    "{\"state\":\"ready\",\"threads\":1,\"model\":{\"name\":\"smollm2-of-bytes\"}}";
	if (message->head.type == WIRE_CONTROL_MODEL)
		reply_model(fake, message);
	else if (message->head.type == WIRE_CONTROL_STATUS)
		fake_reply(fake, message, status, sizeof status - 1);
	else
		reply_text(fake, message);
}

/* Streams the bytes of a text, which takes time as decoding does; the last event is the terminal one unless
 * `finish` is NONE. */
static void say(struct fake_daemon *fake, const char *text, size_t n, uint8_t finish, uint32_t reason,
		int status)
{
	for (size_t i = 0; i < n || !i; i += 3) {
		bool last = i + 3 >= n;
		answer.first = (uint32_t)i;
		answer.kind = last && finish ? WIRE_KIND_FINAL : WIRE_KIND_TOKENS;
		answer.finish = last ? finish : 0;
		answer.aux = last ? reason : 0;
		answer.status = last ? status : 0;
		answer.n_tok = (uint8_t)(n - i < 3 ? n - i : 3);
		for (size_t k = 0; k < answer.n_tok; k++)
			answer.tok[k] = (unsigned char)text[i + k];
		fake_publish(fake, &answer);
		wake_fence(&fake->waker);
		usleep(step_us);
	}
}

static void refuse(struct fake_daemon *fake)
{
	answer.kind = WIRE_KIND_REFUSED;
	answer.status = -EMSGSIZE;
	answer.aux = WIRE_REASON_CONTEXT;
	answer.tok[4] = 600;
	answer.tok[5] = 512;
	fake_publish(fake, &answer);
}

/* A token with its own records, then the end with those of the whole answer. */
static void with_records(struct fake_daemon *fake, const struct wire_block *block)
{
	static const struct wire_scored records[] = {{'o', -0.5f},  {'o', -0.5f},  {'x', -1.5f},
						     {'k', -0.25f}, {'k', -0.25f}, {'y', -2}};
	struct wire_reply reply = {WIRE_REPLY_LOGPROBS, 6, sizeof records[0], sizeof records};
	unsigned char *at = fake->segment.base + (uint64_t)block->reply_off * 64;
	memcpy(at, &reply, sizeof reply);
	memcpy(at + sizeof reply, records, sizeof records);
	answer.kind = WIRE_KIND_TOKENS;
	answer.n_tok = 1;
	answer.tok[0] = 'o';
	answer.aux = sizeof reply + sizeof records / 2;
	fake_publish(fake, &answer);
	answer.kind = WIRE_KIND_FINAL;
	answer.finish = WIRE_FINISH_STOP;
	answer.first = 1;
	answer.tok[0] = 'k';
	answer.aux = sizeof reply + sizeof records;
	fake_publish(fake, &answer);
	wake_fence(&fake->waker);
}

static void perform(struct fake_daemon *fake, const char *prompt, size_t n, const struct wire_block *block)
{
	const char *said = memmem(prompt, n, "say:", 4);
	if (said)
		say(fake, said + 4, (size_t)(prompt + n - said) - 4, WIRE_FINISH_STOP, 0, 0);
	else if (memmem(prompt, n, "slow", 4))
		say(fake, "xxx", 3, WIRE_FINISH_NONE, 0, 0);
	else if (memmem(prompt, n, "refuse", 6))
		refuse(fake);
	else if (memmem(prompt, n, "fail", 4))
		say(fake, "abc", 3, WIRE_FINISH_ERROR, WIRE_REASON_NUMERIC, -EDOM);
	else if (memmem(prompt, n, "deadline", 8))
		say(fake, "abc", 3, WIRE_FINISH_DEADLINE, WIRE_REASON_DEADLINE, -ETIME);
	else if (memmem(prompt, n, "logprobs", 8))
		with_records(fake, block);
	else if (memmem(prompt, n, "die", 3)) {
		say(fake, "abc", 3, WIRE_FINISH_NONE, 0, 0);
		usleep(50000);
		_exit(0);
	} else
		say(fake, prompt, n, WIRE_FINISH_STOP, 0, 0);
}

static uint32_t option_flags(const struct wire_block *block)
{
	const char *at = (const char *)(block + 1), *end = (const char *)block + block->tokens_off;
	while (at < end) {
		const struct wire_tlv *option = (const void *)at;
		if (option->type == WIRE_TLV_FLAGS)
			return *(const uint32_t *)(option + 1);
		at += sizeof *option + ((option->bytes + 7) & ~7u);
	}
	return 0;
}

/* A benchmark's prompt has no text; its answer has as many tokens as it asked for. */
static void generate(struct fake_daemon *fake, const struct wire_submission *submission)
{
	static char text[16 * TOKENS_MAX], all[TOKENS_MAX];
	const struct wire_block *block =
	    (const void *)(fake->segment.base + (uint64_t)submission->block * 64);
	const uint32_t *tokens = (const void *)((const char *)block + block->tokens_off);
	bool is_bench = option_flags(block) & WIRE_BLOCK_IGNORE_EOS;
	answer.id = submission->id;
	slow_id = submission->id;
	if (is_bench) {
		memset(all, 'b', sizeof all);
		step_us = 500;
		say(fake, all, block->max_new, WIRE_FINISH_LENGTH, 0, 0);
		return;
	}
	step_us = 0;
	size_t n = detokenize(tokens, block->n_tokens, WIRE_TEXT_SPECIAL, text);
	perform(fake, text, n, block);
}

static void on_submission(struct fake_daemon *fake, const struct wire_submission *submission)
{
	answer = (struct wire_completion){.id = submission->id};
	if (submission->op == WIRE_OP_GENERATE)
		generate(fake, submission);
	else if (submission->op == WIRE_OP_ECHO)
		fake_answer(fake, submission);
	else if (submission->op == WIRE_OP_CANCEL && slow_id) {
		answer.id = slow_id;
		slow_id = 0;
		say(fake, "", 0, WIRE_FINISH_CANCELLED, WIRE_REASON_CANCELLED, -ECANCELED);
	}
}

int main(int argc, char **argv)
{
	static struct fake_daemon fake = {.on_control = on_control,
					  .on_submission = on_submission,
					  .sq_slots = 256,
					  .cq_slots = 1024,
					  .max_inflight = 64,
					  .arena_bytes = 1 << 20};
	sigset_t stop;
	int signal_number;
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	loading_replies = argc > 1 ? atoi(argv[1]) : 0;
	fake_start(&fake);
	puts(fake.path);
	fflush(stdout);
	sigwait(&stop, &signal_number);
	fake_stop(&fake);
	return 0;
}
