#include "daemon/control/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/control/log_journal.h"
#include "shm/atomics.h"

static const struct {
	const char *name;
	int priority; /* syslog(3) */
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", 3},
    [LOG_LEVEL_WARNING] = {"warning", 4},
    [LOG_LEVEL_INFO] = {"info", 6},
    [LOG_LEVEL_DEBUG] = {"debug", 7},
};

/* Both are read by every thread; a line that is written while they change may go either way. */
static shared_u32 least_level = {LOG_LEVEL_INFO};
static shared_u32 to_journal;

int log_set_level(const char *level)
{
	for (uint32_t i = 0; i < sizeof(levels) / sizeof(*levels); i++)
		if (strcmp(levels[i].name, level) == 0) {
			store_relaxed_u32(&least_level, i);
			return 0;
		}
	return -EINVAL;
}

/* Whether standard error is the stream that systemd set up; $JOURNAL_STREAM is its "device:inode". */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	struct stat st;
	char mine[64];

	if (!stream || fstat(STDERR_FILENO, &st) < 0)
		return false;
	snprintf(mine, sizeof(mine), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	return strcmp(stream, mine) == 0;
}

static int choose_target(const char *target, char *why, size_t why_bytes)
{
	bool automatic = strcmp(target, "auto") == 0;

	if (strcmp(target, "stderr") == 0 || (automatic && !stderr_is_journal()))
		return 0;
	if (!automatic && strcmp(target, "journal") != 0) {
		snprintf(why, why_bytes,
			 "log_target = \"%.32s\" is not allowed: give one of auto|stderr|journal", target);
		return -EINVAL;
	}
	int result = log_journal_probe();
	if (result == 0)
		return 1;
	if (automatic)
		return 0; /* systemd reads standard error all the same */
	snprintf(why, why_bytes, "cannot log to the journal: %s; set log_target = stderr",
		 result == -ENOTSUP ? "this daemon was built without libsystemd" : "no journal runs here");
	return result;
}

int log_open(const char *target, const char *level, char *why, size_t why_bytes)
{
	int journal = choose_target(target, why, why_bytes);

	if (journal < 0)
		return journal;
	if (log_set_level(level) < 0) {
		snprintf(why, why_bytes,
			 "log_level = \"%.32s\" is not allowed: give one of error|warning|info|debug", level);
		return -EINVAL;
	}
	store_relaxed_u32(&to_journal, (uint32_t)journal);
	return 0;
}

static void blank_control_characters(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 127)
			*text = ' ';
}

/* A pipe that nobody reads, or a stopped terminal, must not stop the threads that log. One that takes a line
 * at all takes one of this length: it is shorter than PIPE_BUF. */
static bool stderr_takes_a_line(void)
{
	struct pollfd target = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&target, 1, 0) != 0;
}

/* One write, so that lines of several threads do not mix. */
static void write_stderr(enum log_level level, const char *event, const char *message)
{
	char line[LOG_MESSAGE_BYTES + 128], stamp[32];
	struct timespec now;
	struct tm utc;

	if (!stderr_takes_a_line())
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
	int bytes = snprintf(line, sizeof(line), "%s.%03ldZ %s %.48s: %s\n", stamp, now.tv_nsec / 1000000,
			     levels[level].name, event, message);
	ssize_t written = write(STDERR_FILENO, line, (size_t)bytes);
	(void)written; /* there is nowhere left to say that the log is closed */
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
	char message[LOG_MESSAGE_BYTES];
	va_list arguments;

	if ((uint32_t)level > load_relaxed_u32(&least_level))
		return;
	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	blank_control_characters(message);
	if (!load_relaxed_u32(&to_journal) || log_journal_send(levels[level].priority, event, message) < 0)
		write_stderr(level, event, message);
}
