/* Text to tokens and back, from the vocabulary in a GGUF file.
 *
 * Byte-level BPE (tokenizer.ggml.model = "gpt2", with tokenizer.ggml.pre one of smollm, gpt-2, llama-bpe,
 * qwen2) and SentencePiece BPE with scores and byte fallback ("llama").
 *
 * Thread rule: a tokenizer is immutable after tokenizer_open; any number of threads may encode and decode
 * with it. Encoding allocates scratch memory proportional to the text and takes O(n log n); it belongs on a
 * control thread.
 *
 * Broken UTF-8 is read as Unicode recommends: each maximal subpart of an ill-formed sequence becomes one
 * U+FFFD before anything else happens (the Unicode standard, section 3.9, "U+FFFD substitution of maximal
 * subparts"). Bytes that a byte-level vocabulary has no token for are dropped, as its training tokenizer
 * does; a SentencePiece vocabulary without byte tokens gives its unknown token. Text is not normalised (NFC
 * and the like are the caller's).  Character classes are those of PCRE2's Unicode version.
 *
 * Sources: Sennrich et al. 2016 (BPE); the GPT-2 release (byte alphabet, splitting); Kudo and Richardson 2018
 * (SentencePiece); the GGUF specification for keys and token types. */
#ifndef TOKENRING_MODEL_TOKENIZER_H
#define TOKENRING_MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/model/gguf.h"

#define TOKENIZER_NONE UINT32_MAX /* no such token */

enum tokenizer_flags {
	TOKENIZER_BOS = 1u << 0, /* encode: begin-of-sequence first, if the model wants one */
	TOKENIZER_SPECIAL =
	    1u << 1, /* encode: control tokens written out in the text count as such; decode: show them */
	TOKENIZER_START =
	    1u << 2, /* decode: the tokens begin a text: drop the space that encode put in front */
};

/* The numbers are those of tokenizer.ggml.token_type. */
enum tokenizer_type {
	TOKENIZER_NORMAL = 1,
	TOKENIZER_UNKNOWN = 2,
	TOKENIZER_CONTROL = 3,
	TOKENIZER_USER_DEFINED = 4, /* found in any text, before everything else */
	TOKENIZER_UNUSED = 5,
	TOKENIZER_BYTE = 6,
};

struct tokenizer;

/* Copies what it needs: `gguf` may be closed afterwards.  -ENOENT: no tokenizer in the file; -ENOTSUP: a kind
 * that is not supported; -EINVAL: broken; -ENOMEM. */
int tokenizer_open(const struct gguf *, struct tokenizer **ret, char *why, size_t why_bytes);

/* Accepts NULL. */
void tokenizer_close(struct tokenizer *);

/* Writes at most `capacity` tokens and their number to *ret_n.  -ENOSPC: *ret_n is the number needed and
 * `tokens` holds the first `capacity`; -E2BIG: more than 1 GiB of text; -ENOMEM. */
int tokenizer_encode(const struct tokenizer *, const char *text, size_t bytes, unsigned flags,
		     uint32_t *tokens, size_t capacity, size_t *ret_n);

/* Writes raw bytes, which may end inside a UTF-8 character (see utf8_stream.h) and are not NUL-terminated.
 * Decoding piece by piece gives the same bytes.  Control and unknown tokens give nothing without
 * TOKENIZER_SPECIAL. -ENOSPC: *ret_bytes is the number needed; -EINVAL: a token is not in the vocabulary. */
int tokenizer_decode(const struct tokenizer *, const uint32_t *tokens, size_t n, unsigned flags, char *text,
		     size_t capacity, size_t *ret_bytes);

uint32_t tokenizer_size(const struct tokenizer *); /* of the vocabulary */

/* TOKENIZER_NONE if the model has none. */
uint32_t tokenizer_bos(const struct tokenizer *);
uint32_t tokenizer_eos(const struct tokenizer *);
uint32_t tokenizer_eot(const struct tokenizer *); /* end of turn */

bool tokenizer_wants_bos(const struct tokenizer *);

/* Every token that ends a generation, ascending; *ret_n of them, owned by the tokenizer. */
const uint32_t *tokenizer_ends(const struct tokenizer *, size_t *ret_n);

/* 0 for a token outside the vocabulary. */
enum tokenizer_type tokenizer_type(const struct tokenizer *, uint32_t token);

/* The bytes that a token stands for, control tokens as written; owned by the tokenizer, not NUL-terminated.
 */
struct gguf_text tokenizer_text(const struct tokenizer *, uint32_t token);

/* The token written exactly so, of any type, or TOKENIZER_NONE. */
uint32_t tokenizer_find(const struct tokenizer *, const char *text, size_t bytes);

/* NUL-terminated, owned by the tokenizer; NULL if the file has none. */
const char *tokenizer_chat_template(const struct tokenizer *);

/* What it is, for listings: "bpe/smollm", "spm". */
const char *tokenizer_kind(const struct tokenizer *);

#endif
