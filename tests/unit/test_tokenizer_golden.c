/* Pre-tokenizers, and tokenizers with the small vocabularies in the tree, against independent ones on 10,000
 * lines. */
#include "tests/unit/tokenizer_golden.h"

#include "daemon/model/pretokenize.h"

static int count_piece(void *context, const char *piece, size_t bytes)
{
	uint32_t n = (uint32_t)bytes;
	*(uint32_t *)context = fnv_bytes(*(uint32_t *)context, &n, sizeof n);
	return 0;
}

static void check_splits(const char *name)
{
	char why[256], file[64];
	struct pretokenizer *p = NULL;
	snprintf(file, sizeof file, "%s.splits", name);
	uint32_t *golden = golden_read(file, N_LINES);
	assert_non_null(golden);
	assert_int_equal(pretokenizer_open((struct gguf_text){name, strlen(name)}, &p, why, sizeof why), 0);
	unsigned differ = 0;
	for (size_t i = 0; i < N_LINES; i++) {
		uint32_t h = FNV_START;
		size_t n = utf8_clean(line, compose_line(&fragments, i, line), clean);
		assert_int_equal(pretokenizer_split(p, clean, n, count_piece, &h), 0);
		if (h != golden[i] && differ++ < 10)
			print_error("%s: line %zu is split otherwise\n", name, i);
	}
	assert_int_equal(differ, 0);
	pretokenizer_close(p);
	free(golden);
}

static void test_splits(void **state)
{
	check_splits("smollm");
	check_splits("gpt-2");
	check_splits("llama-bpe");
	check_splits("qwen2");
}

static void check_in_tree(const char *name)
{
	char file[64], path[1024];
	snprintf(file, sizeof file, "%s.gguf", name);
	snprintf(path, sizeof path, "%s", golden_path(file));
	check_golden(path, name);
}

static void test_small_bpe(void **state)
{
	check_in_tree("vocab-bpe");
}

static void test_small_spm(void **state)
{
	check_in_tree("vocab-spm");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_splits),
	    cmocka_unit_test(test_small_bpe),
	    cmocka_unit_test(test_small_spm),
	};
	return cmocka_run_group_tests(tests, read_lines, free_lines);
}
