/* The daemon's log: one line an event, to standard error or to the systemd journal.
 *
 * An event has a level, a short name that stays the same between versions (for searching), and a sentence
 * with the likely cause and the remedy: "cannot map 64 huge pages: 12 free; run `sysctl vm.nr_hugepages=64`
 * or set huge_pages = prefer". Only the daemon's top layer logs; libraries return their sentence.
 *
 * Thread rule: log_open before other threads start; the rest from any thread, no locks, no allocation. A line
 * may cost a system call: never on the hot path. Not async-signal-safe. */
#ifndef TOKENRING_DAEMON_CONTROL_LOG_H
#define TOKENRING_DAEMON_CONTROL_LOG_H

#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

enum { LOG_MESSAGE_BYTES = 1024 }; /* a longer sentence is cut */

/* `target`: "auto" (the journal if systemd reads standard error), "stderr" or "journal"; `level`: "error",
 * "warning", "info" or "debug". -EINVAL: another word; -ENOTSUP: built without libsystemd; -ENOENT: no
 * journal here; each with a sentence. Until the first call, lines from LOG_LEVEL_INFO on go to standard
 * error. */
int log_open(const char *target, const char *level, char *why, size_t why_bytes);

/* -EINVAL: no level of this name; nothing changes. */
int log_set_level(const char *level);

/* Control characters in the message become spaces: a client's text cannot forge a line. */
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
