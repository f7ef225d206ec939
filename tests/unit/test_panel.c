/* Panels: every type, as many rows as there may be, against the definition of a block (weight_block) and the
 * bytes of the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/panel.h"
#include "kernels/formats.h"

enum { K = 512, RAW_BYTES = PANEL_ROWS * K * 4 };

/* Where a block of the file has its halves, once or twice. */
static const uint16_t halves[TYPE_COUNT][2] = {
    [TYPE_Q4_1] = {0, 2},   [TYPE_Q5_1] = {0, 2},     [TYPE_Q4_K] = {0, 2},     [TYPE_Q5_K] = {0, 2},
    [TYPE_Q2_K] = {80, 82}, [TYPE_Q3_K] = {108, 108}, [TYPE_Q6_K] = {208, 208},
};

static uint8_t raw[RAW_BYTES];
static uint8_t *panel; /* PANEL_ROWS * K * 4 bytes at most */

static void fill_raw(uint64_t seed)
{
	for (size_t i = 0; i < RAW_BYTES; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		raw[i] = (uint8_t)(seed >> 56);
	}
}

/* Clears one bit of the exponent in what may be a half, so that every scale is finite. */
static void make_finite(enum weight_type type)
{
	size_t bytes = weight_type_info[type].block_bytes;

	for (uint8_t *block = raw; weight_type_quantised(type) && block + bytes <= raw + RAW_BYTES;
	     block += bytes)
		for (int h = 0; h < 2; h++)
			block[halves[type][h] + 1] &= 0xbf;
}

static void expect_quantised(enum weight_type type, const uint8_t *row, float *ret)
{
	struct weight_block block;

	for (uint32_t c = 0; c < K; c++) {
		if (c % BLOCK_COLUMNS == 0)
			assert_int_equal(weight_block_decode(type, row, c / BLOCK_COLUMNS, &block), 0);
		uint32_t j = c % BLOCK_COLUMNS, h = j / 16;
		float q = (float)(block.scale[h] * block.q[j]);
		ret[c] = block.has_min ? fmaf(q, block.d, block.m * (float)block.min[h]) : q * block.d;
	}
}

static void check_rows(enum weight_type type, uint32_t rows)
{
	enum panel_kind kind = panel_kind_of(type);
	size_t row_bytes = weight_type_bytes(type, K);
	float got[K], expected[K];

	memset(panel, 0xa5, panel_bytes(kind, K));
	assert_int_equal(panel_pack(type, raw, rows, K, panel), 0);
	for (uint32_t lane = 0; lane < PANEL_ROWS; lane++) {
		panel_unpack_row(kind, panel, lane, K, got);
		memset(expected, 0, sizeof expected);
		if (lane < rows && weight_type_quantised(type))
			expect_quantised(type, raw + lane * row_bytes, expected);
		else if (lane < rows)
			weight_dequantise(type, raw + lane * row_bytes, K, expected);
		for (uint32_t c = 0; c < K && lane >= rows; c++)
			got[c] = fabsf(got[c]); /* a bias times a scale of zero may be -0 */
		assert_memory_equal(got, expected, sizeof expected);
	}
}

static void test_every_type(void **state)
{
	static const uint32_t rows[] = {PANEL_ROWS, 1, 15, 17, 31};

	for (enum weight_type type = 0; type < TYPE_COUNT; type++)
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			fill_raw(type * 16 + i + 1);
			make_finite(type);
			check_rows(type, rows[i]);
		}
}

/* Each scale of each block that is not finite is found, wherever it is. */
static void test_scales_that_are_not_finite(void **state)
{
	for (enum weight_type type = 0; type < TYPE_COUNT; type++) {
		size_t bytes = weight_type_info[type].block_bytes, row_bytes = weight_type_bytes(type, K);
		size_t block = PANEL_ROWS * row_bytes / bytes - 1; /* the last of the last row */
		for (int h = 0; h < 2 && weight_type_quantised(type); h++) {
			uint16_t infinite = 0x7c00;
			fill_raw(type + 1);
			make_finite(type);
			memcpy(raw + block * bytes + halves[type][h], &infinite, sizeof infinite);
			assert_int_equal(panel_pack(type, raw, PANEL_ROWS, K, panel), -EDOM);
			assert_int_equal(panel_pack(type, raw, PANEL_ROWS - 1, K, panel), 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_type),
	    cmocka_unit_test(test_scales_that_are_not_finite),
	};

	panel = aligned_alloc(64, (size_t)PANEL_ROWS * K * 4);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(panel);
	return failed;
}
