#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/tokenizer_internal.h"

enum { MAX_TOKENS = 1 << 24 };

static uint32_t hash(const char *text, size_t bytes)
{
	uint64_t h = 0x9e3779b97f4a7c15u ^ bytes;
	while (bytes >= 8) {
		uint64_t word;
		memcpy(&word, text, 8);
		h = (h ^ word) * 0xff51afd7ed558ccdu;
		h ^= h >> 32;
		text += 8;
		bytes -= 8;
	}
	uint64_t word = 0;
	memcpy(&word, text, bytes);
	h = (h ^ word) * 0xc4ceb9fe1a85ec53u;
	return (uint32_t)(h >> 32);
}

struct gguf_text vocabulary_text(const struct vocabulary *v, uint32_t token)
{
	return (struct gguf_text){v->text + v->start[token], (size_t)(v->start[token + 1] - v->start[token])};
}

uint32_t vocabulary_find(const struct vocabulary *v, const char *text, size_t bytes)
{
	if (bytes > v->longest_bytes)
		return TOKENIZER_NONE;
	for (uint32_t i = hash(text, bytes) & v->slot_mask;; i = (i + 1) & v->slot_mask) {
		uint32_t token = v->slots[i];
		if (token == TOKENIZER_NONE)
			return TOKENIZER_NONE;
		struct gguf_text found = vocabulary_text(v, token);
		if (found.bytes == bytes && memcmp(found.data, text, bytes) == 0)
			return token;
	}
}

/* GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and up, in order. */
static bool is_printable_latin1(unsigned byte)
{
	return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
	       (byte >= 0xae && byte <= 0xff);
}

static int byte_of(unsigned codepoint)
{
	if (codepoint < 256)
		return is_printable_latin1(codepoint) ? (int)codepoint : -1;
	unsigned nth = codepoint - 256; /* of 00-20, 7F-A0, AD */
	if (nth <= 0x20)
		return (int)nth;
	if (nth <= 0x20 + (0xa0 - 0x7f) + 1)
		return (int)(nth - 0x21 + 0x7f);
	if (nth == 0x20 + (0xa0 - 0x7f) + 2)
		return 0xad;
	return -1;
}

bool byte_level_decode(struct gguf_text text, char *out, size_t *ret_bytes)
{
	size_t written = 0;
	for (size_t at = 0; at < text.bytes;) {
		unsigned codepoint = (unsigned char)text.data[at++];
		if (codepoint >= 0xc2 && codepoint < 0xe0 && at < text.bytes)
			codepoint = (codepoint & 0x1f) << 6 | ((unsigned char)text.data[at++] & 0x3f);
		int byte = byte_of(codepoint);
		if (byte < 0)
			return false;
		out[written++] = (char)byte;
	}
	*ret_bytes = written;
	return true;
}

static bool is_searched(uint8_t type)
{
	return type == TOKENIZER_CONTROL || type == TOKENIZER_UNKNOWN || type == TOKENIZER_USER_DEFINED;
}

/* The value of a byte token's text, "<0x0A>", or -1. */
static int byte_token_value(struct gguf_text text)
{
	unsigned value;
	char copy[8] = "";
	int end = 0;
	if (text.bytes != 6)
		return -1;
	memcpy(copy, text.data, 6);
	return sscanf(copy, "<0x%2X>%n", &value, &end) == 1 && end == 6 ? (int)value : -1;
}

/* Copies one text as encoding and decoding want it: bytes in a byte-level vocabulary. */
static void add_text(struct vocabulary *v, uint32_t token, struct gguf_text text, bool byte_level,
		     uint64_t *end)
{
	size_t bytes = text.bytes;
	char *out = v->text + *end;
	v->start[token] = *end;
	if (!byte_level || is_searched(v->type[token]) || !byte_level_decode(text, out, &bytes)) {
		memcpy(out, text.data, text.bytes);
		bytes = text.bytes;
	}
	*end += bytes;
	if (bytes > v->longest_bytes)
		v->longest_bytes = (uint32_t)bytes;
}

static int read_types(struct vocabulary *v, const struct gguf *g, char *why, size_t why_bytes)
{
	struct gguf_array types;
	memset(v->type, TOKENIZER_NORMAL, v->n);
	int error = gguf_array(g, "tokenizer.ggml.token_type", &types);
	if (error == -ENOENT)
		return 0;
	if (error || types.n != v->n) {
		snprintf(why, why_bytes,
			 "key 'tokenizer.ggml.token_type' is not an array of %u numbers, one a token", v->n);
		return -EINVAL;
	}
	for (uint32_t token = 0; token < v->n; token++) {
		int32_t type = 0;
		if (gguf_array_i32(&types, token, &type) || type < TOKENIZER_NORMAL ||
		    type > TOKENIZER_BYTE) {
			snprintf(why, why_bytes,
				 "key 'tokenizer.ggml.token_type': token %u has type %d; 1 to 6 are known",
				 token, type);
			return -EINVAL;
		}
		v->type[token] = (uint8_t)type;
	}
	return 0;
}

static int read_texts(struct vocabulary *v, const struct gguf_array *tokens, bool byte_level, char *why,
		      size_t why_bytes)
{
	size_t cursor = 0;
	uint64_t end = 0;
	struct gguf_text text;
	for (uint32_t token = 0; gguf_array_next_string(tokens, &cursor, &text); token++) {
		if (text.bytes > UINT16_MAX) {
			snprintf(
			    why, why_bytes,
			    "key 'tokenizer.ggml.tokens': token %u has %zu bytes; at most 65535 are allowed",
			    token, text.bytes);
			return -EINVAL;
		}
		add_text(v, token, text, byte_level, &end);
	}
	v->start[v->n] = end;
	return 0;
}

/* Tokens that text can become go first, so that an equal control token does not hide one; the first of equals
 * stays. */
static void index_texts(struct vocabulary *v)
{
	for (int searched = 0; searched < 2; searched++)
		for (uint32_t token = 0; token < v->n; token++) {
			struct gguf_text text = vocabulary_text(v, token);
			if (is_searched(v->type[token]) != searched ||
			    vocabulary_find(v, text.data, text.bytes) != TOKENIZER_NONE)
				continue;
			uint32_t i = hash(text.data, text.bytes) & v->slot_mask;
			while (v->slots[i] != TOKENIZER_NONE)
				i = (i + 1) & v->slot_mask;
			v->slots[i] = token;
		}
}

static void index_bytes(struct vocabulary *v, bool byte_level)
{
	for (unsigned byte = 0; byte < 256; byte++)
		v->byte_token[byte] =
		    byte_level ? vocabulary_find(v, &(char){(char)byte}, 1) : TOKENIZER_NONE;
	for (uint32_t token = 0; token < v->n && !byte_level; token++) {
		int byte =
		    v->type[token] == TOKENIZER_BYTE ? byte_token_value(vocabulary_text(v, token)) : -1;
		if (byte >= 0)
			v->byte_token[byte] = token;
	}
}

static int allocate(struct vocabulary *v, size_t text_bytes)
{
	uint32_t slots = 16;
	while (slots < 2 * v->n)
		slots *= 2;
	v->slot_mask = slots - 1;
	v->text = malloc(text_bytes + 1);
	v->start = calloc((size_t)v->n + 1, sizeof *v->start);
	v->type = calloc((size_t)v->n + 1, 1);
	v->slots = malloc(slots * sizeof *v->slots);
	if (!v->text || !v->start || !v->type || !v->slots)
		return -ENOMEM;
	memset(v->slots, 0xff, slots * sizeof *v->slots);
	return 0;
}

int vocabulary_open(struct vocabulary *v, const struct gguf *g, bool byte_level, char *why, size_t why_bytes)
{
	struct gguf_array tokens;
	int error = gguf_array(g, "tokenizer.ggml.tokens", &tokens);
	if (error || tokens.type != GGUF_STRING || tokens.n == 0 || tokens.n > MAX_TOKENS) {
		snprintf(why, why_bytes, "key 'tokenizer.ggml.tokens' is not an array of 1 to %d strings",
			 MAX_TOKENS);
		return error == -ENOENT ? -ENOENT : -EINVAL;
	}
	v->n = (uint32_t)tokens.n;
	if (allocate(v, tokens.bytes)) {
		snprintf(why, why_bytes, "no memory for a vocabulary of %u tokens", v->n);
		return -ENOMEM;
	}
	error = read_types(v, g, why, why_bytes);
	if (!error)
		error = read_texts(v, &tokens, byte_level, why, why_bytes);
	if (error)
		return error;
	index_texts(v);
	index_bytes(v, byte_level);
	return 0;
}

void vocabulary_close(struct vocabulary *v)
{
	free(v->text);
	free(v->start);
	free(v->type);
	free(v->slots);
}
