/* The table of element types against the block sizes printed in the GGUF specification's reference (ggml). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/types.h"

static void block_bytes_match_the_format(void **state)
{
	assert_int_equal(weight_type_bytes(TYPE_F32, 7), 28);
	assert_int_equal(weight_type_bytes(TYPE_BF16, 7), 14);
	assert_int_equal(weight_type_bytes(TYPE_Q4_1, 576), 360);
	assert_int_equal(weight_type_bytes(TYPE_Q8_0, 64), 68);
	assert_int_equal(weight_type_bytes(TYPE_Q6_K, 512), 420);
}

static void gguf_numbers_are_found_and_others_refused(void **state)
{
	assert_int_equal(weight_type_from_gguf(30), TYPE_BF16);
	assert_int_equal(weight_type_from_gguf(3), TYPE_Q4_1);
	assert_int_equal(weight_type_from_gguf(4), TYPE_COUNT); /* Q4_2 was removed from the format */
	assert_int_equal(weight_type_from_gguf(UINT32_MAX), TYPE_COUNT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(block_bytes_match_the_format),
	    cmocka_unit_test(gguf_numbers_are_found_and_others_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
