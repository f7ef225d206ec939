/* Shared by gguf*.c only. */
#ifndef TOKENRING_MODEL_GGUF_INTERNAL_H
#define TOKENRING_MODEL_GGUF_INTERNAL_H

#include "daemon/model/gguf.h"

struct gguf_entry {
	struct gguf_text key;
	enum gguf_type type;
	const uint8_t *data;     /* scalars: the value; strings: its bytes */
	size_t bytes;            /* of strings */
	struct gguf_array array; /* of arrays */
};

struct gguf {
	uint32_t version;
	uint64_t file_bytes;
	uint64_t data_offset;
	size_t n_entries;
	struct gguf_entry *entries;
	uint32_t *entry_order; /* (n_entries) sorted by key */
	size_t n_tensors;
	struct gguf_tensor *tensors;
	uint32_t *tensor_order; /* (n_tensors) sorted by name */
	void *image;            /* what gguf_open read, else NULL */
};

/* Bytes of a scalar of this type, 0 for strings, arrays and unknown types. */
size_t gguf_scalar_bytes(enum gguf_type type);

/* memcmp order, shorter first among equal prefixes. */
int gguf_text_compare(struct gguf_text a, struct gguf_text b);

#endif
