/* The keeper: lets clients learn of the daemon's death at once, however much memory it holds.
 *
 * The kernel takes a killed process's memory apart before it closes its sockets: with weights and KV in
 * ordinary pages that is up to a third of a second a GiB in which no client hears anything. The keeper is a
 * process that shares the daemon's memory (CLONE_VM) and nothing else: as long as it lives, the daemon's end
 * only drops a reference, and the sockets close at once. It ends when the daemon's last thread is gone
 * (pidfd_open), and then the memory goes.
 *
 * It costs no memory, sleeps all the time, and has the daemon's rights and no descriptor but one. If it is
 * killed, another one is started. If it is stopped, the daemon's end lets it go on. If both are killed
 * together, as the kernel does for want of memory and a service manager with a whole control group, all is as
 * it was without it. A tracer of the daemon delays its end, and with that the memory's, until it has taken
 * note.
 *
 * Thread rule: main's thread, the one whose end is the daemon's. */
#ifndef TOKENRING_DAEMON_KEEPER_H
#define TOKENRING_DAEMON_KEEPER_H

/* Before anything is opened that others wait for, with SIGCHLD blocked and not ignored. Negative errno;
 * without it the daemon runs all the same. */
int keeper_start(void);

/* After a SIGCHLD: 1 if the keeper had ended and another one was started, 0 if there was nothing to do,
 * negative errno if no other one could be started. */
int keeper_tend(void);

/* Ends and reaps it; nothing if none runs. */
void keeper_stop(void);

#endif
