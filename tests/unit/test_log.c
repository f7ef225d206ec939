/* What lands on standard error: levels, form, whole lines from many threads, no forged lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/control/log.h"

static char captured[1 << 20];

/* Runs `write_lines` with standard error in a file; what it wrote is in `captured`. */
static void capture(void (*write_lines)(void))
{
	FILE *file = tmpfile();
	int saved = dup(STDERR_FILENO);

	assert_non_null(file);
	dup2(fileno(file), STDERR_FILENO);
	write_lines();
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(file);
	captured[fread(captured, 1, sizeof(captured) - 1, file)] = '\0';
	fclose(file);
}

static unsigned lines(void)
{
	unsigned n = 0;

	for (const char *c = captured; *c; c++)
		n += *c == '\n';
	return n;
}

static void three_lines(void)
{
	log_event(LOG_LEVEL_ERROR, "huge-pages", "cannot map %d huge pages: %d free", 64, 12);
	log_event(LOG_LEVEL_INFO, "ready", "serving");
	log_event(LOG_LEVEL_DEBUG, "detail", "not for everybody");
}

static void a_line_has_time_level_event_and_sentence(void **state)
{
	char why[256] = "";
	int year, month, day, hour, minute, end = 0;
	double second;

	assert_int_equal(log_open("stderr", "info", why, sizeof(why)), 0);
	capture(three_lines);
	assert_int_equal(lines(), 2);
	assert_int_equal(
	    sscanf(captured,
		   "%4d-%2d-%2dT%2d:%2d:%6lfZ error huge-pages: cannot map 64 huge pages: 12 free\n%n", &year,
		   &month, &day, &hour, &minute, &second, &end),
	    6);
	assert_true(end > 0 && year >= 2024 && month <= 12 && second < 61);
	assert_non_null(strstr(captured, "Z info ready: serving\n"));
}

static void levels_can_change(void **state)
{
	assert_int_equal(log_set_level("debug"), 0);
	capture(three_lines);
	assert_int_equal(lines(), 3);
	assert_int_equal(log_set_level("error"), 0);
	capture(three_lines);
	assert_int_equal(lines(), 1);
	assert_int_equal(log_set_level("loud"), -EINVAL);
	capture(three_lines);
	assert_int_equal(lines(), 1);
	assert_int_equal(log_set_level("info"), 0);
}

static void forged_line(void)
{
	log_event(LOG_LEVEL_INFO, "peer", "name \"%s\"",
		  "x\n2026-01-01T00:00:00.000Z error forged: y\r\x1b[31m");
}

static void control_characters_cannot_forge_a_line(void **state)
{
	capture(forged_line);
	assert_int_equal(lines(), 1);
	assert_null(strchr(captured, '\x1b'));
	assert_null(strchr(captured, '\r'));
}

static void long_line(void)
{
	char text[4 * LOG_MESSAGE_BYTES];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_event(LOG_LEVEL_INFO, "long", "%s", text);
}

static void long_sentences_are_cut(void **state)
{
	capture(long_line);
	assert_int_equal(lines(), 1);
	assert_true(strlen(captured) > LOG_MESSAGE_BYTES && strlen(captured) < LOG_MESSAGE_BYTES + 128);
	assert_int_equal(captured[strlen(captured) - 1], '\n');
}

enum { THREADS = 4, LINES_EACH = 500 };

static void *write_many(void *which)
{
	for (int i = 0; i < LINES_EACH; i++)
		log_event(LOG_LEVEL_INFO, "many", "<%d %d>", *(int *)which, i);
	return NULL;
}

static void many_threads(void)
{
	pthread_t threads[THREADS];
	int which[THREADS];

	for (int i = 0; i < THREADS; i++) {
		which[i] = i;
		pthread_create(&threads[i], NULL, write_many, &which[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void lines_of_threads_do_not_mix(void **state)
{
	int next[THREADS] = {0}, which, i, end;

	capture(many_threads);
	assert_int_equal(lines(), THREADS * LINES_EACH);
	for (const char *line = captured; *line; line = strchr(line, '\n') + 1) {
		end = 0;
		assert_int_equal(sscanf(strchr(line, ' '), " info many: <%d %d>%n", &which, &i, &end), 2);
		assert_int_equal(i, next[which]++);
		assert_int_equal(strchr(line, ' ')[end], '\n');
	}
}

static void targets_that_cannot_be_had_are_refused(void **state)
{
	char why[256] = "";

	assert_int_equal(log_open("syslog", "info", why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "auto|stderr|journal"));
	assert_int_equal(log_open("stderr", "loud", why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "error|warning|info|debug"));
	if (access("/run/systemd/journal/socket", W_OK) != 0) {
		assert_true(log_open("journal", "info", why, sizeof(why)) < 0);
		assert_non_null(strstr(why, "set log_target = stderr"));
	}
}

static void auto_is_standard_error_when_that_is_not_the_journal(void **state)
{
	char why[256] = "";

	setenv("JOURNAL_STREAM", "1:1", 1);
	assert_int_equal(log_open("auto", "info", why, sizeof(why)), 0);
	capture(three_lines);
	assert_int_equal(lines(), 2);
	unsetenv("JOURNAL_STREAM");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_line_has_time_level_event_and_sentence),
	    cmocka_unit_test(levels_can_change),
	    cmocka_unit_test(control_characters_cannot_forge_a_line),
	    cmocka_unit_test(long_sentences_are_cut),
	    cmocka_unit_test(lines_of_threads_do_not_mix),
	    cmocka_unit_test(targets_that_cannot_be_had_are_refused),
	    cmocka_unit_test(auto_is_standard_error_when_that_is_not_the_journal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
