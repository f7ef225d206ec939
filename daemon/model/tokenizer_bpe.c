#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/tokenizer_internal.h"

static uint32_t hash_pair(uint32_t left, uint32_t right)
{
	uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
	return (uint32_t)(h >> 32);
}

static struct merge_slot *find_slot(const struct bpe *bpe, uint32_t left, uint32_t right)
{
	uint32_t i = hash_pair(left, right) & bpe->slot_mask;
	while (bpe->slots[i].left != TOKENIZER_NONE &&
	       (bpe->slots[i].left != left || bpe->slots[i].right != right))
		i = (i + 1) & bpe->slot_mask;
	return &bpe->slots[i];
}

/* A merge is "left right" in the byte alphabet, where a blank is no character. */
static int add_merge(struct tokenizer *t, struct gguf_text merge, uint32_t rank, char *scratch, char *why,
		     size_t why_bytes)
{
	size_t left_bytes, right_bytes;
	const char *blank = merge.bytes > 2 ? memchr(merge.data + 1, ' ', merge.bytes - 2) : NULL;
	struct gguf_text left = {merge.data, blank ? (size_t)(blank - merge.data) : 0};
	struct gguf_text right = {blank ? blank + 1 : NULL, blank ? merge.bytes - left.bytes - 1 : 0};
	if (!blank || !byte_level_decode(left, scratch, &left_bytes) ||
	    !byte_level_decode(right, scratch + left_bytes, &right_bytes)) {
		snprintf(why, why_bytes,
			 "key 'tokenizer.ggml.merges': merge %u is not two parts in the byte alphabet", rank);
		return -EINVAL;
	}
	const struct vocabulary *v = &t->vocabulary;
	uint32_t a = vocabulary_find(v, scratch, left_bytes);
	uint32_t b = vocabulary_find(v, scratch + left_bytes, right_bytes);
	uint32_t joined = vocabulary_find(v, scratch, left_bytes + right_bytes);
	if (a == TOKENIZER_NONE || b == TOKENIZER_NONE || joined == TOKENIZER_NONE) {
		snprintf(why, why_bytes,
			 "key 'tokenizer.ggml.merges': merge %u has a part or a result that is not in the "
			 "vocabulary",
			 rank);
		return -EINVAL;
	}
	struct merge_slot *slot = find_slot(t->bpe, a, b);
	if (slot->left == TOKENIZER_NONE)
		*slot = (struct merge_slot){a, b, {rank, joined}};
	return 0;
}

static int read_merges(struct tokenizer *t, const struct gguf *g, char *why, size_t why_bytes)
{
	struct gguf_array merges;
	struct gguf_text merge;
	size_t cursor = 0, slots = 16;
	int error = gguf_array(g, "tokenizer.ggml.merges", &merges);
	if (error || merges.type != GGUF_STRING || merges.n > UINT32_MAX / 8) {
		snprintf(why, why_bytes, "key 'tokenizer.ggml.merges' is not an array of strings");
		return error == -ENOENT ? -ENOENT : -EINVAL;
	}
	while (slots < 2 * merges.n)
		slots *= 2;
	t->bpe->slot_mask = (uint32_t)(slots - 1);
	t->bpe->slots = malloc(slots * sizeof *t->bpe->slots);
	char *scratch = malloc(merges.bytes + 1);
	if (!t->bpe->slots || !scratch) {
		snprintf(why, why_bytes, "no memory for %" PRIu64 " merges", merges.n);
		free(scratch);
		return -ENOMEM;
	}
	memset(t->bpe->slots, 0xff, slots * sizeof *t->bpe->slots);
	for (uint32_t rank = 0; !error && gguf_array_next_string(&merges, &cursor, &merge); rank++)
		error = add_merge(t, merge, rank, scratch, why, why_bytes);
	free(scratch);
	return error;
}

int bpe_open(struct tokenizer *t, const struct gguf *g, char *why, size_t why_bytes)
{
	struct gguf_text pre;
	int error = gguf_string(g, "tokenizer.ggml.pre", &pre);
	if (error) {
		snprintf(why, why_bytes, "key 'tokenizer.ggml.pre' is %s, so how to split text is unknown",
			 error == -ENOENT ? "absent" : "no string");
		return error;
	}
	t->bpe = calloc(1, sizeof *t->bpe);
	if (!t->bpe) {
		snprintf(why, why_bytes, "no memory for the tokenizer");
		return -ENOMEM;
	}
	error = pretokenizer_open(pre, &t->bpe->pretokenizer, why, why_bytes);
	if (!error)
		error = vocabulary_open(&t->vocabulary, g, true, why, why_bytes);
	if (!error)
		error = read_merges(t, g, why, why_bytes);
	if (error)
		return error;
	t->wants_bos = pretokenizer_wants_bos(t->bpe->pretokenizer);
	snprintf(t->kind, sizeof t->kind, "bpe/%s", pretokenizer_name(t->bpe->pretokenizer));
	return 0;
}

void bpe_close(struct bpe *bpe)
{
	if (!bpe)
		return;
	pretokenizer_close(bpe->pretokenizer);
	free(bpe->slots);
	free(bpe);
}

static bool find_rule(const void *context, const char *text, const struct merge_symbol *left,
		      const struct merge_symbol *right, struct merge_rule *ret)
{
	const struct merge_slot *slot = find_slot(context, left->token, right->token);
	if (slot->left == TOKENIZER_NONE)
		return false;
	*ret = slot->rule;
	return true;
}

struct bpe_run {
	const struct tokenizer *tokenizer;
	struct merger *merger;
	struct token_sink *sink;
};

static int encode_piece(void *context, const char *text, size_t bytes)
{
	const struct bpe_run *run = context;
	const struct tokenizer *t = run->tokenizer;
	struct merger *m = run->merger;
	if (pretokenizer_whole_pieces_first(t->bpe->pretokenizer)) {
		uint32_t whole = vocabulary_find(&t->vocabulary, text, bytes);
		if (whole != TOKENIZER_NONE && t->vocabulary.type[whole] == TOKENIZER_NORMAL) {
			sink_put(run->sink, whole);
			return 0;
		}
	}
	int error = merger_begin(m, bytes);
	if (error)
		return error;
	for (size_t i = 0; i < bytes; i++) {
		uint32_t token = t->vocabulary.byte_token[(unsigned char)text[i]];
		if (token != TOKENIZER_NONE)
			merger_add(m, (uint32_t)i, 1, token);
	}
	merger_run(m, text, find_rule, t->bpe);
	for (size_t i = 0; i < m->n_symbols; i++)
		if (m->symbols[i].bytes)
			sink_put(run->sink, m->symbols[i].token);
	return 0;
}

int bpe_encode(const struct tokenizer *t, const char *text, size_t bytes, struct merger *merger,
	       struct token_sink *sink)
{
	struct bpe_run run = {t, merger, sink};
	return pretokenizer_split(t->bpe->pretokenizer, text, bytes, encode_piece, &run);
}
