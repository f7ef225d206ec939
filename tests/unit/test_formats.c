/* Weight decoding against gguf-py's values, of random blocks (tests/golden/formats.bin) and of what
 * llama.cpp's quantiser wrote (quantised.bin), and half-precision conversions against the compiler's _Float16
 * and against restatements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/formats.h"

struct record {
	uint32_t gguf, weights;
	_Alignas(16) uint8_t raw[512 * 4];
	float values[512];
};

/* Reads the next record; false at the end of the file. */
static bool next_record(FILE *file, struct record *ret)
{
	uint32_t head[2];

	if (fread(head, sizeof head, 1, file) != 1)
		return false;
	enum weight_type type = weight_type_from_gguf(head[0]);
	assert_true(type < TYPE_COUNT && head[1] <= 512);
	ret->gguf = head[0];
	ret->weights = head[1];
	assert_int_equal(fread(ret->raw, weight_type_bytes(type, head[1]), 1, file), 1);
	assert_int_equal(fread(ret->values, sizeof(float), head[1], file), head[1]);
	return true;
}

static FILE *open_golden(const char *name)
{
	char path[4096];
	const char *root = getenv("TOKENRING_SOURCE_ROOT");

	snprintf(path, sizeof path, "%s/tests/golden/%s", root ? root : ".", name);
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	return file;
}

/* How many rows there are of each type. */
static void check_values(const char *name, int count[TYPE_COUNT])
{
	FILE *file = open_golden(name);
	struct record record;
	float got[512];

	while (next_record(file, &record)) {
		enum weight_type type = weight_type_from_gguf(record.gguf);
		weight_dequantise(type, record.raw, record.weights, got);
		assert_memory_equal(got, record.values, record.weights * sizeof(float));
		count[type]++;
	}
	fclose(file);
}

static void random_blocks_decode_to_gguf_pys_values(void **state)
{
	int count[TYPE_COUNT] = {0};

	check_values("formats.bin", count);
	for (unsigned type = 0; type < TYPE_COUNT; type++)
		assert_int_equal(count[type], type != TYPE_F32);
}

/* Every type that is read, each with rows that are ordinary, zero, tiny, large and constant. */
static void rows_of_llama_cpps_quantiser_decode_to_gguf_pys_values(void **state)
{
	int count[TYPE_COUNT] = {0};

	check_values("quantised.bin", count);
	for (unsigned type = 0; type < TYPE_COUNT; type++)
		assert_int_equal(count[type], 5);
}

/* The integer view multiplied out in f64 is within f32 rounding of the dequantised value. */
static void check_integer_view(const char *name)
{
	FILE *file = open_golden(name);
	struct record record;
	struct weight_block block;

	while (next_record(file, &record)) {
		enum weight_type type = weight_type_from_gguf(record.gguf);
		for (uint32_t b = 0; weight_type_quantised(type) && b < record.weights / 32; b++) {
			assert_int_equal(weight_block_decode(type, record.raw, b, &block), 0);
			assert_int_equal(block.has_min, weight_type_has_min(type));
			for (int j = 0; j < 32; j++) {
				double product = (double)block.d * block.scale[j / 16] * block.q[j];
				double offset = block.has_min ? (double)block.m * block.min[j / 16] : 0;
				double slack = 3e-7 * (fabs(product) + fabs(offset)) + 1e-40;
				assert_true(fabs(product + offset - record.values[32 * b + j]) <= slack);
			}
		}
	}
	fclose(file);
}

static void integer_view_agrees_with_the_values(void **state)
{
	check_integer_view("formats.bin");
	check_integer_view("quantised.bin");
}

static void scales_that_are_not_finite_are_refused(void **state)
{
	struct block_q4_1 block = {.d = 0x7c00};
	struct weight_block view;

	assert_int_equal(weight_block_decode(TYPE_Q4_1, &block, 0, &view), -EDOM);
	block = (struct block_q4_1){.m = 0x7e00};
	assert_int_equal(weight_block_decode(TYPE_Q4_1, &block, 0, &view), -EDOM);
	assert_int_equal(weight_block_decode(TYPE_F32, &block, 0, &view), -EINVAL);
}

static void every_half_survives_the_way_there_and_back(void **state)
{
	for (uint32_t half = 0; half < 0x10000; half++) {
		float value = f16_to_f32((uint16_t)half);
		bool nan = (half & 0x7fff) > 0x7c00;
		assert_int_equal(isnan(value), nan);
		if (nan)
			continue;
		double magnitude = half & 0x7c00 ? ldexp(1024 + (half & 0x3ff), (int)(half >> 10 & 31) - 25)
						 : ldexp(half & 0x3ff, -24);
		if ((half & 0x7c00) != 0x7c00)
			assert_true(fabs(value) == magnitude && !!signbit(value) == half >> 15);
		assert_int_equal(f16_from_f32(value), half);
	}
}

/* The nearest half of |value| by search in f64, ties to the even one. */
static uint16_t nearest_half(float value)
{
	uint16_t low = 0, high = 0x7c00; /* 0x7c00 as 2^16 */
	while (high - low > 1) {
		uint16_t middle = (uint16_t)((low + high) / 2);
		if (f16_to_f32(middle) <= value)
			low = middle;
		else
			high = middle;
	}
	double below = f16_to_f32(low), above = high == 0x7c00 ? 65536.0 : f16_to_f32(high);
	double down = value - below, up = above - value;
	return down < up || (down == up && !(low & 1)) ? low : high;
}

static void rounding_to_half_is_to_nearest_even(void **state)
{
	for (uint32_t bits = 0; bits < 0x47800000u; bits += 7919) {
		float value = float_from_bits(bits);
		assert_int_equal(f16_from_f32(value), nearest_half(value));
		assert_int_equal(f16_from_f32(-value), nearest_half(value) | 0x8000);
	}
	for (uint32_t half = 0; half < 0x7c00; half++) { /* exact ties and their neighbours */
		double next = half == 0x7bff ? 65536.0 : f16_to_f32((uint16_t)(half + 1));
		float tie = (float)((f16_to_f32((uint16_t)half) + next) / 2);
		assert_int_equal(f16_from_f32(tie), half & 1 ? half + 1 : half);
		assert_int_equal(f16_from_f32(nextafterf(tie, 0)), half);
		assert_int_equal(f16_from_f32(nextafterf(tie, INFINITY)), half + 1);
	}
	assert_false(f16_finite(f16_from_f32(65520.0f)));
	assert_true(f16_finite(f16_from_f32(65519.0f)));
	assert_false(f16_finite(f16_from_f32(INFINITY)) || f16_finite(f16_from_f32(NAN)));
}

static void bfloat_rounds_to_nearest_even(void **state)
{
	assert_int_equal(bf16_from_f32(1.0f), 0x3f80);
	assert_int_equal(bf16_from_f32(float_from_bits(0x3f808000)), 0x3f80);
	assert_int_equal(bf16_from_f32(float_from_bits(0x3f818000)), 0x3f82);
	assert_int_equal(bf16_from_f32(float_from_bits(0x3f808001)), 0x3f81);
	assert_int_equal(bf16_from_f32(float_from_bits(1)), 0);
	assert_int_equal(bf16_from_f32(float_from_bits(0x00018000)), 2);
	assert_true(isnan(bf16_to_f32(bf16_from_f32(float_from_bits(0x7f800001)))));
	assert_true(bf16_to_f32(0xc049) == -3.140625f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(random_blocks_decode_to_gguf_pys_values),
	    cmocka_unit_test(rows_of_llama_cpps_quantiser_decode_to_gguf_pys_values),
	    cmocka_unit_test(integer_view_agrees_with_the_values),
	    cmocka_unit_test(scales_that_are_not_finite_are_refused),
	    cmocka_unit_test(every_half_survives_the_way_there_and_back),
	    cmocka_unit_test(rounding_to_half_is_to_nearest_even),
	    cmocka_unit_test(bfloat_rounds_to_nearest_even),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
