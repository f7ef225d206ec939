/* Compares a tokenizer with the golden values of one vocabulary: see tests/golden/make_tokenizer_golden.py.
 */
#ifndef TOKENRING_TESTS_TOKENIZER_GOLDEN_H
#define TOKENRING_TESTS_TOKENIZER_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daemon/model/tokenizer.h"
#include "daemon/model/utf8.h"
#include "tests/unit/tokenizer_lines.h"

static struct fragments fragments;
static char line[MAX_LINE_BYTES], text[8 * MAX_LINE_BYTES], clean[24 * MAX_LINE_BYTES];
static uint32_t tokens[MAX_LINE_BYTES];

static inline struct tokenizer *open_tokenizer(const char *path)
{
	char why[512] = "";
	struct gguf *g = NULL;
	struct tokenizer *t = NULL;
	if (gguf_open(path, &g, why, sizeof why) || tokenizer_open(g, &t, why, sizeof why))
		fail_msg("%s", why);
	gguf_close(g);
	return t;
}

static inline void check_golden(const char *path, const char *name)
{
	char file[64];
	size_t n = 0, bytes = 0;
	snprintf(file, sizeof file, "%s.golden", name);
	uint32_t *golden = golden_read(file, 2 * N_LINES);
	struct tokenizer *t = open_tokenizer(path);
	unsigned encoded = 0, decoded = 0;
	assert_non_null(golden);
	for (size_t i = 0; i < N_LINES; i++) {
		size_t line_bytes = compose_line(&fragments, i, line);
		unsigned special = i & 1 ? TOKENIZER_SPECIAL : 0;
		assert_int_equal(tokenizer_encode(t, line, line_bytes, special, tokens, MAX_LINE_BYTES, &n),
				 0);
		if (fnv_bytes(FNV_START, tokens, n * sizeof *tokens) != golden[2 * i] && encoded++ < 10)
			print_error("%s: line %zu is encoded otherwise\n", name, i);
		assert_int_equal(tokenizer_decode(t, tokens, n, TOKENIZER_SPECIAL, text, sizeof text, &bytes),
				 0);
		bytes = utf8_clean(text, bytes, clean);
		if (fnv_bytes(FNV_START, clean, bytes) != golden[2 * i + 1] && decoded++ < 10)
			print_error("%s: line %zu is decoded otherwise\n", name, i);
	}
	print_message("%s: %u of %d lines encoded otherwise, %u decoded otherwise\n", name, encoded, N_LINES,
		      decoded);
	assert_int_equal(encoded + decoded, 0);
	tokenizer_close(t);
	free(golden);
}

static inline int read_lines(void **state)
{
	return fragments_read(&fragments) ? 0 : -1;
}

static inline int free_lines(void **state)
{
	fragments_free(&fragments);
	return 0;
}

#endif
