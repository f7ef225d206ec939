/* Splitting text into the pieces that byte-level BPE never merges across.
 *
 * Thread rule: a pretokenizer is immutable; any number of threads may split with it.  Splitting allocates. */
#ifndef TOKENRING_MODEL_PRETOKENIZE_H
#define TOKENRING_MODEL_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/model/gguf.h"

struct pretokenizer;

/* `name` is the value of tokenizer.ggml.pre.  -ENOTSUP with a sentence that lists the known ones; -ENOMEM. */
int pretokenizer_open(struct gguf_text name, struct pretokenizer **ret, char *why, size_t why_bytes);

/* Accepts NULL. */
void pretokenizer_close(struct pretokenizer *);

/* The table's own name of the pre-tokenizer. */
const char *pretokenizer_name(const struct pretokenizer *);

/* A piece that is a token as a whole is taken as that token, whatever the merges would give. */
bool pretokenizer_whole_pieces_first(const struct pretokenizer *);

/* Sequences begin with BOS where the file does not say. */
bool pretokenizer_wants_bos(const struct pretokenizer *);

/* Calls `piece` for each piece in order; together they are the text, which must be well-formed UTF-8.  Stops
 * at the first non-zero answer and returns it; -ENOMEM. */
int pretokenizer_split(const struct pretokenizer *, const char *text, size_t bytes,
		       int (*piece)(void *context, const char *text, size_t bytes), void *context);

#endif
