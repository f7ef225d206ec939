/* tokenring tokenize and detokenize: text to token ids and back, by the daemon or from a model file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/gguf.h"
#include "daemon/model/tokenizer.h"
#include "tools/cli/connect.h"
#include "tools/cli/input.h"
#include "tools/cli/json.h"
#include "tools/cli/prompt.h"

struct text_options {
	struct common common;
	bool ids, special, bos;
	const char *model;
};

/* Whoever knows the vocabulary: one of the two is set. */
struct vocabulary {
	struct tr_client *client;
	struct tokenizer *tokenizer;
};

static enum exit_code open_file(const char *path, struct vocabulary *v)
{
	char why[512];
	struct gguf *file;
	if (gguf_open(path, &file, why, sizeof why))
		return complain("%s", why);
	int r = tokenizer_open(file, &v->tokenizer, why, sizeof why);
	gguf_close(file);
	return r ? complain("%s: %s", path, why) : EXIT_DONE;
}

static enum exit_code open_vocabulary(const struct text_options *o, struct vocabulary *v)
{
	struct tr_model_info info;
	return o->model ? open_file(o->model, v) : connect_ready(o->common.socket, &v->client, &info);
}

static void close_vocabulary(struct vocabulary *v)
{
	tokenizer_close(v->tokenizer);
	tr_close(v->client);
}

static enum exit_code encode_offline(const struct tokenizer *tokenizer, const struct input *in,
				     unsigned flags, struct tokens *ret)
{
	size_t capacity = in->bytes + 8;
	ret->id = malloc(capacity * sizeof *ret->id);
	int r = ret->id ? tokenizer_encode(tokenizer, in->text, in->bytes, flags, ret->id, capacity, &ret->n)
			: -ENOMEM;
	return r ? complain("cannot tokenize the text: %s", tr_strerror(r)) : EXIT_DONE;
}

static enum exit_code encode(const struct vocabulary *v, const struct text_options *o, const struct input *in,
			     struct tokens *ret)
{
	if (v->client)
		return tokens_append_text(v->client, ret, in->text, in->bytes,
					  (o->bos ? TR_TEXT_BOS : 0) | (o->special ? TR_TEXT_SPECIAL : 0));
	return encode_offline(v->tokenizer, in,
			      (o->bos ? TOKENIZER_BOS : 0) | (o->special ? TOKENIZER_SPECIAL : 0), ret);
}

/* Text of the tokens, *ret to be freed; bytes, which may end inside a character. */
static enum exit_code decode(const struct vocabulary *v, const uint32_t *ids, size_t n, bool special,
			     char **ret, size_t *ret_bytes)
{
	size_t capacity = 64 + 16 * n;
	char *text = NULL;
	int r = -ENOSPC;
	while (r == -ENOSPC) {
		free(text);
		text = malloc(capacity);
		if (!text)
			r = -ENOMEM;
		else if (v->client)
			r = tr_detokenize(v->client, 0, ids, n, special ? TR_TEXT_SPECIAL : 0, text, capacity,
					  ret_bytes);
		else
			r = tokenizer_decode(v->tokenizer, ids, n, special ? TOKENIZER_SPECIAL : 0, text,
					     capacity, ret_bytes);
		capacity = r == -ENOSPC && *ret_bytes > capacity ? *ret_bytes : 2 * capacity;
	}
	if (!r) {
		*ret = text;
		return EXIT_DONE;
	}
	free(text);
	if (r == -EINVAL)
		return complain("a token is not below the size of the vocabulary");
	return v->client ? complain_call(v->client, "cannot turn the tokens into text", r)
			 : complain("cannot turn the tokens into text: %s", tr_strerror(r));
}

static enum exit_code print_token(const struct vocabulary *v, uint32_t id)
{
	char *text;
	size_t bytes = 0;
	enum exit_code code = decode(v, &id, 1, true, &text, &bytes);
	if (code)
		return code;
	char *line = realloc(text, bytes + 1);
	if (!line) {
		free(text);
		return complain("no memory for a token");
	}
	line[bytes] = 0;
	printf("%" PRIu32 "\t", id);
	json_print_text(stdout, line);
	putchar('\n');
	free(line);
	return EXIT_DONE;
}

static enum exit_code print_tokens(const struct vocabulary *v, const struct tokens *tokens, bool ids)
{
	enum exit_code code = EXIT_DONE;
	for (size_t i = 0; i < tokens->n && !code; i++) {
		if (ids)
			printf("%s%" PRIu32, i ? " " : "", tokens->id[i]);
		else
			code = print_token(v, tokens->id[i]);
	}
	if (ids)
		putchar('\n');
	return code;
}

static enum exit_code run_tokenize(const void *options, const struct positionals *arguments)
{
	const struct text_options *o = options;
	struct vocabulary v = {0};
	struct tokens tokens = {0};
	struct input in;
	enum exit_code code = input_read(arguments->n ? arguments->text[0] : NULL, &in);
	if (code)
		return code;
	code = open_vocabulary(o, &v);
	if (!code)
		code = encode(&v, o, &in, &tokens);
	if (!code)
		code = print_tokens(&v, &tokens, o->ids);
	tokens_free(&tokens);
	close_vocabulary(&v);
	input_free(&in);
	return code;
}

/* Numbers separated by spaces or commas. */
static enum exit_code parse_ids(const char *text, struct tokens *tokens)
{
	tokens->id = malloc((strlen(text) / 2 + 1) * sizeof *tokens->id);
	if (!tokens->id)
		return complain("no memory for the tokens");
	for (const char *at = text + strspn(text, " ,\t\r\n"); *at; at += strspn(at, " ,\t\r\n")) {
		char *end;
		unsigned long long id = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : UINT64_MAX;
		if (id >= UINT32_MAX) {
			complain("\"%.*s\" is not a token id", (int)strcspn(at, " ,\t\r\n"), at);
			return EXIT_USAGE;
		}
		tokens->id[tokens->n++] = (uint32_t)id;
		at = end;
	}
	return EXIT_DONE;
}

/* The ids, from the arguments or from standard input, as one text. */
static enum exit_code read_ids(const struct positionals *arguments, struct tokens *tokens)
{
	struct input in;
	enum exit_code code = EXIT_DONE;
	if (arguments->n == 1 || !arguments->n) {
		code = input_read(arguments->n ? arguments->text[0] : NULL, &in);
		if (code)
			return code;
		code = parse_ids(in.text, tokens);
		input_free(&in);
		return code;
	}
	size_t bytes = 1;
	for (size_t i = 0; i < arguments->n; i++)
		bytes += strlen(arguments->text[i]) + 1;
	char *text = calloc(1, bytes);
	if (!text)
		return complain("no memory for the tokens");
	for (size_t i = 0, used = 0; i < arguments->n; i++)
		used += (size_t)sprintf(text + used, "%s ", arguments->text[i]);
	code = parse_ids(text, tokens);
	free(text);
	return code;
}

static enum exit_code run_detokenize(const void *options, const struct positionals *arguments)
{
	const struct text_options *o = options;
	struct vocabulary v = {0};
	struct tokens tokens = {0};
	char *text = NULL;
	size_t bytes = 0;
	enum exit_code code = read_ids(arguments, &tokens);
	if (!code)
		code = open_vocabulary(o, &v);
	if (!code && tokens.n)
		code = decode(&v, tokens.id, tokens.n, o->special, &text, &bytes);
	if (!code) {
		fwrite(text, 1, bytes, stdout);
		putchar('\n');
	}
	free(text);
	tokens_free(&tokens);
	close_vocabulary(&v);
	return code;
}

#define FIELD(name) offsetof(struct text_options, name)
#define MODEL_OPTION \
	{"model", 'm', OPTION_TEXT, FIELD(model), "FILE", 0, 0, "ask this GGUF file, not the daemon"}

static const struct option_row tokenize_rows[] = {
    {"ids", 0, OPTION_FLAG, FIELD(ids), NULL, 0, 0, "the ids alone, on one line"},
    {"special", 0, OPTION_FLAG, FIELD(special), NULL, 0, 0, "read special tokens in the text as such"},
    {"bos", 0, OPTION_FLAG, FIELD(bos), NULL, 0, 0, "begin with the model's BOS where it wants one"},
    MODEL_OPTION,
    COMMON_OPTIONS,
};

const struct verb verb_tokenize = {
    .name = "tokenize",
    .arguments = "[TEXT|-]",
    .summary = "print the tokens of a text",
    .options = {tokenize_rows, sizeof tokenize_rows / sizeof *tokenize_rows},
    .defaults = &(const struct text_options){.ids = false},
    .bytes = sizeof(struct text_options),
    .max_arguments = 1,
    .handler = run_tokenize,
};

static const struct option_row detokenize_rows[] = {
    {"special", 0, OPTION_FLAG, FIELD(special), NULL, 0, 0, "print special tokens too"},
    MODEL_OPTION,
    COMMON_OPTIONS,
};

const struct verb verb_detokenize = {
    .name = "detokenize",
    .arguments = "[ID...|-]",
    .summary = "print the text of tokens",
    .options = {detokenize_rows, sizeof detokenize_rows / sizeof *detokenize_rows},
    .defaults = &(const struct text_options){.ids = false},
    .bytes = sizeof(struct text_options),
    .max_arguments = SIZE_MAX,
    .handler = run_detokenize,
};
