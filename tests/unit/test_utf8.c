/* Ill-formed UTF-8 by maximal subparts, and the stream filter at every way to cut a text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/model/utf8.h"
#include "daemon/model/utf8_stream.h"

#define R "\xef\xbf\xbd"

/* The right column is what Python's bytes.decode("utf-8", "replace") gives. */
static const char *const cases[][2] = {
    {"", ""},
    {"plain", "plain"},
    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"\x80", R},
    {"\xc0\xaf", R R},
    {"\xe2\x82", R},
    {"\xe2\x28\xa1", R "(" R},
    {"\xf0\x9f\x98", R},
    {"\xed\xa0\x80", R R R},
    {"\xf4\x90\x80\x80", R R R R},
    {"\xf5\x80\x80\x80", R R R R},
    {"\xe0\x80\x80", R R R},
    {"\xf0\x80\x80\x80", R R R R},
    {"\xc3(", R "("},
    {"a\xf1\x80\x80z", "a" R "z"},
    /* Table 3-11 of the Unicode standard. */
    {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A"},
    {"\xef\xbf\xbf\xf4\x8f\xbf\xbf", "\xef\xbf\xbf\xf4\x8f\xbf\xbf"},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static void test_clean(void **state)
{
	char out[64];
	for (size_t i = 0; i < N_CASES; i++) {
		size_t n = utf8_clean(cases[i][0], strlen(cases[i][0]), out);
		assert_int_equal(n, strlen(cases[i][1]));
		assert_memory_equal(out, cases[i][1], n);
		assert_int_equal(utf8_clean(cases[i][0], strlen(cases[i][0]), NULL), n);
	}
}

static int is_whole(const char *text, size_t bytes)
{
	for (size_t at = 0, n; at < bytes; at += n) {
		enum utf8_status status;
		n = utf8_first(text + at, bytes - at, &status);
		if (status != UTF8_CHARACTER)
			return 0;
	}
	return 1;
}

static void test_stream_at_every_cut(void **state)
{
	for (size_t i = 0; i < N_CASES; i++) {
		const char *text = cases[i][0];
		size_t bytes = strlen(text);
		for (unsigned cuts = 0; cuts < 1u << (bytes ? bytes - 1 : 0); cuts++) {
			struct utf8_stream s = {0};
			char out[256];
			size_t n = 0, begun = 0;
			for (size_t at = 0; at < bytes; at++) {
				if (at + 1 < bytes && !(cuts >> at & 1))
					continue;
				size_t more = utf8_stream_feed(&s, text + begun, at + 1 - begun, out + n);
				assert_true(is_whole(out + n, more));
				n += more;
				begun = at + 1;
			}
			n += utf8_stream_flush(&s, out + n);
			assert_int_equal(n, strlen(cases[i][1]));
			assert_memory_equal(out, cases[i][1], n);
			assert_int_equal(utf8_stream_flush(&s, out), 0);
		}
	}
}

/* A complete character is passed on at once, not held until more comes. */
static void test_stream_holds_no_more_than_it_must(void **state)
{
	struct utf8_stream s = {0};
	char out[UTF8_STREAM_ROOM(4)];
	assert_int_equal(utf8_stream_feed(&s, "a\xe2\x82", 3, out), 1);
	assert_int_equal(utf8_stream_feed(&s, "", 0, out), 0);
	assert_int_equal(utf8_stream_feed(&s, "\xac", 1, out), 3);
	assert_memory_equal(out, "\xe2\x82\xac", 3);
	assert_int_equal(s.n_held, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_clean),
	    cmocka_unit_test(test_stream_at_every_cut),
	    cmocka_unit_test(test_stream_holds_no_more_than_it_must),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
