/* Any bytes as text: tokens of a complete byte vocabulary, decoded, are the text with its ill-formed parts
 * replaced. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/tokenizer.h"
#include "daemon/model/utf8.h"
#include "daemon/model/utf8_stream.h"
#include "tests/unit/gguf_builder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
	if (!condition)
		abort();
}

static const char *const merged[][3] = {
    {"\xc4\xa0", "\xc4\xa0", "\xc4\xa0\xc4\xa0"},
    {"a", "a", "aa"},
    {"aa", "a", "aaa"},
    {"\xc4\xa0", "a",
     "\xc4\xa0"
     "a"},
    {"\xc4\xa0\xc4\xa0", "\xc4\xa0", "\xc4\xa0\xc4\xa0\xc4\xa0"},
};
enum { N_MERGED = sizeof merged / sizeof *merged };

/* GPT-2's printable stand-in for a byte. */
static void put_byte_token(struct builder *b, unsigned byte)
{
	static unsigned next = 256;
	int printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
	unsigned c = printable ? byte : next++;
	char text[3] = {(char)c, 0, 0};
	if (c >= 0x80) {
		text[0] = (char)(0xc0 | c >> 6);
		text[1] = (char)(0x80 | (c & 0x3f));
	}
	put_text(b, text);
}

static struct tokenizer *make_tokenizer(void)
{
	struct builder b = {0};
	struct gguf *g = NULL;
	struct tokenizer *t = NULL;
	char why[256];
	put_header(&b, 3, 0, 4);
	put_key_text(&b, "tokenizer.ggml.model", "gpt2");
	put_key_text(&b, "tokenizer.ggml.pre", "llama-bpe");
	put_key_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 256 + N_MERGED);
	for (unsigned byte = 0; byte < 256; byte++)
		put_byte_token(&b, byte);
	for (size_t i = 0; i < N_MERGED; i++)
		put_text(&b, merged[i][2]);
	put_key_array(&b, "tokenizer.ggml.merges", GGUF_STRING, N_MERGED);
	for (size_t i = 0; i < N_MERGED; i++) {
		put_u64(&b, strlen(merged[i][0]) + 1 + strlen(merged[i][1]));
		put(&b, merged[i][0], strlen(merged[i][0]));
		put(&b, " ", 1);
		put(&b, merged[i][1], strlen(merged[i][1]));
	}
	require(gguf_parse(b.data, b.bytes, b.bytes, &g, why, sizeof why) == 0);
	require(tokenizer_open(g, &t, why, sizeof why) == 0);
	gguf_close(g);
	free(b.data);
	return t;
}

static void check_stream(const char *text, size_t bytes, const char *clean, size_t clean_bytes)
{
	struct utf8_stream s = {0};
	char *out = malloc(UTF8_STREAM_ROOM(bytes));
	size_t n = 0;
	for (size_t at = 0, step = 1; at < bytes; at += step, step = 1 + (step * 7 + at) % 5) {
		if (step > bytes - at)
			step = bytes - at;
		n += utf8_stream_feed(&s, text + at, step, out + n);
	}
	n += utf8_stream_flush(&s, out + n);
	require(n == clean_bytes && memcmp(out, clean, n) == 0);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tokenizer *t;
	size_t n = 0, bytes = 0;
	if (!t)
		t = make_tokenizer();
	if (size > 1 << 16)
		return 0;
	char *clean = malloc(3 * size + 1), *back = malloc(3 * size + 1);
	uint32_t *tokens = malloc((3 * size + 1) * sizeof *tokens);
	size_t clean_bytes = utf8_clean((const char *)data, size, clean);
	require(tokenizer_encode(t, (const char *)data, size, 0, tokens, 3 * size + 1, &n) == 0);
	require(tokenizer_decode(t, tokens, n, 0, back, 3 * size + 1, &bytes) == 0);
	require(bytes == clean_bytes && memcmp(back, clean, bytes) == 0);
	check_stream((const char *)data, size, clean, clean_bytes);
	free(clean);
	free(back);
	free(tokens);
	return 0;
}
