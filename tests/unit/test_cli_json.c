/* Reading and listing the daemon's status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tools/cli/json.h"

static const char status[] =
    "{\"state\": \"ready\", \"model\": {\"file\":\"/a \\\"b\\\"/c\", \"progress\":0.25},\n"
    " \"text\": \"threads\", \"threads\": 2, \"list\": [1, {\"x\": -3}], \"none\": {}, \"last\": null}";

static void test_numbers(void **state)
{
	double number = 7;
	assert_true(json_number(status, "progress", &number));
	assert_true(number == 0.25);
	assert_true(json_number(status, "threads", &number)); /* not the value that reads like the key */
	assert_true(number == 2);
	assert_true(json_number(status, "x", &number));
	assert_true(number == -3);
	assert_false(json_number(status, "state", &number));
	assert_false(json_number(status, "absent", &number));
	assert_false(json_number("{\"open", "open", &number));
	assert_true(number == -3);
}

static void test_texts(void **state)
{
	char text[32] = "old";
	assert_true(json_text(status, "file", text, sizeof text));
	assert_string_equal(text, "/a \"b\"/c");
	assert_true(json_text("{\"k\":\"a\\u0022\\n\\u00e9\\/\\u00\"}", "k", text, sizeof text));
	assert_string_equal(text, "a\"\n?/");
	assert_true(json_text(status, "state", text, 6));
	assert_string_equal(text, "ready");
	assert_false(json_text(status, "state", text, 5));
	assert_false(json_text(status, "threads", text, sizeof text));
}

static char *lines_of(const char *json, bool wanted)
{
	char *text;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);
	assert_int_equal(json_print_lines(file, json), wanted);
	fclose(file);
	return text;
}

static void test_lines(void **state)
{
	char *text = lines_of(status, true);
	assert_non_null(strstr(text, "state                        ready\n"));
	assert_non_null(strstr(text, "model.progress               0.25\n"));
	assert_non_null(strstr(text, "list.0                       1\n"));
	assert_non_null(strstr(text, "list.1.x                     -3\n"));
	assert_non_null(strstr(text, "last                         null\n"));
	free(text);
}

static void test_what_is_not_json(void **state)
{
	static const char *const bad[] = {"",
					  "{",
					  "[1",
					  "{\"a\"}",
					  "{\"a\":}",
					  "{\"a\":1 \"b\":2}",
					  "{\"a\":\"b}",
					  "{} x",
					  "{1:2}",
					  "[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		free(lines_of(bad[i], false));
}

static void test_escapes(void **state)
{
	char *text;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);
	json_print_text(file, "a\"b\\c\nd\xc3\xa9");
	fclose(file);
	assert_string_equal(text, "\"a\\\"b\\\\c\\u000ad\xc3\xa9\"");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_numbers), cmocka_unit_test(test_texts),
	    cmocka_unit_test(test_lines),   cmocka_unit_test(test_what_is_not_json),
	    cmocka_unit_test(test_escapes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
