/* Composes GGUF images in memory, byte by byte, independently of the parser under test. */
#ifndef TOKENRING_TESTS_GGUF_BUILDER_H
#define TOKENRING_TESTS_GGUF_BUILDER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct builder {
	uint8_t *data;
	size_t bytes, capacity;
};

static inline void put(struct builder *b, const void *data, size_t n)
{
	if (b->bytes + n > b->capacity) {
		b->capacity = 2 * (b->bytes + n) + 4096;
		uint8_t *grown = realloc(b->data, b->capacity);
		if (!grown)
			abort();
		b->data = grown;
	}
	if (n)
		memcpy(b->data + b->bytes, data, n);
	b->bytes += n;
}

static inline void put_u32(struct builder *b, uint32_t v)
{
	put(b, &v, 4);
}

static inline void put_u64(struct builder *b, uint64_t v)
{
	put(b, &v, 8);
}

static inline void put_text(struct builder *b, const char *text)
{
	put_u64(b, strlen(text));
	put(b, text, strlen(text));
}

static inline void put_header(struct builder *b, uint32_t version, uint64_t tensors, uint64_t keys)
{
	put(b, "GGUF", 4);
	put_u32(b, version);
	put_u64(b, tensors);
	put_u64(b, keys);
}

static inline void put_key(struct builder *b, const char *key, uint32_t type)
{
	put_text(b, key);
	put_u32(b, type);
}

static inline void put_key_u32(struct builder *b, const char *key, uint32_t v)
{
	put_key(b, key, 4);
	put_u32(b, v);
}

static inline void put_key_f32(struct builder *b, const char *key, float v)
{
	put_key(b, key, 6);
	put(b, &v, 4);
}

static inline void put_key_bool(struct builder *b, const char *key, uint8_t v)
{
	put_key(b, key, 7);
	put(b, &v, 1);
}

static inline void put_key_text(struct builder *b, const char *key, const char *v)
{
	put_key(b, key, 8);
	put_text(b, v);
}

static inline void put_key_array(struct builder *b, const char *key, uint32_t type, uint64_t n)
{
	put_key(b, key, 9);
	put_u32(b, type);
	put_u64(b, n);
}

static inline void put_tensor(struct builder *b, const char *name, uint32_t n_dims, const uint64_t *dims,
			      uint32_t type, uint64_t offset)
{
	put_text(b, name);
	put_u32(b, n_dims);
	for (uint32_t d = 0; d < n_dims; d++)
		put_u64(b, dims[d]);
	put_u32(b, type);
	put_u64(b, offset);
}

static inline void put_padding(struct builder *b, size_t alignment)
{
	static const uint8_t zero;
	while (b->bytes % alignment)
		put(b, &zero, 1);
}

static inline void put_zeros(struct builder *b, size_t n)
{
	static const uint8_t zeros[4096];
	for (; n > sizeof zeros; n -= sizeof zeros)
		put(b, zeros, sizeof zeros);
	put(b, zeros, n);
}

#endif
