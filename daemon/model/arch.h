/* Architectures: each turns the keys and tensors of a GGUF file into a tape.
 *
 * A new architecture is one file arch_<name>.c, its declaration here, one row of the table in arch.c with its
 * name in arch_names, and a word in meson.build; its tests are in tests/conformance/test_arch.c. A tokenizer
 * whose tokenizer.ggml.pre is new is a row in pretokenize.c. */
#ifndef TOKENRING_MODEL_ARCH_H
#define TOKENRING_MODEL_ARCH_H

#include "daemon/model/gguf.h"
#include "kernels/tape.h"

/* What a build function reads from. */
struct arch_source {
	const struct gguf *gguf;
	/* Reads the data of a small F32 tensor into `out` (all its elements); negative errno. */
	int (*read_floats)(void *context, const struct gguf_tensor *, float *out);
	void *context;
};

struct arch {
	const char *name; /* general.architecture */
	/* Fills an empty tape; the caller frees it, also after a failure.  -EINVAL: keys or tensors are
	 * missing or do not fit; -ENOTSUP: valid, but needs what tokenring does not do; -ENOMEM; with a
	 * sentence. */
	int (*build)(const struct arch_source *, struct tape *, char *why, size_t why_bytes);
};

/* NULL if the architecture is not supported. */
const struct arch *arch_find(struct gguf_text name);

/* The supported ones, "gemma3, gpt2, ...", for messages; static. */
const char *arch_names(void);

int arch_llama_build(const struct arch_source *, struct tape *, char *why, size_t why_bytes);
int arch_gemma3_build(const struct arch_source *, struct tape *, char *why, size_t why_bytes);
int arch_gpt2_build(const struct arch_source *, struct tape *, char *why, size_t why_bytes);
int arch_qwen2_build(const struct arch_source *, struct tape *, char *why, size_t why_bytes);
int arch_qwen3_build(const struct arch_source *, struct tape *, char *why, size_t why_bytes);

#endif
