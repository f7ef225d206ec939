/* Merging neighbours by rank: the core of both kinds of byte-pair encoding, O(n log n) by a heap of
 * candidates.
 *
 * Of all neighbours that a rule joins, the pair with the lowest rank goes first, and the leftmost among
 * equals. */
#ifndef TOKENRING_MODEL_MERGE_H
#define TOKENRING_MODEL_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct merge_symbol {
	uint32_t start, bytes; /* in the text; 0 bytes: joined to its left neighbour */
	uint32_t token;        /* TOKENIZER_NONE if the vocabulary lacks it */
	uint32_t previous, next;
};

struct merge_rule {
	uint32_t rank;
	uint32_t token; /* that the pair becomes */
};

/* Whether a rule joins two neighbours. */
typedef bool merge_find(const void *context, const char *text, const struct merge_symbol *left,
			const struct merge_symbol *right, struct merge_rule *ret);

struct merge_candidate;

/* Scratch memory, reused from piece to piece; all zero at the start; one owner. */
struct merger {
	struct merge_symbol *symbols;
	size_t n_symbols, symbols_capacity;
	struct merge_candidate *heap;
	size_t n_heap, heap_capacity;
};

void merger_free(struct merger *);

/* Empties the list of symbols and makes room for n.  -ENOMEM. */
int merger_begin(struct merger *, size_t n);

/* Appends a symbol; at most as many as merger_begin was told. */
void merger_add(struct merger *, uint32_t start, uint32_t bytes, uint32_t token);

/* Merges until no rule applies.  Afterwards symbols with bytes > 0, in order, are the result. */
void merger_run(struct merger *, const char *text, merge_find *find, const void *context);

#endif
