/* Every option through a file and through a flag, at and past its bounds, and the sentences of failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/control/config.h"
#include "tests/harness/scratch.h"

static char why[512];

static int read_text(struct config *config, const char *text)
{
	strcpy(why, "");
	return config_read_text(config, "test.conf", text, strlen(text), why, sizeof(why));
}

/* Loads a command line of up to four words. */
static int load(struct config *config, enum config_action *action, const char *a, const char *b,
		const char *c, const char *d)
{
	const char *argv[] = {"tokenringd", a, b, c, d, NULL};
	int argc = 1;

	while (argv[argc])
		argc++;
	strcpy(why, "");
	return config_load(config, action, argc, (char *const *)argv, why, sizeof(why));
}

/* A value that is not the default and passes the check of all together. */
static const char *sample(const struct config_option *option)
{
	static char text[64];

	switch (option->kind) {
	case CONFIG_KIND_path:
		return "/some/where";
	case CONFIG_KIND_choice:
		return strrchr(option->choices, '|') ? strrchr(option->choices, '|') + 1 : option->choices;
	case CONFIG_KIND_octal:
		return "0600";
	case CONFIG_KIND_cpus:
		return "1-3,6";
	case CONFIG_KIND_uids:
		return "991,1000";
	case CONFIG_KIND_bytes:
		return "3M";
	case CONFIG_KIND_number:
		if (strstr(option->name, "_slots"))
			return "2048";
		snprintf(text, sizeof(text), "%lld", (long long)(option->lower > 0 ? option->lower : 1));
		return text;
	}
	return "";
}

static void each_option_is_read_from_a_file(void **state)
{
	for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
		struct config config;
		char text[512], got[512];
		config_defaults(&config);
		snprintf(text, sizeof(text), "# remark\n%s = %s\n", config_options[i].name,
			 sample(&config_options[i]));
		assert_int_equal(read_text(&config, text), 0);
		config_format(&config, (enum config_index)i, got, sizeof(got));
		assert_string_equal(got, sample(&config_options[i]));
	}
}

static void each_option_is_read_from_flags(void **state)
{
	for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
		struct config config;
		enum config_action action;
		char underscores[128], dashes[128], got[512];
		snprintf(underscores, sizeof(underscores), "--%s", config_options[i].name);
		assert_int_equal(load(&config, &action, underscores, sample(&config_options[i]), NULL, NULL),
				 0);
		config_format(&config, (enum config_index)i, got, sizeof(got));
		assert_string_equal(got, sample(&config_options[i]));

		snprintf(dashes, sizeof(dashes), "--%s=%s", config_options[i].name,
			 sample(&config_options[i]));
		for (char *c = dashes + 2; *c != '='; c++)
			*c = *c == '_' ? '-' : *c;
		assert_int_equal(load(&config, &action, dashes, NULL, NULL, NULL), 0);
		assert_int_equal(action, CONFIG_RUN);
		config_format(&config, (enum config_index)i, got, sizeof(got));
		assert_string_equal(got, sample(&config_options[i]));
	}
}

static void refuse(const struct config_option *option, const char *value)
{
	struct config config, before;

	config_defaults(&config);
	before = config;
	assert_int_equal(config_set(&config, "test.conf:7", option->name, value, why, sizeof(why)), -EINVAL);
	assert_memory_equal(&config, &before, sizeof(config));
	assert_ptr_equal(strstr(why, "test.conf:7: "), why);
	assert_non_null(strstr(why, option->name));
	assert_non_null(strstr(why, value));
}

static void bounds_are_kept(void **state)
{
	for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
		const struct config_option *option = &config_options[i];
		struct config config;
		char text[64];
		if (option->kind != CONFIG_KIND_number && option->kind != CONFIG_KIND_bytes)
			continue;
		config_defaults(&config);
		const int64_t good[] = {option->lower, option->upper};
		for (size_t k = 0; k < 2; k++) {
			snprintf(text, sizeof(text), "%lld", (long long)good[k]);
			assert_int_equal(config_set(&config, "x", option->name, text, why, sizeof(why)), 0);
		}
		snprintf(text, sizeof(text), "%lld", (long long)option->lower - 1);
		refuse(option, text);
		snprintf(text, sizeof(text), "%llu", (unsigned long long)option->upper + 1);
		refuse(option, text);
	}
}

static void strange_values_are_refused(void **state)
{
	const struct {
		const char *name, *value;
	} cases[] = {
	    {"threads", "two"},
	    {"threads", "2x"},
	    {"threads", "0x2"},
	    {"threads", "+2"},
	    {"threads", "2.0"},
	    {"threads", "2K"},
	    {"arena_bytes", "1MB"},
	    {"arena_bytes", "1m"},
	    {"arena_bytes", "9999999999G"},
	    {"memory_limit", "99999999999999999999"},
	    {"memory_limit", "-1"},
	    {"socket_mode", "0999"},
	    {"socket_mode", "1777"},
	    {"backend", "gpu"},
	    {"backend", "cpu|ref-int8"},
	    {"isa", "AVX2"},
	    {"reserve_cores", "-1"},
	    {"reserve_cores", "257"},
	    {"worker_cpus", "3-1"},
	    {"worker_cpus", "1,1"},
	    {"worker_cpus", "1,"},
	    {"worker_cpus", "0-999"},
	    {"worker_cpus", "a"},
	    {"tenant_uids", "4294967295"},
	    {"tenant_uids", "1,,2"},
	    {"tenant_uids", "root"},
	    {"log_level", "verbose"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		refuse(config_find(cases[i].name), cases[i].value);
	refuse(config_find("threads"), "");
	refuse(config_find("log_level"), "");
}

static void sentences_name_the_range_and_the_choices(void **state)
{
	struct config config;

	config_defaults(&config);
	assert_int_equal(read_text(&config, "\n\nmax_clients = 99999\n"), -EINVAL);
	assert_string_equal(why,
			    "test.conf:3: max_clients = \"99999\" is not allowed: give 1 to 65536 channels");
	assert_int_equal(read_text(&config, "backend = gpu"), -EINVAL);
	assert_string_equal(
	    why, "test.conf:1: backend = \"gpu\" is not allowed: give one of cpu|ref-int8|ref-f32");
}

static void defaults_and_units(void **state)
{
	struct config config;

	config_defaults(&config);
	assert_int_equal(config.socket_mode, 0660);
	assert_int_equal(config.arena_bytes, 1048576);
	assert_int_equal(config.spin_us, 50);
	assert_int_equal(config.map_timeout_ms, 1000);
	assert_string_equal(config.numerics, "exact");
	assert_int_equal(config.engine_cpu, -1);
	assert_int_equal(config.worker_cpus.n, 0);
	assert_int_equal(read_text(&config, "arena_bytes = 64K\nmemory_limit=3G\nworker_cpus = 4,0-2\n"
					    "tenant_uids = 0,4294967294 ; a remark\n"),
			 0);
	assert_int_equal(config.arena_bytes, 65536);
	assert_int_equal(config.memory_limit, 3221225472);
	assert_int_equal(config.worker_cpus.n, 4);
	assert_int_equal(config.worker_cpus.cpu[0], 4);
	assert_int_equal(config.worker_cpus.cpu[3], 2);
	assert_int_equal(config.tenant_uids.n, 2);
	assert_int_equal(config.tenant_uids.uid[1], 4294967294u);
}

static void broken_files_are_refused_whole(void **state)
{
	const struct {
		const char *text, *sentence;
	} cases[] = {
	    {"threads = 2\nmax_qeue = 5\n",
	     "test.conf:2: there is no option \"max_qeue\"; did you mean max_queue?"},
	    {"threads = 2\nfrobnicate = 1\n",
	     "test.conf:2: there is no option \"frobnicate\"; tokenringd --help lists them"},
	    {"threads = 2\n\nthreads = 3\n",
	     "test.conf:3: threads is already set in line 1; remove one of the two"},
	    {"threads = 2\n  3\n", "test.conf:2: threads is already set in line 1; remove one of the two"},
	    {"[engine]\nthreads = 2\n", "test.conf:2: there are no sections; remove [engine]"},
	    {"threads = 2\nmodel\n", "test.conf:2: this is no \"name = value\""},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct config config, before;
		config_defaults(&config);
		before = config;
		assert_int_equal(read_text(&config, cases[i].text), -EINVAL);
		assert_string_equal(why, cases[i].sentence);
		assert_memory_equal(&config, &before, sizeof(config));
	}
}

static void hostile_files_are_refused(void **state)
{
	struct config config;
	char text[4096] = "model = ";

	config_defaults(&config);
	memset(text + 8, 'x', 2000);
	assert_int_equal(read_text(&config, text), -EINVAL);
	assert_string_equal(why, "test.conf:1: the line is too long; give such a value as a flag");
	assert_int_equal(config_read_text(&config, "zero", "a\0b", 3, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "zero:1: a zero byte: this is no text file");
	assert_int_equal(config_read_text(&config, "empty", "", 0, why, sizeof(why)), 0);
	assert_int_equal(config_read_file(&config, "/nonexistent/x.conf", why, sizeof(why)), -ENOENT);
	assert_non_null(strstr(why, "/nonexistent/x.conf"));
	assert_int_equal(config_read_file(&config, "/", why, sizeof(why)), -EISDIR);
}

static void flags_win_over_the_file(void **state)
{
	char path[128];
	int fd = mkstemp(scratch_path(path, sizeof path, "tokenring-config"));
	struct config config;
	enum config_action action;

	assert_true(fd >= 0);
	assert_true(write(fd, "threads = 3\nspin_us = 7\n", 24) == 24);
	close(fd);
	assert_int_equal(load(&config, &action, "--threads=5", "--config", path, NULL), 0);
	assert_int_equal(config.threads, 5);
	assert_int_equal(config.spin_us, 7);
	unlink(path);
	assert_int_equal(load(&config, &action, "--config", path, NULL, NULL), -ENOENT);
}

static void wrong_flags_are_refused(void **state)
{
	struct config config;
	enum config_action action = CONFIG_PRINT;

	assert_int_equal(load(&config, &action, "--model", NULL, NULL, NULL), -EINVAL);
	assert_string_equal(why, "command line: --model needs a value");
	assert_int_equal(load(&config, &action, "--threads", "1", "--threads=2", NULL), -EINVAL);
	assert_string_equal(why, "command line: --threads is given twice; remove one of the two");
	assert_int_equal(load(&config, &action, "--max-quueue", "1", NULL, NULL), -EINVAL);
	assert_string_equal(why, "command line: there is no option \"max_quueue\"; did you mean max_queue?");
	assert_int_equal(load(&config, &action, "model.gguf", NULL, NULL, NULL), -EINVAL);
	assert_string_equal(why, "command line: \"model.gguf\" is no option; tokenringd --help lists them");
	assert_int_equal(load(&config, &action, "--threads", "many", NULL, NULL), -EINVAL);
	assert_string_equal(why, "command line: threads = \"many\" is not allowed: give 0 to 256 threads");
	assert_int_equal(action, CONFIG_PRINT);
	assert_int_equal(load(&config, &action, "--help", NULL, NULL, NULL), 0);
	assert_int_equal(action, CONFIG_HELP);
	assert_int_equal(load(&config, &action, "--version", "--threads", "3", NULL), 0);
	assert_int_equal(action, CONFIG_VERSION);
}

static void options_must_fit_each_other(void **state)
{
	struct config config;
	enum config_action action;

	assert_int_equal(load(&config, &action, "--sq-slots", "100", NULL, NULL), -EINVAL);
	assert_string_equal(why, "sq_slots = 100 is not a power of two; 256 and 1024 are");
	assert_int_equal(load(&config, &action, "--cq-slots=64", "--max-inflight=33", NULL, NULL), -EINVAL);
	assert_non_null(strstr(why, "cq_slots = 64 is less than twice max_inflight = 33"));
	assert_int_equal(load(&config, &action, "--cq-slots=64", "--max-inflight=32", NULL, NULL), 0);
	assert_int_equal(
	    load(&config, &action, "--max-context-tokens=10", "--max-prompt-tokens=11", NULL, NULL), -EINVAL);
}

static void reload_takes_what_may_change(void **state)
{
	struct config running, fresh;
	char kept[64], little[8];

	config_defaults(&running);
	config_defaults(&fresh);
	assert_int_equal(config_reload(&running, &fresh, kept, sizeof(kept)), 0);
	assert_string_equal(kept, "");
	assert_int_equal(
	    read_text(&fresh, "drain_ms = 9\nlog_level = debug\nthreads = 2\nmodel = other.gguf\n"), 0);
	assert_int_equal(config_reload(&running, &fresh, kept, sizeof(kept)), 2);
	assert_string_equal(kept, "model, threads");
	assert_int_equal(running.drain_ms, 9);
	assert_string_equal(running.log_level, "debug");
	assert_int_equal(running.threads, 0);
	assert_int_equal(config_reload(&running, &fresh, little, sizeof(little)), 0);
	assert_string_equal(little, "mode...");
}

static char *printed(void (*print)(const struct config *, FILE *), const struct config *config)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *file = open_memstream(&text, &bytes);

	assert_non_null(file);
	print(config, file);
	fclose(file);
	return text;
}

static void print_help(const struct config *config, FILE *file)
{
	config_print_help(file);
}

static void what_is_printed_can_be_read_again(void **state)
{
	struct config config, again;
	enum config_action action;

	assert_int_equal(load(&config, &action, "--worker-cpus=0-2,5", "--arena-bytes=3M",
			      "--tenant-uids=4,5", "--socket=/run/x"),
			 0);
	char *text = printed(config_print, &config);
	config_defaults(&again);
	assert_int_equal(read_text(&again, text), 0);
	assert_memory_equal(&config, &again, sizeof(config));
	assert_non_null(strstr(text, "\narena_bytes = 3M\n"));
	assert_non_null(strstr(text, "\n#max_queue = 1024\n"));
	free(text);
}

static void help_lists_every_option(void **state)
{
	char *text = printed(print_help, NULL);

	for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
		char flag[64];
		snprintf(flag, sizeof(flag), "\n  --%s\n", config_options[i].name);
		for (char *c = flag; *c; c++)
			*c = *c == '_' ? '-' : *c;
		assert_non_null(strstr(text, flag));
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_option_is_read_from_a_file),
	    cmocka_unit_test(each_option_is_read_from_flags),
	    cmocka_unit_test(bounds_are_kept),
	    cmocka_unit_test(strange_values_are_refused),
	    cmocka_unit_test(sentences_name_the_range_and_the_choices),
	    cmocka_unit_test(defaults_and_units),
	    cmocka_unit_test(broken_files_are_refused_whole),
	    cmocka_unit_test(hostile_files_are_refused),
	    cmocka_unit_test(flags_win_over_the_file),
	    cmocka_unit_test(wrong_flags_are_refused),
	    cmocka_unit_test(options_must_fit_each_other),
	    cmocka_unit_test(reload_takes_what_may_change),
	    cmocka_unit_test(what_is_printed_can_be_read_again),
	    cmocka_unit_test(help_lists_every_option),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
