/* The option parser: every type, every border, every complaint. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tools/cli/options.h"

struct fields {
	bool loud;
	uint64_t count;
	double heat;
	const char *path;
	struct option_list stops;
};

#define FIELD(name) offsetof(struct fields, name)
static const struct option_row rows[] = {
    {"loud", 'l', OPTION_FLAG, FIELD(loud), NULL, 0, 0, "be loud"},
    {"count", 'n', OPTION_NUMBER, FIELD(count), "N", 1, 100, "how many"},
    {"heat", 0, OPTION_REAL, FIELD(heat), "T", 0, 2, "how hot"},
    {"path", 0, OPTION_TEXT, FIELD(path), "PATH", 0, 0, "where"},
    {"stop", 0, OPTION_LIST, FIELD(stops), "TEXT", 0, 0, "what ends it"},
};
static const struct option_table table = {rows, sizeof rows / sizeof *rows};

static struct fields fields;
static struct positionals rest;
static char why[256];

static int parse(const char *const *words)
{
	static const char *argv[32];
	int argc = 0;
	while (words[argc]) {
		argv[argc] = words[argc];
		argc++;
	}
	fields = (struct fields){.count = 7};
	why[0] = 0;
	return options_parse(&table, &fields, argc, argv, &rest, why, sizeof why);
}

#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})

static void test_every_form(void **state)
{
	assert_int_equal(
	    PARSE("one", "--loud", "-n", "5", "--heat=0.5", "two", "--path", "-x", "--stop", "a", "--stop="),
	    0);
	assert_true(fields.loud);
	assert_int_equal(fields.count, 5);
	assert_true(fields.heat == 0.5);
	assert_string_equal(fields.path, "-x");
	assert_int_equal(fields.stops.n, 2);
	assert_string_equal(fields.stops.text[0], "a");
	assert_string_equal(fields.stops.text[1], "");
	assert_int_equal(rest.n, 2);
	assert_string_equal(rest.text[0], "one");
	assert_string_equal(rest.text[1], "two");
}

static void test_letters_and_dashes(void **state)
{
	assert_int_equal(PARSE("-l", "-n12", "-", "--", "--loud", "-n"), 0);
	assert_int_equal(fields.count, 12);
	assert_int_equal(rest.n, 3);
	assert_string_equal(rest.text[0], "-");
	assert_string_equal(rest.text[1], "--loud");
	assert_string_equal(rest.text[2], "-n");
}

static void test_defaults_stay(void **state)
{
	assert_int_equal(PARSE("word"), 0);
	assert_int_equal(fields.count, 7);
	assert_false(fields.loud);
}

static void test_bad_numbers(void **state)
{
	static const char *const bad[] = {
	    "0", "101", "-1", "5x", "", " 5", "0x5", "+5", "99999999999999999999"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(PARSE("--count", bad[i]), -EINVAL);
		assert_non_null(strstr(why, "--count wants a whole number from 1 to 100"));
	}
	static const char *const unreal[] = {"nan", "inf", "2.1", "-0.1", "hot", ""};
	for (size_t i = 0; i < sizeof unreal / sizeof *unreal; i++) {
		assert_int_equal(PARSE("--heat", unreal[i]), -EINVAL);
		assert_non_null(strstr(why, "--heat wants a number from 0 to 2"));
	}
}

static void test_other_complaints(void **state)
{
	assert_int_equal(PARSE("--nothing"), -EINVAL);
	assert_string_equal(why, "there is no option --nothing");
	assert_int_equal(PARSE("--coun=3"), -EINVAL);
	assert_string_equal(why, "there is no option --coun");
	assert_int_equal(PARSE("-z"), -EINVAL);
	assert_string_equal(why, "there is no option -z");
	assert_int_equal(PARSE("--count"), -EINVAL);
	assert_string_equal(why, "--count wants a value: N");
	assert_int_equal(PARSE("--loud=1"), -EINVAL);
	assert_string_equal(why, "--loud takes no value");
}

static void test_too_many(void **state)
{
	const char *words[OPTIONS_LIST_MAX + 2] = {NULL};
	for (int i = 0; i <= OPTIONS_LIST_MAX; i++)
		words[i] = "--stop=x";
	assert_int_equal(parse(words), -EINVAL);
	assert_string_equal(why, "--stop may be given 16 times at most");
}

static void test_help_names_every_option(void **state)
{
	char text[1024];
	size_t n = options_help(&table, text, sizeof text);
	assert_int_equal(n, strlen(text));
	for (size_t i = 0; i < table.n; i++) {
		assert_non_null(strstr(text, rows[i].name));
		assert_non_null(strstr(text, rows[i].help));
	}
	assert_non_null(strstr(text, "-n, --count N"));
	char cut[10];
	assert_int_equal(options_help(&table, cut, sizeof cut), n);
	assert_int_equal(strlen(cut), 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_form),
	    cmocka_unit_test(test_letters_and_dashes),
	    cmocka_unit_test(test_defaults_stay),
	    cmocka_unit_test(test_bad_numbers),
	    cmocka_unit_test(test_other_complaints),
	    cmocka_unit_test(test_too_many),
	    cmocka_unit_test(test_help_names_every_option),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
