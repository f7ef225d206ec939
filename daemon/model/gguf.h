/* GGUF model files, versions 2 and 3: metadata and tensor directory.
 *
 * gguf_parse is a pure function of (pointer, length): it opens nothing, keeps pointers into the buffer and
 * trusts no byte of it.  gguf_open reads a header and parses it.  Tensor data is never touched; the directory
 * says where it lies.
 *
 * Thread rule: a parsed struct gguf is immutable, any number of threads may read it at once.
 * Errors: negative errno and, in `why`, one sentence that names byte offset and field.
 * Source: the GGUF specification (ggml-org/ggml, docs/gguf.md). */
#ifndef TOKENRING_MODEL_GGUF_H
#define TOKENRING_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/types.h"

enum {
	GGUF_MAX_DIMS = 4,
	GGUF_MAX_NAME_BYTES = 64,      /* tensor names */
	GGUF_MAX_KEY_BYTES = 65535,    /* metadata keys */
	GGUF_MAX_ALIGNMENT = 1u << 20, /* of tensor data */
};

/* The numbers are the file's. */
enum gguf_type {
	GGUF_U8 = 0,
	GGUF_I8 = 1,
	GGUF_U16 = 2,
	GGUF_I16 = 3,
	GGUF_U32 = 4,
	GGUF_I32 = 5,
	GGUF_F32 = 6,
	GGUF_BOOL = 7,
	GGUF_STRING = 8,
	GGUF_ARRAY = 9,
	GGUF_U64 = 10,
	GGUF_I64 = 11,
	GGUF_F64 = 12,
	GGUF_TYPE_COUNT
};

/* Bytes in the parsed buffer: not NUL-terminated, any content. */
struct gguf_text {
	const char *data;
	size_t bytes;
};

/* An array value.  Elements are unaligned and little-endian: read them with gguf_array_* below. */
struct gguf_array {
	enum gguf_type type; /* of the elements; never GGUF_ARRAY */
	uint64_t n;
	const uint8_t *data;
	size_t bytes;
};

struct gguf_tensor {
	struct gguf_text name; /* printable ASCII without blanks */
	enum weight_type type;
	unsigned n_dims;
	uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is contiguous in memory (the columns); unused ones are 1 */
	uint64_t offset;              /* from the start of the file */
	uint64_t bytes;
};

struct gguf;

/* Parses a GGUF image.  `data` holds the first `bytes` bytes of a file of `file_bytes`, at least all of the
 * header; the caller keeps it alive until gguf_close.  Allocates; does not block. -EINVAL: not a valid file;
 * -ENOTSUP: valid, but a version, type or nesting that tokenring does not read; -ENOMEM. */
int gguf_parse(const void *data, size_t bytes, uint64_t file_bytes, struct gguf **ret, char *why,
	       size_t why_bytes);

/* Reads the header of the file at `path`, 512 MiB of it at most, and parses it.  Blocks on the file system.
 * Besides gguf_parse's errors: open's errno, -EISDIR, -ENODATA for an empty file. */
int gguf_open(const char *path, struct gguf **ret, char *why, size_t why_bytes);

/* Accepts NULL. */
void gguf_close(struct gguf *);

uint32_t gguf_version(const struct gguf *);
uint64_t gguf_file_bytes(const struct gguf *);
uint64_t gguf_data_offset(const struct gguf *); /* where the first tensor may begin */

/* Metadata.  0: found; -ENOENT: the key is absent; -EINVAL: it is present with another type; -ERANGE: the
 * integer does not fit.  Integers of any width and sign are accepted by gguf_u32 and gguf_u64 if the value
 * fits; gguf_f32 also reads an f64.  Output is untouched on failure. */
int gguf_u32(const struct gguf *, const char *key, uint32_t *ret);
int gguf_u64(const struct gguf *, const char *key, uint64_t *ret);
int gguf_f32(const struct gguf *, const char *key, float *ret);
int gguf_bool(const struct gguf *, const char *key, bool *ret);
int gguf_string(const struct gguf *, const char *key, struct gguf_text *ret);
int gguf_array(const struct gguf *, const char *key, struct gguf_array *ret);

/* Element i < n of an array of numbers; -EINVAL, -ERANGE as above. */
int gguf_array_u32(const struct gguf_array *, uint64_t i, uint32_t *ret);
int gguf_array_i32(const struct gguf_array *, uint64_t i, int32_t *ret);
int gguf_array_f32(const struct gguf_array *, uint64_t i, float *ret);

/* Walks an array of strings: *cursor starts at 0 and counts bytes.  False at the end or if it holds no
 * strings. */
bool gguf_array_next_string(const struct gguf_array *, size_t *cursor, struct gguf_text *ret);

/* Keys in the order of the file, for listings. */
size_t gguf_n_keys(const struct gguf *);
struct gguf_text gguf_key(const struct gguf *, size_t i, enum gguf_type *ret_type);

/* Tensors in the order of the file. */
size_t gguf_n_tensors(const struct gguf *);
const struct gguf_tensor *gguf_tensor(const struct gguf *, size_t i);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *, const char *name); /* NULL if absent */

#endif
