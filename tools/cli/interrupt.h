/* Ctrl-C as a count: the first one asks for an orderly end, the second one ends the process at once. */
#ifndef TOKENRING_TOOLS_CLI_INTERRUPT_H
#define TOKENRING_TOOLS_CLI_INTERRUPT_H

/* Takes SIGINT and SIGTERM over (system calls return EINTR) and ignores SIGPIPE, so that a closed pipe is an
 * error of write. */
void interrupt_watch(void);

/* How often one of the signals has come; 0 before interrupt_watch. */
unsigned interrupt_count(void);

#endif
