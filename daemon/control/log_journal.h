/* The way to the systemd journal; log_journal_none.c stands in where libsystemd is not built in.
 *
 * Thread rule: any thread. */
#ifndef TOKENRING_DAEMON_CONTROL_LOG_JOURNAL_H
#define TOKENRING_DAEMON_CONTROL_LOG_JOURNAL_H

/* 0 if the journal can be had, -ENOTSUP: built without it, -ENOENT: no journal runs here. */
int log_journal_probe(void);

/* `priority` as in syslog(3). A negative errno if the line was not taken. */
int log_journal_send(int priority, const char *event, const char *message);

#endif
