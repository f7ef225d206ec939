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
#include "tools/cli/topology.h"

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

static void collect(void *context, const char *element)
{
	char *text = context;
	strcat(strcat(text, element), "|");
}

static void test_elements(void **state)
{
	char found[256] = "";
	assert_true(json_elements("{\"b\":1,\"a\":[1, {\"x\":[2,3],\"y\":\"],}\"} ,\"t,\",[]]}", "a", collect,
				  found));
	assert_string_equal(found, "1|{\"x\":[2,3],\"y\":\"],}\"} |\"t,\"|[]|");
	*found = 0;
	assert_true(json_elements("{\"a\":[]}", "a", collect, found));
	assert_string_equal(found, "");
	assert_false(json_elements("{\"a\":{}}", "a", collect, found));
	assert_false(json_elements("{\"a\":[1,2", "a", collect, found));
	assert_false(json_elements("{\"a\":[\"x]}", "a", collect, found));
	assert_false(json_elements("{\"a\":[{]}", "a", collect, found));
}

/* A thread and a memory that are elsewhere are marked, and others are not. */
static void test_topology(void **state)
{
	static const char json[] =
	    "{\"cpus\":4,\"cores\":2,\"quota_cpus\":1.50,\"nodes\":[{\"id\":1,\"cpus\":\"0-3\",\"memory_"
	    "bytes\":1048576,"
	    "\"memory_allowed\":true,\"pages_2m\":8,\"free_pages_2m\":5}],\"devices\":[{\"address\":\"0000:"
	    "01:00.0\","
	    "\"kind\":\"nvme\",\"node\":1}],\"threads\":[{\"name\":\"engine\",\"cpu\":2,\"node\":1,\"why\":"
	    "\"so\","
	    "\"runs\":true,\"allowed\":\"2\",\"last_cpu\":2,\"agrees\":true},{\"name\":\"worker\",\"cpu\":3,"
	    "\"node\":1,"
	    "\"why\":\"as\",\"runs\":true,\"allowed\":\"0-3\",\"last_cpu\":0,\"agrees\":false},{\"name\":"
	    "\"loader\","
	    "\"cpu\":-1,\"node\":1,\"why\":\"it\",\"runs\":false}],\"memory\":[{\"name\":\"kv\",\"nodes\":"
	    "\"1\","
	    "\"why\":\"is\",\"bytes\":3145728,\"huge_bytes\":2097152,\"page_bytes\":2097152,\"on_nodes\":[{"
	    "\"node\":0,"
	    "\"bytes\":1048576},{\"node\":1,\"bytes\":2097152}],\"note\":\"do it\",\"agrees\":false}],"
	    "\"advice\":\"\",\"differences\":2}";
	char *text;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	assert_true(topology_print(file, json));
	fclose(file);
	assert_non_null(strstr(text, "4 CPUs on 2 cores, limited to 1.50 CPUs of time\n"));
	assert_non_null(strstr(text, "node 1: CPUs 0-3, 1 MiB; huge pages free: 5 of 8 of 2 MiB"));
	assert_non_null(strstr(text, "  nvme 0000:01:00.0: node 1\n"));
	assert_non_null(strstr(text, "\n  engine    CPU 2, node 1"));
	assert_non_null(strstr(text, "\n! worker    CPU 3, node 1    now: may run on 0-3, ran on 0"));
	assert_non_null(strstr(text, "\n  loader    node 1           now: not running"));
	assert_non_null(
	    strstr(text, "\n! kv        node 1           now: 3.0 MiB, 1.0 MiB on node 0, 2.0 MiB on node 1, "
			 "2.0 MiB in huge pages (reserved); is; do it\n"));
	assert_non_null(strstr(text, "plan and reality differ in 2 of these"));
	free(text);
	file = open_memstream(&text, &bytes);
	assert_false(topology_print(file, "{\"state\":\"ready\"}"));
	fclose(file);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_elements), cmocka_unit_test(test_topology),
	    cmocka_unit_test(test_numbers),  cmocka_unit_test(test_texts),
	    cmocka_unit_test(test_lines),    cmocka_unit_test(test_what_is_not_json),
	    cmocka_unit_test(test_escapes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
