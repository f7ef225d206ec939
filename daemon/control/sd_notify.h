/* Tells a service manager what the daemon does, over the datagram socket that it names in $NOTIFY_SOCKET.
 *
 * Each call returns 0 if it was told, 1 if nobody asked to be told, or a negative errno; a daemon goes on in
 * every case. Thread rule: any thread; a system call or three; never blocks for long. Source: sd_notify(3).
 */
#ifndef TOKENRING_DAEMON_CONTROL_SD_NOTIFY_H
#define TOKENRING_DAEMON_CONTROL_SD_NOTIFY_H

/* Lines NAME=value, separated by newlines. */
int notify_service(const char *state);

int notify_ready(void);
int notify_stopping(void);
/* The end of a reload is told by notify_ready. */
int notify_reloading(void);
/* One line for people, cut at 200 bytes: "loading weights: 40 %". */
int notify_status(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
