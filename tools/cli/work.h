/* What one token costs at least: the bytes of weights it moves and the multiplications it needs. Read from
 * the shapes in a model file; attention, which grows with the context, is apart. */
#ifndef TOKENRING_TOOLS_CLI_WORK_H
#define TOKENRING_TOOLS_CLI_WORK_H

#include <stdint.h>

#include "daemon/model/gguf.h"

struct work {
	uint64_t parameters;
	uint64_t file_bytes;
	/* One token of a single stream: every weight once, the embedding table only if it is the output
	 * matrix too, of experts those that a token uses. */
	uint64_t decode_bytes;
	uint64_t decode_multiplies;
	/* One token of a long prompt: the matrices without the output matrix. */
	uint64_t prefill_multiplies;
};

void work_of_model(const struct gguf *model, struct work *ret);

/* Bytes of keys and values that a token reads which sees `context` keys, in layers without a window; 0 if the
 * file cannot be read or `kv_type` is no value of the option of that name. */
uint64_t work_of_context(const char *path, const char *kv_type, uint32_t context);

#endif
