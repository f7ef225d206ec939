/* Shared by tokenizer*.c, vocabulary.c and merge.c only. */
#ifndef TOKENRING_MODEL_TOKENIZER_INTERNAL_H
#define TOKENRING_MODEL_TOKENIZER_INTERNAL_H

#include "daemon/model/merge.h"
#include "daemon/model/pretokenize.h"
#include "daemon/model/tokenizer.h"

/* U+2581, which stands for a blank in the texts of a SentencePiece vocabulary. */
#define SPM_SPACE       "\xe2\x96\x81"
#define SPM_SPACE_BYTES 3

struct vocabulary {
	uint32_t n;
	char *text;      /* all texts, one after the other */
	uint64_t *start; /* (n + 1) into text */
	uint8_t *type;   /* (n) enum tokenizer_type */
	uint32_t *slots; /* (slot_mask + 1) text hash to token, TOKENIZER_NONE if free */
	uint32_t slot_mask;
	uint32_t longest_bytes; /* of a text */
	uint32_t byte_token[256];
};

/* A prefix tree of the tokens that are searched for in the text before it is split. */
struct special_node {
	uint8_t byte;
	uint32_t token;   /* that ends here, or TOKENIZER_NONE */
	uint32_t child;   /* 0 if none */
	uint32_t sibling; /* 0 if none */
};

struct specials {
	uint32_t root[256]; /* node by first byte, 0 if none */
	struct special_node *nodes;
	uint32_t n, capacity; /* node 0 is never used */
};

struct merge_slot {
	uint32_t left, right; /* left is TOKENIZER_NONE in a free slot */
	struct merge_rule rule;
};

struct bpe {
	struct pretokenizer *pretokenizer;
	struct merge_slot *slots; /* (slot_mask + 1) */
	uint32_t slot_mask;
};

struct spm {
	uint32_t *rank; /* (vocabulary) lower merges first; from the scores */
	bool add_space_prefix;
	uint32_t unknown;
};

struct tokenizer {
	struct vocabulary vocabulary;
	struct specials specials;
	struct bpe *bpe; /* exactly one of these two */
	struct spm *spm;
	uint32_t bos, eos, eot;
	bool wants_bos;
	uint32_t *ends;
	size_t n_ends;
	char *chat_template;
	char kind[32];
};

/* Where tokens go; counts on after it is full. */
struct token_sink {
	uint32_t *tokens;
	size_t capacity;
	size_t n;
};

static inline void sink_put(struct token_sink *sink, uint32_t token)
{
	if (sink->n < sink->capacity)
		sink->tokens[sink->n] = token;
	sink->n++;
}

/* vocabulary.c */
int vocabulary_open(struct vocabulary *, const struct gguf *, bool byte_level, char *why, size_t why_bytes);
void vocabulary_close(struct vocabulary *);
struct gguf_text vocabulary_text(const struct vocabulary *, uint32_t token);
uint32_t vocabulary_find(const struct vocabulary *, const char *text, size_t bytes);

/* Turns the printable stand-ins of the GPT-2 byte alphabet back into bytes.  False, with `out` undefined, if
 * a character is not of that alphabet.  `out` has room for `bytes`. */
bool byte_level_decode(struct gguf_text text, char *out, size_t *ret_bytes);

/* specials.c */
int specials_open(struct specials *, const struct vocabulary *, bool spm);
void specials_close(struct specials *);
/* The longest special token at the beginning of text; user-defined ones only, unless `control`. */
uint32_t specials_match(const struct specials *, const struct vocabulary *, const char *text, size_t bytes,
			bool control, size_t *ret_bytes);

/* tokenizer_bpe.c: encodes well-formed UTF-8 without special tokens. */
int bpe_open(struct tokenizer *, const struct gguf *, char *why, size_t why_bytes);
void bpe_close(struct bpe *);
int bpe_encode(const struct tokenizer *, const char *text, size_t bytes, struct merger *,
	       struct token_sink *);

/* tokenizer_spm.c: the same; `prefix` puts a blank in front. */
int spm_open(struct tokenizer *, const struct gguf *, char *why, size_t why_bytes);
void spm_close(struct spm *);
/* U+2581 to blanks; `out` has room for text.bytes and may be the text itself.  Returns the bytes written. */
size_t spm_plain_text(struct gguf_text text, char *out);
int spm_encode(const struct tokenizer *, const char *text, size_t bytes, bool prefix, struct merger *,
	       struct token_sink *);

#endif
