/* Tokenizers of real models against independent ones on 10,000 lines.  SmolLM2 must be there; Gemma 3, whose
 * terms keep it out of the checks, is compared where it is. */
#include "tests/unit/tokenizer_golden.h"

#include <sys/stat.h>

static char smollm2[1024], gemma3[1024];

static void test_smollm2(void **state)
{
	check_golden(smollm2, "smollm2");
}

static void test_gemma3(void **state)
{
	struct stat st;
	if (stat(gemma3, &st))
		skip();
	check_golden(gemma3, "gemma3");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_smollm2), cmocka_unit_test(test_gemma3)};
	const char *folder = getenv("TOKENRING_TEST_MODELS");
	struct stat st;
	snprintf(smollm2, sizeof smollm2, "%s/SmolLM2-135M-Instruct.Q4_1.gguf", folder ? folder : "");
	snprintf(gemma3, sizeof gemma3, "%s/gemma-3-270m-q4_k_m.gguf", folder ? folder : "");
	if (!folder || stat(smollm2, &st)) {
		printf("no SmolLM2-135M-Instruct.Q4_1.gguf in TOKENRING_TEST_MODELS (%s)\n",
		       folder ? folder : "not set");
		return 77;
	}
	return cmocka_run_group_tests(tests, read_lines, free_lines);
}
