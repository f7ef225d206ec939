#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/tokenizer_internal.h"
#include "daemon/model/utf8.h"

/* Maps floats to integers so that a higher score is a lower rank. */
static uint32_t rank_of(float score)
{
	uint32_t bits;
	score += 0.0f; /* -0 and +0 are equal */
	memcpy(&bits, &score, sizeof bits);
	return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

static int read_scores(struct tokenizer *t, const struct gguf *g, char *why, size_t why_bytes)
{
	struct gguf_array scores;
	uint32_t n = t->vocabulary.n;
	int error = gguf_array(g, "tokenizer.ggml.scores", &scores);
	if (error || scores.type != GGUF_F32 || scores.n != n) {
		snprintf(why, why_bytes,
			 "key 'tokenizer.ggml.scores' is not an array of %u floats, one a token", n);
		return -EINVAL;
	}
	t->spm->rank = calloc(n, sizeof *t->spm->rank);
	if (!t->spm->rank) {
		snprintf(why, why_bytes, "no memory for the scores of %u tokens", n);
		return -ENOMEM;
	}
	for (uint32_t token = 0; token < n; token++) {
		float score = 0;
		if (gguf_array_f32(&scores, token, &score) || isnan(score)) {
			snprintf(why, why_bytes,
				 "key 'tokenizer.ggml.scores': the score of token %u is not a number", token);
			return -EINVAL;
		}
		t->spm->rank[token] = rank_of(score);
	}
	return 0;
}

/* Normalisations that would change the tokens must not be passed over in silence. */
static int check_normalisation(const struct gguf *g, char *why, size_t why_bytes)
{
	bool removes = false;
	struct gguf_array map;
	if (gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &removes) != -EINVAL && !removes &&
	    (gguf_array(g, "tokenizer.ggml.precompiled_charsmap", &map) == -ENOENT))
		return 0;
	snprintf(why, why_bytes,
		 "the tokenizer normalises text (remove_extra_whitespaces or precompiled_charsmap), which is "
		 "not supported");
	return -ENOTSUP;
}

int spm_open(struct tokenizer *t, const struct gguf *g, char *why, size_t why_bytes)
{
	t->spm = calloc(1, sizeof *t->spm);
	if (!t->spm) {
		snprintf(why, why_bytes, "no memory for the tokenizer");
		return -ENOMEM;
	}
	t->spm->add_space_prefix = true;
	t->spm->unknown = TOKENIZER_NONE;
	t->wants_bos = true;
	strcpy(t->kind, "spm");
	int error = check_normalisation(g, why, why_bytes);
	if (!error)
		error = vocabulary_open(&t->vocabulary, g, false, why, why_bytes);
	if (!error)
		error = read_scores(t, g, why, why_bytes);
	if (error)
		return error;
	if (gguf_bool(g, "tokenizer.ggml.add_space_prefix", &t->spm->add_space_prefix) == -EINVAL) {
		snprintf(why, why_bytes, "key 'tokenizer.ggml.add_space_prefix' is no truth value");
		return -EINVAL;
	}
	(void)gguf_u32(g, "tokenizer.ggml.unknown_token_id", &t->spm->unknown);
	if (t->spm->unknown >= t->vocabulary.n)
		t->spm->unknown = TOKENIZER_NONE;
	return 0;
}

void spm_close(struct spm *spm)
{
	if (!spm)
		return;
	free(spm->rank);
	free(spm);
}

/* Two neighbours merge if their joint text is a token that text may become. */
static bool find_rule(const void *context, const char *text, const struct merge_symbol *left,
		      const struct merge_symbol *right, struct merge_rule *ret)
{
	const struct tokenizer *t = context;
	uint32_t token =
	    vocabulary_find(&t->vocabulary, text + left->start, (size_t)left->bytes + right->bytes);
	if (token == TOKENIZER_NONE || t->vocabulary.type[token] != TOKENIZER_NORMAL)
		return false;
	*ret = (struct merge_rule){t->spm->rank[token], token};
	return true;
}

static void put_symbol(const struct tokenizer *t, const char *text, const struct merge_symbol *symbol,
		       struct token_sink *sink)
{
	bool spelled = true;
	if (symbol->token != TOKENIZER_NONE) {
		sink_put(sink, symbol->token);
		return;
	}
	for (uint32_t i = 0; i < symbol->bytes; i++)
		spelled &= t->vocabulary.byte_token[(unsigned char)text[symbol->start + i]] != TOKENIZER_NONE;
	for (uint32_t i = 0; i < symbol->bytes && spelled; i++)
		sink_put(sink, t->vocabulary.byte_token[(unsigned char)text[symbol->start + i]]);
	if (!spelled && t->spm->unknown != TOKENIZER_NONE)
		sink_put(sink, t->spm->unknown);
}

size_t spm_plain_text(struct gguf_text text, char *out)
{
	size_t written = 0;
	for (size_t at = 0; at < text.bytes;) {
		bool space = text.bytes - at >= SPM_SPACE_BYTES &&
			     memcmp(text.data + at, SPM_SPACE, SPM_SPACE_BYTES) == 0;
		out[written++] = space ? ' ' : text.data[at];
		at += space ? SPM_SPACE_BYTES : 1;
	}
	return written;
}

static size_t escape_spaces(const char *text, size_t bytes, bool prefix, char *out)
{
	size_t written = 0;
	if (prefix) {
		memcpy(out, SPM_SPACE, SPM_SPACE_BYTES);
		written = SPM_SPACE_BYTES;
	}
	for (size_t i = 0; i < bytes; i++) {
		size_t n = text[i] == ' ' ? SPM_SPACE_BYTES : 1;
		memcpy(out + written, text[i] == ' ' ? SPM_SPACE : text + i, n);
		written += n;
	}
	return written;
}

static int encode_escaped(const struct tokenizer *t, const char *text, size_t bytes, struct merger *m,
			  struct token_sink *sink)
{
	int error = merger_begin(m, bytes);
	if (error)
		return error;
	for (size_t at = 0, n; at < bytes; at += n) {
		enum utf8_status status;
		n = utf8_first(text + at, bytes - at, &status);
		uint32_t token = vocabulary_find(&t->vocabulary, text + at, n);
		if (token != TOKENIZER_NONE && t->vocabulary.type[token] != TOKENIZER_NORMAL)
			token = TOKENIZER_NONE;
		merger_add(m, (uint32_t)at, (uint32_t)n, token);
	}
	merger_run(m, text, find_rule, t);
	for (size_t i = 0; i < m->n_symbols; i++)
		if (m->symbols[i].bytes)
			put_symbol(t, text, &m->symbols[i], sink);
	return 0;
}

int spm_encode(const struct tokenizer *t, const char *text, size_t bytes, bool prefix, struct merger *merger,
	       struct token_sink *sink)
{
	char *escaped = malloc(SPM_SPACE_BYTES * (bytes + 1));
	if (!escaped)
		return -ENOMEM;
	size_t n = escape_spaces(text, bytes, prefix, escaped);
	int error = encode_escaped(t, escaped, n, merger, sink);
	free(escaped);
	return error;
}
