/* Any bytes as the header of a model file: a sentence, or a directory, a tokenizer and a tape that hold
 * together. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/arch.h"
#include "daemon/model/gguf.h"
#include "daemon/model/model.h"
#include "daemon/model/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
	if (!condition)
		abort();
}

static void read_tensors(const struct gguf *g)
{
	for (size_t i = 0; i < gguf_n_tensors(g); i++) {
		const struct gguf_tensor *t = gguf_tensor(g, i);
		char name[GGUF_MAX_NAME_BYTES + 1] = "";
		memcpy(name, t->name.data, t->name.bytes);
		require(gguf_find_tensor(g, name) == t);
		require(t->offset >= gguf_data_offset(g) && t->offset + t->bytes <= gguf_file_bytes(g));
	}
}

static void read_key(const struct gguf *g, const char *key)
{
	uint32_t u32;
	uint64_t u64;
	float f32;
	bool flag;
	struct gguf_text text;
	struct gguf_array array;
	size_t cursor = 0, strings = 0, total = 0;
	(void)gguf_u32(g, key, &u32);
	(void)gguf_u64(g, key, &u64);
	(void)gguf_f32(g, key, &f32);
	(void)gguf_bool(g, key, &flag);
	if (gguf_string(g, key, &text) == 0)
		for (size_t i = 0; i < text.bytes; i++)
			total += (unsigned char)text.data[i];
	if (gguf_array(g, key, &array))
		return;
	for (; gguf_array_next_string(&array, &cursor, &text); strings++)
		for (size_t i = 0; i < text.bytes; i++)
			total += (unsigned char)text.data[i];
	require(array.type != GGUF_STRING || strings == array.n);
	for (uint64_t i = 0; i < array.n && array.type != GGUF_STRING; i++)
		if (gguf_array_u32(&array, i, &u32) == 0)
			total += u32;
	require(total < SIZE_MAX);
}

static void read_keys(const struct gguf *g)
{
	char name[256];
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		enum gguf_type type;
		struct gguf_text key = gguf_key(g, i, &type);
		if (key.bytes >= sizeof name)
			continue;
		memcpy(name, key.data, key.bytes);
		name[key.bytes] = 0;
		read_key(g, name);
	}
}

static void tokenize(const struct gguf *g, char *why, size_t why_bytes)
{
	static const char text[] = "<s>The  ship's 42 \xf0\x9f\x98\x80\xff\xe2\x96\x81<|im_end|>\n\n";
	struct tokenizer *t = NULL;
	uint32_t tokens[4 * sizeof text];
	char back[4096];
	size_t n = 0, bytes;
	if (tokenizer_open(g, &t, why, why_bytes)) {
		require(*why);
		return;
	}
	require(tokenizer_encode(t, text, sizeof text - 1, TOKENIZER_BOS | TOKENIZER_SPECIAL, tokens,
				 sizeof tokens / sizeof *tokens, &n) == 0);
	for (size_t i = 0; i < n; i++)
		require(tokens[i] < tokenizer_size(t));
	(void)tokenizer_decode(t, tokens, n, TOKENIZER_START, back, sizeof back, &bytes);
	tokenizer_close(t);
}

static int zeros(void *context, const struct gguf_tensor *t, float *out)
{
	memset(out, 0, t->bytes);
	return 0;
}

static void build(const struct gguf *g, char *why, size_t why_bytes)
{
	struct gguf_text name;
	struct tape tape = {0};
	struct arch_source source = {g, zeros, NULL};
	const struct arch *arch = gguf_string(g, "general.architecture", &name) ? NULL : arch_find(name);
	if (!arch)
		return;
	if (arch->build(&source, &tape, why, why_bytes) == 0)
		(void)tape_check(&tape, why, why_bytes);
	else
		require(*why);
	tape_free(&tape);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gguf *g = NULL;
	struct model_description description;
	char why[256] = "";
	/* Tensor data is never touched: a header may claim any file size. */
	if (gguf_parse(data, size, (uint64_t)1 << 50, &g, why, sizeof why)) {
		require(*why && !g);
		return 0;
	}
	read_tensors(g);
	read_keys(g);
	model_describe(g, &description);
	tokenize(g, why, sizeof why);
	why[0] = 0;
	build(g, why, sizeof why);
	gguf_close(g);
	return 0;
}
