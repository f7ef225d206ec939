/* The keeper: lets clients learn of the daemon's death at once, however much memory it holds.
 *
 * The kernel takes a killed process's memory apart before it closes its sockets: with weights and KV in
 * ordinary pages that is a third of a second a GiB in which no client hears anything. The keeper is a process
 * that shares the daemon's memory (CLONE_VM) and nothing else: as long as it lives, the daemon's end only
 * drops a reference, and the sockets close at once. It ends when the daemon's last
 * thread is gone (pidfd_open), and then the memory goes. If both are killed together, as a service manager
 * does with a whole control group, all is as it was without it.
 *
 * Thread rule: main's thread, the one whose end is the daemon's. */
#ifndef TOKENRING_DAEMON_KEEPER_H
#define TOKENRING_DAEMON_KEEPER_H

/* Before other threads start and before anything is opened that others wait for. Returns its process id or a
 * negative errno; without it the daemon runs all the same. */
int keeper_start(void);

/* Ends and reaps it; nothing for what keeper_start failed to start. */
void keeper_stop(int keeper);

#endif
