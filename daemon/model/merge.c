#include "daemon/model/merge.h"

#include <errno.h>
#include <stdlib.h>

#define NOBODY UINT32_MAX

struct merge_candidate {
	struct merge_rule rule;
	uint32_t left, right; /* symbols */
	uint32_t bytes;       /* of both when this was found: another sum means that one has grown since */
};

void merger_free(struct merger *m)
{
	free(m->symbols);
	free(m->heap);
	*m = (struct merger){0};
}

int merger_begin(struct merger *m, size_t n)
{
	m->n_symbols = 0;
	m->n_heap = 0;
	if (n > m->symbols_capacity) {
		size_t capacity = n < 64 ? 64 : n + n / 2;
		struct merge_symbol *symbols = realloc(m->symbols, capacity * sizeof *symbols);
		if (!symbols)
			return -ENOMEM;
		m->symbols = symbols;
		m->symbols_capacity = capacity;
	}
	/* n - 1 pairs at first, and each of at most n - 1 merges adds two while it takes one away. */
	if (2 * n > m->heap_capacity) {
		size_t capacity = 2 * m->symbols_capacity;
		struct merge_candidate *heap = realloc(m->heap, capacity * sizeof *heap);
		if (!heap)
			return -ENOMEM;
		m->heap = heap;
		m->heap_capacity = capacity;
	}
	return 0;
}

void merger_add(struct merger *m, uint32_t start, uint32_t bytes, uint32_t token)
{
	uint32_t i = (uint32_t)m->n_symbols++;
	m->symbols[i] = (struct merge_symbol){start, bytes, token, i ? i - 1 : NOBODY, NOBODY};
	if (i)
		m->symbols[i - 1].next = i;
}

static bool before(const struct merge_candidate *a, const struct merge_candidate *b)
{
	return a->rule.rank != b->rule.rank ? a->rule.rank < b->rule.rank : a->left < b->left;
}

static void heap_push(struct merger *m, struct merge_candidate candidate)
{
	size_t i = m->n_heap++;
	for (; i && before(&candidate, &m->heap[(i - 1) / 2]); i = (i - 1) / 2)
		m->heap[i] = m->heap[(i - 1) / 2];
	m->heap[i] = candidate;
}

static struct merge_candidate heap_pop(struct merger *m)
{
	struct merge_candidate top = m->heap[0], last = m->heap[--m->n_heap];
	size_t i = 0;
	for (size_t child = 1; child < m->n_heap; child = 2 * i + 1) {
		if (child + 1 < m->n_heap && before(&m->heap[child + 1], &m->heap[child]))
			child++;
		if (!before(&m->heap[child], &last))
			break;
		m->heap[i] = m->heap[child];
		i = child;
	}
	m->heap[i] = last;
	return top;
}

static void consider(struct merger *m, const char *text, uint32_t left, uint32_t right, merge_find *find,
		     const void *context)
{
	struct merge_rule rule;
	if (left == NOBODY || right == NOBODY)
		return;
	const struct merge_symbol *a = &m->symbols[left], *b = &m->symbols[right];
	if (find(context, text, a, b, &rule))
		heap_push(m, (struct merge_candidate){rule, left, right, a->bytes + b->bytes});
}

void merger_run(struct merger *m, const char *text, merge_find *find, const void *context)
{
	for (uint32_t i = 1; i < m->n_symbols; i++)
		consider(m, text, i - 1, i, find, context);
	while (m->n_heap) {
		struct merge_candidate c = heap_pop(m);
		struct merge_symbol *left = &m->symbols[c.left], *right = &m->symbols[c.right];
		if (!left->bytes || !right->bytes || left->bytes + right->bytes != c.bytes)
			continue;
		left->bytes = c.bytes;
		left->token = c.rule.token;
		left->next = right->next;
		right->bytes = 0;
		if (left->next != NOBODY)
			m->symbols[left->next].previous = c.left;
		consider(m, text, left->previous, c.left, find, context);
		consider(m, text, c.left, left->next, find, context);
	}
}
