/* What the golden lines do not show: buffers, flags, ends, long runs in bounded time, threads, refusals. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "daemon/model/tokenizer.h"
#include "tests/unit/gguf_builder.h"
#include "tests/unit/tokenizer_lines.h"

static struct tokenizer *bpe, *spm;
static char why[512];

static struct tokenizer *open_golden(const char *name)
{
	struct gguf *g = NULL;
	struct tokenizer *t = NULL;
	if (gguf_open(golden_path(name), &g, why, sizeof why) || tokenizer_open(g, &t, why, sizeof why))
		fail_msg("%s", why);
	gguf_close(g);
	return t;
}

static size_t encode(const struct tokenizer *t, const char *text, unsigned flags, uint32_t *tokens)
{
	size_t n = 0;
	assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, tokens, 256, &n), 0);
	return n;
}

static void expect_decoded(const struct tokenizer *t, const uint32_t *tokens, size_t n, unsigned flags,
			   const char *wanted)
{
	char text[256];
	size_t bytes = 0;
	assert_int_equal(tokenizer_decode(t, tokens, n, flags, text, sizeof text, &bytes), 0);
	assert_int_equal(bytes, strlen(wanted));
	assert_memory_equal(text, wanted, bytes);
}

static void test_bos(void **state)
{
	uint32_t tokens[256];
	size_t with = encode(bpe, "ship", TOKENIZER_BOS, tokens);
	assert_int_equal(tokens[0], tokenizer_bos(bpe));
	assert_int_equal(encode(bpe, "ship", 0, tokens), with - 1);
	assert_int_equal(encode(spm, "", TOKENIZER_BOS, tokens), 1);
	assert_int_equal(tokens[0], 1);
	assert_int_equal(encode(spm, "", 0, tokens), 0);
}

static void test_special_tokens(void **state)
{
	uint32_t tokens[256], end = tokenizer_find(bpe, "<|im_end|>", 10);
	size_t n = encode(bpe, "a<|im_end|>b", TOKENIZER_SPECIAL, tokens);
	assert_int_equal(n, 3);
	assert_int_equal(tokens[1], end);
	assert_int_equal(tokenizer_type(bpe, end), TOKENIZER_CONTROL);
	expect_decoded(bpe, tokens, n, TOKENIZER_SPECIAL, "a<|im_end|>b");
	expect_decoded(bpe, tokens, n, 0, "ab");
	n = encode(bpe, "a<|im_end|>b", 0, tokens);
	assert_true(n > 3);
	expect_decoded(bpe, tokens, n, 0, "a<|im_end|>b");
	/* A user-defined token is found without being asked for. */
	assert_int_equal(encode(bpe, "[multimodal]", 0, tokens), 1);
	assert_int_equal(tokenizer_type(bpe, tokens[0]), TOKENIZER_USER_DEFINED);
}

static void test_space_prefix(void **state)
{
	uint32_t tokens[256];
	size_t n = encode(spm, "the ship", 0, tokens);
	expect_decoded(spm, tokens, n, 0, " the ship");
	expect_decoded(spm, tokens, n, TOKENIZER_START, "the ship");
	n = encode(spm, "====", 0, tokens);
	assert_int_equal(n, 2);
	expect_decoded(spm, tokens, n, TOKENIZER_START, "====");
	n = encode(spm, "<end_of_turn>x", TOKENIZER_SPECIAL, tokens);
	expect_decoded(spm, tokens, n, TOKENIZER_SPECIAL, "<end_of_turn> x");
}

static void test_whole_piece_first(void **state)
{
	uint32_t tokens[256];
	size_t n = encode(bpe, " jaunty", 0, tokens); /* no merge makes it: see make_tokenizer_golden.py */
	assert_int_equal(n, 1);
	assert_true(encode(bpe, "jaunty", 0, tokens) > 1);
}

static void test_ends(void **state)
{
	size_t n;
	const uint32_t *ends = tokenizer_ends(bpe, &n);
	assert_int_equal(n, 2);
	assert_int_equal(ends[0], tokenizer_find(bpe, "<|eot_id|>", 10));
	assert_int_equal(ends[1], tokenizer_find(bpe, "<|im_end|>", 10));
	assert_int_equal(tokenizer_eos(bpe), ends[0]);
	assert_int_equal(tokenizer_eot(bpe), ends[0]);
	ends = tokenizer_ends(spm, &n);
	assert_int_equal(n, 2);
	assert_int_equal(ends[0], 2); /* </s> */
	assert_int_equal(tokenizer_eot(spm), ends[1]);
	assert_null(tokenizer_chat_template(spm));
	assert_string_equal(tokenizer_kind(bpe), "bpe/llama-bpe");
	assert_string_equal(tokenizer_kind(spm), "spm");
}

static void test_small_buffers(void **state)
{
	uint32_t all[256], some[3] = {7, 7, 7};
	char text[8] = "xxxxxxx";
	size_t n = encode(bpe, "ships sail home", 0, all), needed = 0, bytes = 0;
	assert_true(n > 2);
	assert_int_equal(tokenizer_encode(bpe, "ships sail home", 15, 0, some, 2, &needed), -ENOSPC);
	assert_int_equal(needed, n);
	assert_true(some[0] == all[0] && some[1] == all[1] && some[2] == 7);
	assert_int_equal(tokenizer_encode(bpe, "ships sail home", 15, 0, NULL, 0, &needed), -ENOSPC);
	assert_int_equal(tokenizer_decode(bpe, all, n, 0, text, 7, &bytes), -ENOSPC);
	assert_int_equal(bytes, 15);
	assert_int_equal(text[7], 0);
	bytes = 99;
	assert_int_equal(tokenizer_decode(bpe, (uint32_t[]){tokenizer_size(bpe)}, 1, 0, text, 7, &bytes),
			 -EINVAL);
	assert_int_equal(bytes, 99);
}

/* A quarter of a megabyte of one character: merging in quadratic time would need minutes. */
static void check_run(const struct tokenizer *t, char c)
{
	enum { RUN = 1 << 18 };
	struct timespec start, end;
	char *text = malloc(RUN), *back = malloc(2 * RUN);
	uint32_t *tokens = malloc((RUN + 1) * sizeof *tokens); /* a blank goes in front */
	size_t n = 0, bytes = 0;
	memset(text, c, RUN);
	clock_gettime(CLOCK_MONOTONIC, &start);
	assert_int_equal(tokenizer_encode(t, text, RUN, 0, tokens, RUN + 1, &n), 0);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_int_equal(tokenizer_decode(t, tokens, n, TOKENIZER_START, back, 2 * RUN, &bytes), 0);
	assert_int_equal(bytes, RUN);
	assert_memory_equal(back, text, RUN);
	assert_true(end.tv_sec - start.tv_sec < 10);
	free(text);
	free(back);
	free(tokens);
}

static void test_long_runs(void **state)
{
	for (const char *c = " a\n=7"; *c; c++) {
		check_run(bpe, *c);
		check_run(spm, *c);
	}
}

static void *encode_lines(void *context)
{
	const struct fragments *f = context;
	char *line = malloc(MAX_LINE_BYTES);
	uint32_t *tokens = malloc(MAX_LINE_BYTES * sizeof *tokens);
	uintptr_t h = FNV_START;
	for (unsigned i = 0; i < 1000; i++) {
		size_t n = 0;
		tokenizer_encode(i & 1 ? bpe : spm, line, compose_line(f, i, line), 0, tokens, MAX_LINE_BYTES,
				 &n);
		h = fnv_bytes((uint32_t)h, tokens, n * sizeof *tokens);
	}
	free(line);
	free(tokens);
	return (void *)h;
}

static void test_threads(void **state)
{
	static struct fragments f;
	pthread_t threads[4];
	assert_true(fragments_read(&f));
	void *alone = encode_lines(&f), *answer;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, encode_lines, &f), 0);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], &answer);
		assert_ptr_equal(answer, alone);
	}
	fragments_free(&f);
}

/* A vocabulary of n tokens "a", "b", ..., complete but for what a test leaves out. */
static struct builder small_file(unsigned keys, const char *model, const char *pre)
{
	struct builder b = {0};
	put_header(&b, 3, 0, 3 + keys);
	put_key_text(&b, "tokenizer.ggml.model", model);
	put_key_text(&b, "tokenizer.ggml.pre", pre);
	put_key_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 3);
	put_text(&b, "a");
	put_text(&b, "b");
	put_text(&b, "ab");
	return b;
}

static void refuse(struct builder b, int error, const char *part)
{
	struct gguf *g = NULL;
	struct tokenizer *t = NULL;
	assert_int_equal(gguf_parse(b.data, b.bytes, b.bytes, &g, why, sizeof why), 0);
	assert_int_equal(tokenizer_open(g, &t, why, sizeof why), error);
	assert_null(t);
	if (!strstr(why, part))
		fail_msg("expected '%s' in '%s'", part, why);
	gguf_close(g);
	free(b.data);
}

static void test_refusals(void **state)
{
	struct builder b = {0};
	put_header(&b, 3, 0, 0);
	refuse(b, -ENOENT, "'tokenizer.ggml.model' is absent");
	refuse(small_file(0, "bert", "gpt-2"), -ENOTSUP, "tokenizer model 'bert' is not supported");
	refuse(small_file(0, "gpt2", "tekken"), -ENOTSUP,
	       "pre-tokenizer 'tekken' is not supported; known are smollm");
	refuse(small_file(0, "gpt2", "gpt-2"), -ENOENT, "'tokenizer.ggml.merges'");
	refuse(small_file(0, "llama", ""), -EINVAL, "'tokenizer.ggml.scores'");
	b = small_file(1, "gpt2", "gpt-2");
	put_key_array(&b, "tokenizer.ggml.merges", GGUF_STRING, 1);
	put_text(&b, "b a");
	refuse(b, -EINVAL, "merge 0 has a part or a result");
	b = small_file(1, "gpt2", "gpt-2");
	put_key_array(&b, "tokenizer.ggml.merges", GGUF_STRING, 1);
	put_text(&b, "ab");
	refuse(b, -EINVAL, "merge 0 is not two parts");
	b = small_file(2, "gpt2", "gpt-2");
	put_key_array(&b, "tokenizer.ggml.merges", GGUF_STRING, 0);
	put_key_u32(&b, "tokenizer.ggml.eos_token_id", 3);
	refuse(b, -EINVAL, "'tokenizer.ggml.eos_token_id' is not the number of one of the 3 tokens");
	b = small_file(1, "gpt2", "gpt-2");
	put_key_array(&b, "tokenizer.ggml.token_type", GGUF_I32, 2);
	put_zeros(&b, 8);
	refuse(b, -EINVAL, "'tokenizer.ggml.token_type' is not an array of 3 numbers");
	b = small_file(1, "llama", "");
	put_key_bool(&b, "tokenizer.ggml.remove_extra_whitespaces", 1);
	refuse(b, -ENOTSUP, "normalises");
}

/* Bytes without a token are dropped, and what was around them may merge. */
static void test_missing_bytes(void **state)
{
	struct gguf *g = NULL;
	struct tokenizer *t = NULL;
	uint32_t tokens[256];
	struct builder b = small_file(1, "gpt2", "gpt-2");
	put_key_array(&b, "tokenizer.ggml.merges", GGUF_STRING, 1);
	put_text(&b, "a b");
	assert_int_equal(gguf_parse(b.data, b.bytes, b.bytes, &g, why, sizeof why), 0);
	assert_int_equal(tokenizer_open(g, &t, why, sizeof why), 0);
	gguf_close(g);
	free(b.data);
	assert_int_equal(encode(t, "aab", 0, tokens), 2);
	assert_true(tokens[0] == 0 && tokens[1] == 2);
	assert_int_equal(encode(t, "azb", 0, tokens), 1);
	assert_int_equal(tokens[0], 2);
	assert_false(tokenizer_wants_bos(t));
	assert_int_equal(tokenizer_bos(t), TOKENIZER_NONE);
	tokenizer_close(t);
	tokenizer_close(NULL);
}

static int open_all(void **state)
{
	bpe = open_golden("vocab-bpe.gguf");
	spm = open_golden("vocab-spm.gguf");
	return 0;
}

static int close_all(void **state)
{
	tokenizer_close(bpe);
	tokenizer_close(spm);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_bos),           cmocka_unit_test(test_special_tokens),
	    cmocka_unit_test(test_space_prefix),  cmocka_unit_test(test_whole_piece_first),
	    cmocka_unit_test(test_ends),          cmocka_unit_test(test_small_buffers),
	    cmocka_unit_test(test_long_runs),     cmocka_unit_test(test_threads),
	    cmocka_unit_test(test_missing_bytes), cmocka_unit_test(test_refusals),
	};
	return cmocka_run_group_tests(tests, open_all, close_all);
}
