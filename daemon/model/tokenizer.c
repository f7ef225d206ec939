#include "daemon/model/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/tokenizer_internal.h"
#include "daemon/model/utf8.h"

enum { MAX_TEXT_BYTES = 1 << 30 };

/* Tokens that end a turn or a text, as the models that we know write them. */
static const char *const turn_ends[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|eom_id|>"};
static const char *const text_ends[] = {"<|endoftext|>", "<|end_of_text|>"};

static int read_token_id(const struct tokenizer *t, const struct gguf *g, const char *key, uint32_t *ret,
			 char *why, size_t why_bytes)
{
	uint32_t token = TOKENIZER_NONE;
	int error = gguf_u32(g, key, &token);
	if (error == -ENOENT)
		return 0;
	if (error || token >= t->vocabulary.n) {
		snprintf(why, why_bytes, "key '%s' is not the number of one of the %u tokens", key,
			 t->vocabulary.n);
		return -EINVAL;
	}
	*ret = token;
	return 0;
}

static uint32_t find_control(const struct tokenizer *t, const char *text)
{
	uint32_t token = vocabulary_find(&t->vocabulary, text, strlen(text));
	if (token == TOKENIZER_NONE)
		return TOKENIZER_NONE;
	uint8_t type = t->vocabulary.type[token];
	return type == TOKENIZER_CONTROL || type == TOKENIZER_USER_DEFINED ? token : TOKENIZER_NONE;
}

static void add_end(struct tokenizer *t, uint32_t token)
{
	size_t i = 0;
	if (token == TOKENIZER_NONE)
		return;
	while (i < t->n_ends && t->ends[i] < token)
		i++;
	if (i < t->n_ends && t->ends[i] == token)
		return;
	memmove(t->ends + i + 1, t->ends + i, (t->n_ends - i) * sizeof *t->ends);
	t->ends[i] = token;
	t->n_ends++;
}

static int read_ends(struct tokenizer *t, const struct gguf *g, char *why, size_t why_bytes)
{
	enum { N_TURN = sizeof turn_ends / sizeof *turn_ends, N_TEXT = sizeof text_ends / sizeof *text_ends };
	uint32_t eom = TOKENIZER_NONE;
	int error = read_token_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, why, why_bytes);
	if (error || (error = read_token_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, why, why_bytes)) ||
	    (error = read_token_id(t, g, "tokenizer.ggml.eot_token_id", &t->eot, why, why_bytes)) ||
	    (error = read_token_id(t, g, "tokenizer.ggml.eom_token_id", &eom, why, why_bytes)))
		return error;
	t->ends = calloc(3 + N_TURN + N_TEXT, sizeof *t->ends);
	if (!t->ends) {
		snprintf(why, why_bytes, "no memory for the tokenizer");
		return -ENOMEM;
	}
	for (size_t i = 0; i < N_TURN; i++) {
		uint32_t token = find_control(t, turn_ends[i]);
		if (t->eot == TOKENIZER_NONE)
			t->eot = token;
		add_end(t, token);
	}
	for (size_t i = 0; i < N_TEXT; i++)
		add_end(t, find_control(t, text_ends[i]));
	add_end(t, t->eos);
	add_end(t, t->eot);
	add_end(t, eom);
	return 0;
}

static int read_chat_template(struct tokenizer *t, const struct gguf *g, char *why, size_t why_bytes)
{
	struct gguf_text text;
	int error = gguf_string(g, "tokenizer.chat_template", &text);
	if (error == -ENOENT)
		return 0;
	if (error || memchr(text.data, 0, text.bytes)) {
		snprintf(why, why_bytes, "key 'tokenizer.chat_template' is not a text");
		return -EINVAL;
	}
	t->chat_template = strndup(text.data, text.bytes);
	if (!t->chat_template)
		snprintf(why, why_bytes, "no memory for the chat template");
	return t->chat_template ? 0 : -ENOMEM;
}

static int open_kind(struct tokenizer *t, const struct gguf *g, char *why, size_t why_bytes)
{
	struct gguf_text model;
	int error = gguf_string(g, "tokenizer.ggml.model", &model);
	if (error) {
		snprintf(why, why_bytes, "key 'tokenizer.ggml.model' is %s",
			 error == -ENOENT ? "absent" : "no string");
		return error;
	}
	if (model.bytes == 4 && memcmp(model.data, "gpt2", 4) == 0)
		return bpe_open(t, g, why, why_bytes);
	if (model.bytes == 5 && memcmp(model.data, "llama", 5) == 0)
		return spm_open(t, g, why, why_bytes);
	snprintf(
	    why, why_bytes,
	    "tokenizer model '%.*s' is not supported; known are gpt2 (byte-level BPE), llama (SentencePiece)",
	    model.bytes < 60 ? (int)model.bytes : 60, model.data);
	return -ENOTSUP;
}

static int open_tokenizer(struct tokenizer *t, const struct gguf *g, char *why, size_t why_bytes)
{
	int error = open_kind(t, g, why, why_bytes);
	if (error)
		return error;
	if (specials_open(&t->specials, &t->vocabulary, t->spm != NULL)) {
		snprintf(why, why_bytes, "no memory for the special tokens");
		return -ENOMEM;
	}
	error = read_ends(t, g, why, why_bytes);
	if (!error)
		error = read_chat_template(t, g, why, why_bytes);
	if (error)
		return error;
	if (gguf_bool(g, "tokenizer.ggml.add_bos_token", &t->wants_bos) == -EINVAL) {
		snprintf(why, why_bytes, "key 'tokenizer.ggml.add_bos_token' is no truth value");
		return -EINVAL;
	}
	t->wants_bos &= t->bos != TOKENIZER_NONE;
	return 0;
}

int tokenizer_open(const struct gguf *g, struct tokenizer **ret, char *why, size_t why_bytes)
{
	struct tokenizer *t = calloc(1, sizeof *t);
	if (!t) {
		snprintf(why, why_bytes, "no memory for the tokenizer");
		return -ENOMEM;
	}
	t->bos = t->eos = t->eot = TOKENIZER_NONE;
	int error = open_tokenizer(t, g, why, why_bytes);
	if (error) {
		tokenizer_close(t);
		return error;
	}
	*ret = t;
	return 0;
}

void tokenizer_close(struct tokenizer *t)
{
	if (!t)
		return;
	bpe_close(t->bpe);
	spm_close(t->spm);
	specials_close(&t->specials);
	vocabulary_close(&t->vocabulary);
	free(t->ends);
	free(t->chat_template);
	free(t);
}

/* One encoding under way. */
struct encoding {
	const struct tokenizer *tokenizer;
	struct merger merger;
	struct token_sink sink;
	bool prefix; /* a SentencePiece blank belongs before the text that comes next */
};

static int encode_plain(struct encoding *e, const char *text, size_t bytes)
{
	const struct tokenizer *t = e->tokenizer;
	if (t->bpe)
		return bpe_encode(t, text, bytes, &e->merger, &e->sink);
	bool prefix = e->prefix && t->spm->add_space_prefix;
	e->prefix = false;
	return spm_encode(t, text, bytes, prefix, &e->merger, &e->sink);
}

/* A user-defined token is text like any other to SentencePiece: a blank goes before it, too, and none after
 * it. */
static int encode_special(struct encoding *e, uint32_t token)
{
	bool is_text = e->tokenizer->vocabulary.type[token] == TOKENIZER_USER_DEFINED;
	int error = is_text && e->prefix ? encode_plain(e, "", 0) : 0;
	sink_put(&e->sink, token);
	e->prefix = !is_text;
	return error;
}

/* Cuts well-formed text at its special tokens. */
static int encode_text(struct encoding *e, const char *text, size_t bytes, bool control)
{
	const struct tokenizer *t = e->tokenizer;
	size_t begun = 0;
	int error = 0;
	for (size_t at = 0; at < bytes && !error;) {
		size_t n = 1;
		uint32_t token =
		    specials_match(&t->specials, &t->vocabulary, text + at, bytes - at, control, &n);
		if (token != TOKENIZER_NONE) {
			if (at > begun)
				error = encode_plain(e, text + begun, at - begun);
			if (!error)
				error = encode_special(e, token);
			begun = at + n;
		}
		at += n;
	}
	return error || begun == bytes ? error : encode_plain(e, text + begun, bytes - begun);
}

static int encode_bytes(struct encoding *e, const char *text, size_t bytes, bool control)
{
	size_t clean_bytes = utf8_clean(text, bytes, NULL);
	char *clean = malloc(clean_bytes + 1);
	if (!clean)
		return -ENOMEM;
	utf8_clean(text, bytes, clean);
	if (e->tokenizer->spm) /* to SentencePiece U+2581 is a blank, also where it is written out */
		clean_bytes = spm_plain_text((struct gguf_text){clean, clean_bytes}, clean);
	int error = encode_text(e, clean, clean_bytes, control);
	free(clean);
	return error;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, unsigned flags,
		     uint32_t *tokens, size_t capacity, size_t *ret_n)
{
	struct encoding e = {.tokenizer = t, .sink = {tokens, capacity, 0}, .prefix = true};
	if (bytes > MAX_TEXT_BYTES)
		return -E2BIG;
	if ((flags & TOKENIZER_BOS) && t->wants_bos)
		sink_put(&e.sink, t->bos);
	int error = encode_bytes(&e, text, bytes, flags & TOKENIZER_SPECIAL);
	merger_free(&e.merger);
	if (error)
		return error;
	*ret_n = e.sink.n;
	return e.sink.n > capacity ? -ENOSPC : 0;
}

/* Where bytes go; counts on after it is full. */
struct byte_sink {
	char *text;
	size_t capacity;
	size_t n;
};

static void put_bytes(struct byte_sink *sink, const char *text, size_t n)
{
	if (sink->n + n <= sink->capacity)
		memcpy(sink->text + sink->n, text, n);
	sink->n += n;
}

static int byte_value(const struct vocabulary *v, uint32_t token)
{
	for (unsigned byte = 0; byte < 256; byte++)
		if (v->byte_token[byte] == token)
			return (int)byte;
	return -1;
}

static void decode_spm(const struct vocabulary *v, uint32_t token, bool start, struct byte_sink *sink)
{
	struct gguf_text text = vocabulary_text(v, token);
	int byte = v->type[token] == TOKENIZER_BYTE ? byte_value(v, token) : -1;
	if (byte >= 0) {
		put_bytes(sink, &(char){(char)byte}, 1);
		return;
	}
	for (size_t at = 0; at < text.bytes;) {
		bool space = text.bytes - at >= SPM_SPACE_BYTES &&
			     memcmp(text.data + at, SPM_SPACE, SPM_SPACE_BYTES) == 0;
		if (!space || at || !start)
			put_bytes(sink, space ? " " : text.data + at, 1);
		at += space ? SPM_SPACE_BYTES : 1;
	}
}

int tokenizer_decode(const struct tokenizer *t, const uint32_t *tokens, size_t n, unsigned flags, char *text,
		     size_t capacity, size_t *ret_bytes)
{
	const struct vocabulary *v = &t->vocabulary;
	struct byte_sink sink = {text, capacity, 0};
	bool start = t->spm && t->spm->add_space_prefix && (flags & TOKENIZER_START);
	for (size_t i = 0; i < n; i++) {
		if (tokens[i] >= v->n)
			return -EINVAL;
		bool control =
		    v->type[tokens[i]] == TOKENIZER_CONTROL || v->type[tokens[i]] == TOKENIZER_UNKNOWN;
		struct gguf_text written = vocabulary_text(v, tokens[i]);
		if (control && (flags & TOKENIZER_SPECIAL))
			put_bytes(&sink, written.data, written.bytes);
		else if (!control && t->spm)
			decode_spm(v, tokens[i], start, &sink);
		else if (!control)
			put_bytes(&sink, written.data, written.bytes);
		start = start && control;
	}
	*ret_bytes = sink.n;
	return sink.n > capacity ? -ENOSPC : 0;
}

uint32_t tokenizer_size(const struct tokenizer *t)
{
	return t->vocabulary.n;
}

uint32_t tokenizer_bos(const struct tokenizer *t)
{
	return t->bos;
}

uint32_t tokenizer_eos(const struct tokenizer *t)
{
	return t->eos;
}

uint32_t tokenizer_eot(const struct tokenizer *t)
{
	return t->eot;
}

bool tokenizer_wants_bos(const struct tokenizer *t)
{
	return t->wants_bos;
}

const uint32_t *tokenizer_ends(const struct tokenizer *t, size_t *ret_n)
{
	*ret_n = t->n_ends;
	return t->ends;
}

enum tokenizer_type tokenizer_type(const struct tokenizer *t, uint32_t token)
{
	return token < t->vocabulary.n ? (enum tokenizer_type)t->vocabulary.type[token]
				       : (enum tokenizer_type)0;
}

struct gguf_text tokenizer_text(const struct tokenizer *t, uint32_t token)
{
	return token < t->vocabulary.n ? vocabulary_text(&t->vocabulary, token) : (struct gguf_text){NULL, 0};
}

uint32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t bytes)
{
	return vocabulary_find(&t->vocabulary, text, bytes);
}

const char *tokenizer_chat_template(const struct tokenizer *t)
{
	return t->chat_template;
}

const char *tokenizer_kind(const struct tokenizer *t)
{
	return t->kind;
}
