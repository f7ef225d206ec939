/* The GGUF parser: values of every type, each refusal with its sentence, every truncation, every flipped bit.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/model/gguf.h"
#include "tests/unit/gguf_builder.h"
#include "tests/harness/scratch.h"

static char why[512];

static int parse(const struct builder *b, struct gguf **ret)
{
	snprintf(why, sizeof why, "untouched");
	return gguf_parse(b->data, b->bytes, b->bytes, ret, why, sizeof why);
}

/* 14 keys, three tensors, data: the good file that the tests below damage. */
static struct builder good_file(void)
{
	struct builder b = {0};
	put_header(&b, 3, 3, 14);
	put_key(&b, "k.u8", GGUF_U8);
	put(&b, "\xfe", 1);
	put_key(&b, "k.i8", GGUF_I8);
	put(&b, "\xfe", 1);
	put_key(&b, "k.u16", GGUF_U16);
	put(&b, "\x01\x80", 2);
	put_key(&b, "k.i16", GGUF_I16);
	put(&b, "\xff\x7f", 2);
	put_key_u32(&b, "k.u32", 4000000000u);
	put_key(&b, "k.i32", GGUF_I32);
	put_u32(&b, (uint32_t)-5);
	put_key_f32(&b, "k.f32", 0.15625f);
	put_key_bool(&b, "k.bool", 1);
	put_key_text(&b, "k.text", "h\xc3\xa9llo");
	put_key(&b, "k.u64", GGUF_U64);
	put_u64(&b, 1ull << 40);
	put_key(&b, "k.i64", GGUF_I64);
	put_u64(&b, 77);
	put_key(&b, "k.f64", GGUF_F64);
	put(&b, &(double){-2.5}, 8);
	put_key_array(&b, "k.texts", GGUF_STRING, 3);
	put_text(&b, "one");
	put_text(&b, "");
	put_text(&b, "three");
	put_key_array(&b, "k.i32s", GGUF_I32, 2);
	put_u32(&b, 7);
	put_u32(&b, (uint32_t)-7);
	put_tensor(&b, "norm.weight", 1, (uint64_t[]){64}, 0, 0);
	put_tensor(&b, "q.weight", 2, (uint64_t[]){64, 6}, 3, 256);
	put_tensor(&b, "experts.weight", 3, (uint64_t[]){256, 2, 3}, 14, 512);
	put_padding(&b, 32);
	put_zeros(&b, 512 + 6 * 210);
	return b;
}

static void test_values(void **state)
{
	struct builder b = good_file();
	struct gguf *g = NULL;
	uint32_t u32;
	uint64_t u64;
	float f32;
	bool flag = false;
	struct gguf_text text;
	assert_int_equal(parse(&b, &g), 0);
	assert_int_equal(gguf_version(g), 3);
	assert_int_equal(gguf_n_keys(g), 14);
	assert_int_equal(gguf_u32(g, "k.u8", &u32), 0);
	assert_int_equal(u32, 254);
	assert_int_equal(gguf_u32(g, "k.u16", &u32), 0);
	assert_int_equal(u32, 0x8001);
	assert_int_equal(gguf_u32(g, "k.i16", &u32), 0);
	assert_int_equal(u32, 0x7fff);
	assert_int_equal(gguf_u32(g, "k.u32", &u32), 0);
	assert_int_equal(u32, 4000000000u);
	assert_int_equal(gguf_u64(g, "k.u64", &u64), 0);
	assert_true(u64 == 1ull << 40);
	assert_int_equal(gguf_u32(g, "k.i64", &u32), 0);
	assert_int_equal(u32, 77);
	assert_int_equal(gguf_f32(g, "k.f32", &f32), 0);
	assert_true(f32 == 0.15625f);
	assert_int_equal(gguf_f32(g, "k.f64", &f32), 0);
	assert_true(f32 == -2.5f);
	assert_int_equal(gguf_bool(g, "k.bool", &flag), 0);
	assert_true(flag);
	assert_int_equal(gguf_string(g, "k.text", &text), 0);
	assert_int_equal(text.bytes, 6);
	assert_memory_equal(text.data, "h\xc3\xa9llo", 6);
	gguf_close(g);
	free(b.data);
}

static void test_absent_and_wrong_type_differ(void **state)
{
	struct builder b = good_file();
	struct gguf *g = NULL;
	uint32_t u32 = 99;
	uint64_t u64 = 99;
	float f32 = 99;
	bool flag = true;
	struct gguf_text text;
	struct gguf_array array;
	assert_int_equal(parse(&b, &g), 0);
	assert_int_equal(gguf_u32(g, "k.none", &u32), -ENOENT);
	assert_int_equal(gguf_u32(g, "k.u3", &u32), -ENOENT);
	assert_int_equal(gguf_u32(g, "k.text", &u32), -EINVAL);
	assert_int_equal(gguf_u32(g, "k.f32", &u32), -EINVAL);
	assert_int_equal(gguf_u32(g, "k.bool", &u32), -EINVAL);
	assert_int_equal(gguf_u32(g, "k.i8", &u32), -ERANGE);
	assert_int_equal(gguf_u32(g, "k.u64", &u32), -ERANGE);
	assert_int_equal(gguf_u64(g, "k.i32", &u64), -ERANGE);
	assert_int_equal(gguf_f32(g, "k.u32", &f32), -EINVAL);
	assert_int_equal(gguf_bool(g, "k.u8", &flag), -EINVAL);
	assert_int_equal(gguf_string(g, "k.texts", &text), -EINVAL);
	assert_int_equal(gguf_array(g, "k.u32", &array), -EINVAL);
	assert_int_equal(gguf_array(g, "k.nope", &array), -ENOENT);
	assert_true(u32 == 99 && u64 == 99 && f32 == 99 && flag);
	gguf_close(g);
	free(b.data);
}

static void test_arrays(void **state)
{
	struct builder b = good_file();
	struct gguf *g = NULL;
	struct gguf_array array;
	struct gguf_text text;
	size_t cursor = 0;
	int32_t i32;
	uint32_t u32;
	assert_int_equal(parse(&b, &g), 0);
	assert_int_equal(gguf_array(g, "k.i32s", &array), 0);
	assert_int_equal(array.n, 2);
	assert_int_equal(gguf_array_i32(&array, 1, &i32), 0);
	assert_int_equal(i32, -7);
	assert_int_equal(gguf_array_u32(&array, 0, &u32), 0);
	assert_int_equal(u32, 7);
	assert_int_equal(gguf_array_u32(&array, 1, &u32), -ERANGE);
	assert_int_equal(gguf_array_i32(&array, 2, &i32), -ERANGE);
	assert_false(gguf_array_next_string(&array, &cursor, &text));
	assert_int_equal(gguf_array(g, "k.texts", &array), 0);
	assert_true(gguf_array_next_string(&array, &cursor, &text));
	assert_memory_equal(text.data, "one", 3);
	assert_true(gguf_array_next_string(&array, &cursor, &text));
	assert_int_equal(text.bytes, 0);
	assert_true(gguf_array_next_string(&array, &cursor, &text));
	assert_memory_equal(text.data, "three", 5);
	assert_false(gguf_array_next_string(&array, &cursor, &text));
	gguf_close(g);
	free(b.data);
}

static void test_tensors(void **state)
{
	struct builder b = good_file();
	struct gguf *g = NULL;
	assert_int_equal(parse(&b, &g), 0);
	assert_int_equal(gguf_n_tensors(g), 3);
	assert_int_equal(gguf_data_offset(g), b.bytes - 512 - 1260);
	const struct gguf_tensor *q = gguf_find_tensor(g, "q.weight"),
				 *e = gguf_find_tensor(g, "experts.weight");
	assert_ptr_equal(q, gguf_tensor(g, 1));
	assert_int_equal(q->type, TYPE_Q4_1);
	assert_int_equal(q->bytes, 2 * 6 * 20);
	assert_int_equal(q->offset, gguf_data_offset(g) + 256);
	assert_true(q->dims[0] == 64 && q->dims[1] == 6 && q->dims[2] == 1 && q->dims[3] == 1);
	assert_int_equal(e->type, TYPE_Q6_K);
	assert_int_equal(e->bytes, 6 * 210);
	assert_int_equal(e->offset + e->bytes, b.bytes);
	assert_null(gguf_find_tensor(g, "q.weigh"));
	gguf_close(g);
	free(b.data);
}

/* A refusal must name the cause, and leave the out-parameter alone. */
static void refuse(struct builder *b, int error, const char *part)
{
	struct gguf *g = (struct gguf *)0x10;
	assert_int_equal(parse(b, &g), error);
	assert_ptr_equal(g, (struct gguf *)0x10);
	if (!strstr(why, part))
		fail_msg("expected '%s' in '%s'", part, why);
	free(b->data);
	*b = (struct builder){0};
}

static void refuse_tensor(uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset, int error,
			  const char *part)
{
	struct builder b = {0};
	put_header(&b, 3, 1, 0);
	put_tensor(&b, "blk.0.attn_q.weight", n_dims, dims, type, offset);
	put_padding(&b, 32);
	put_zeros(&b, 4096);
	refuse(&b, error, part);
}

static void test_headers_refused(void **state)
{
	struct builder b = {0};
	refuse(&b, -EINVAL, "ends at byte 0");
	put_zeros(&b, 100);
	refuse(&b, -EINVAL, "byte 0 holds 00 00 00 00");
	put_header(&b, 1, 0, 0);
	refuse(&b, -ENOTSUP, "version at byte 4 is 1");
	put_header(&b, 0x03000000, 0, 0);
	refuse(&b, -ENOTSUP, "big-endian");
	put_header(&b, 3, 1ull << 60, 0);
	refuse(&b, -EINVAL, "number of tensors at byte 8 is 1152921504606846976");
	put_header(&b, 3, 0, UINT64_MAX);
	refuse(&b, -EINVAL, "number of keys at byte 16");
}

static void test_keys_refused(void **state)
{
	struct builder b = {0};
	put_header(&b, 3, 0, 1);
	put_u64(&b, 1ull << 63);
	put_zeros(&b, 64);
	refuse(&b, -EINVAL, "name of key 0 at byte 24");
	put_header(&b, 3, 0, 1);
	put_key(&b, "a.b", 13);
	refuse(&b, -EINVAL, "'a.b' at byte 35: value type 13 does not exist");
	put_header(&b, 3, 0, 1);
	put_key_array(&b, "a.b", GGUF_ARRAY, 1);
	put_zeros(&b, 64);
	refuse(&b, -ENOTSUP, "array of arrays");
	put_header(&b, 3, 0, 1);
	put_key_array(&b, "a.b", GGUF_F64, 1ull << 61);
	put_zeros(&b, 64);
	refuse(&b, -EINVAL, "2305843009213693952 elements");
	put_header(&b, 3, 0, 1);
	put_key_bool(&b, "a.b", 2);
	refuse(&b, -EINVAL, "truth value is 2");
	put_header(&b, 3, 0, 1);
	put_key_u32(&b, "a\nb", 2);
	refuse(&b, -EINVAL, "0x0a");
	put_header(&b, 3, 0, 2);
	put_key_u32(&b, "a.b", 1);
	put_key_text(&b, "a.b", "x");
	refuse(&b, -EINVAL, "'a.b' at byte 51 occurs twice");
	put_header(&b, 3, 0, 1);
	put_key_u32(&b, "general.alignment", 48);
	refuse(&b, -EINVAL, "'general.alignment' is 48");
}

static void test_tensors_refused(void **state)
{
	refuse_tensor(1, (uint64_t[]){32}, 31, 0, -ENOTSUP,
		      "tensor 0 'blk.0.attn_q.weight' at byte 24: type 31 is not supported");
	refuse_tensor(0, NULL, 0, 0, -EINVAL, "0 dimensions");
	refuse_tensor(5, (uint64_t[]){1, 1, 1, 1, 1}, 0, 0, -EINVAL, "5 dimensions");
	refuse_tensor(2, (uint64_t[]){32, 0}, 0, 0, -EINVAL, "dimension 1 is 0");
	refuse_tensor(2, (uint64_t[]){1ull << 33, 1ull << 33}, 0, 0, -EINVAL,
		      "product of its dimensions overflows");
	refuse_tensor(2, (uint64_t[]){1ull << 32, 1ull << 31}, 0, 0, -EINVAL, "size in bytes overflows");
	refuse_tensor(1, (uint64_t[]){48}, 2, 0, -EINVAL,
		      "48 columns are no multiple of the 32 weights of a Q4_0 block");
	refuse_tensor(1, (uint64_t[]){32}, 0, 48, -EINVAL, "offset 48 is no multiple of the alignment 32");
	refuse_tensor(1, (uint64_t[]){32}, 0, UINT64_MAX - 31, -EINVAL, "overflows");
	refuse_tensor(1, (uint64_t[]){32}, 0, 4096, -EINVAL, "truncated");
	struct builder b = {0};
	put_header(&b, 3, 2, 0);
	put_tensor(&b, "a", 1, (uint64_t[]){32}, 0, 0);
	put_tensor(&b, "b", 1, (uint64_t[]){32}, 0, 96);
	put_padding(&b, 32);
	put_zeros(&b, 4096);
	refuse(&b, -EINVAL, "tensors 'a' and 'b' overlap");
	put_header(&b, 3, 2, 0);
	put_tensor(&b, "a", 1, (uint64_t[]){32}, 0, 0);
	put_tensor(&b, "a", 1, (uint64_t[]){32}, 0, 128);
	put_padding(&b, 32);
	put_zeros(&b, 4096);
	refuse(&b, -EINVAL, "tensor 'a' at byte 65 occurs twice");
}

/* Each prefix is copied to its own allocation, so that a sanitizer sees a read past its end. */
static void test_every_truncation(void **state)
{
	struct builder b = good_file();
	for (size_t n = 0; n < b.bytes; n++) {
		struct builder cut = {0};
		struct gguf *g = NULL;
		uint8_t *exact = malloc(n + !n);
		memcpy(exact, b.data, n);
		cut = (struct builder){exact, n, n};
		assert_int_equal(parse(&cut, &g), -EINVAL);
		assert_non_null(strstr(why, "byte"));
		free(exact);
	}
	free(b.data);
}

/* A damaged file is refused or stays inside its bounds. */
static void test_every_bit_flip(void **state)
{
	struct builder b = good_file();
	size_t refused = 0, header = b.bytes - 512 - 1260;
	for (size_t bit = 0; bit < header * 8; bit++) {
		struct gguf *g = NULL;
		b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (parse(&b, &g)) {
			refused++;
			assert_null(g);
			assert_string_not_equal(why, "untouched");
		} else {
			for (size_t i = 0; i < gguf_n_tensors(g); i++)
				assert_true(gguf_tensor(g, i)->offset + gguf_tensor(g, i)->bytes <= b.bytes);
			gguf_close(g);
		}
		b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_true(refused > header); /* most flips of lengths, counts, types and offsets */
	free(b.data);
}

static void open_refused(const char *path, int error, const char *part)
{
	struct gguf *g = NULL;
	assert_int_equal(gguf_open(path, &g, why, sizeof why), error);
	assert_null(g);
	if (!strstr(why, part) || !strstr(why, path))
		fail_msg("expected '%s' and the path in '%s'", part, why);
}

static void write_file(const char *path, const void *data, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, n), n);
	close(fd);
}

static void test_open(void **state)
{
	char path[128];
	struct builder b = good_file();
	struct gguf *g = NULL;
	uint32_t u32;
	close(mkstemp(scratch_path(path, sizeof path, "tokenring-gguf")));
	open_refused("/nonexistent/model.gguf", -ENOENT, "No such file");
	open_refused("/tmp", -EISDIR, "is a directory");
	open_refused("/dev/null", -EINVAL, "not a regular file");
	open_refused(path, -ENODATA, "is empty");
	write_file(path, (char[64]){0}, 64);
	open_refused(path, -EINVAL, "not a GGUF file");
	write_file(path, b.data, b.bytes - 1);
	open_refused(path, -EINVAL, "truncated");
	write_file(path, b.data, b.bytes);
	assert_int_equal(gguf_open(path, &g, why, sizeof why), 0);
	assert_int_equal(gguf_u32(g, "k.u32", &u32), 0);
	assert_int_equal(gguf_file_bytes(g), b.bytes);
	gguf_close(g);
	gguf_close(NULL);
	unlink(path);
	free(b.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_values),          cmocka_unit_test(test_absent_and_wrong_type_differ),
	    cmocka_unit_test(test_arrays),          cmocka_unit_test(test_tensors),
	    cmocka_unit_test(test_headers_refused), cmocka_unit_test(test_keys_refused),
	    cmocka_unit_test(test_tensors_refused), cmocka_unit_test(test_every_truncation),
	    cmocka_unit_test(test_every_bit_flip),  cmocka_unit_test(test_open),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
