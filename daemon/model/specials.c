#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/tokenizer_internal.h"

/* A new node, or 0 without memory. */
static uint32_t add_node(struct specials *s, uint8_t byte)
{
	if (s->n == s->capacity) {
		uint32_t capacity = s->capacity ? 2 * s->capacity : 256;
		struct special_node *nodes = realloc(s->nodes, capacity * sizeof *nodes);
		if (!nodes)
			return 0;
		s->nodes = nodes;
		s->capacity = capacity;
	}
	s->n += s->n == 0; /* 0 means none */
	s->nodes[s->n] = (struct special_node){.byte = byte, .token = TOKENIZER_NONE};
	return s->n++;
}

static uint32_t find_child(const struct specials *s, uint32_t node, uint8_t byte)
{
	uint32_t child = s->nodes[node].child;
	while (child && s->nodes[child].byte != byte)
		child = s->nodes[child].sibling;
	return child;
}

static int insert(struct specials *s, const char *text, size_t bytes, uint32_t token)
{
	uint32_t *root = &s->root[(uint8_t)text[0]];
	if (!*root && !(*root = add_node(s, (uint8_t)text[0])))
		return -ENOMEM;
	uint32_t node = *root;
	for (size_t i = 1; i < bytes; i++) {
		uint32_t child = find_child(s, node, (uint8_t)text[i]);
		if (!child) {
			child = add_node(s, (uint8_t)text[i]);
			if (!child)
				return -ENOMEM;
			s->nodes[child].sibling = s->nodes[node].child;
			s->nodes[node].child = child;
		}
		node = child;
	}
	if (s->nodes[node].token == TOKENIZER_NONE)
		s->nodes[node].token = token;
	return 0;
}

int specials_open(struct specials *s, const struct vocabulary *v, bool spm)
{
	int error = 0;
	char *plain = malloc(v->longest_bytes + 1);
	if (!plain)
		return -ENOMEM;
	for (uint32_t token = 0; token < v->n && !error; token++) {
		uint8_t type = v->type[token];
		struct gguf_text text = vocabulary_text(v, token);
		if (type != TOKENIZER_CONTROL && type != TOKENIZER_USER_DEFINED && type != TOKENIZER_UNKNOWN)
			continue;
		if (spm)
			text = (struct gguf_text){plain, spm_plain_text(text, plain)};
		if (text.bytes)
			error = insert(s, text.data, text.bytes, token);
	}
	free(plain);
	return error;
}

void specials_close(struct specials *s)
{
	free(s->nodes);
}

uint32_t specials_match(const struct specials *s, const struct vocabulary *v, const char *text, size_t bytes,
			bool control, size_t *ret_bytes)
{
	uint32_t best = TOKENIZER_NONE;
	uint32_t node = s->root[(uint8_t)text[0]];
	for (size_t i = 1; node; i++) {
		uint32_t token = s->nodes[node].token;
		if (token != TOKENIZER_NONE && (control || v->type[token] == TOKENIZER_USER_DEFINED)) {
			best = token;
			*ret_bytes = i;
		}
		node = i < bytes ? find_child(s, node, (uint8_t)text[i]) : 0;
	}
	return best;
}
