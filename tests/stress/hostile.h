/* A client that does to its channel and its socket whatever a process can do: what the files of
 * hostile_main.c share. It links none of the library's safety: only the layout and the rings.
 *
 * All that it does follows from one number, so that a failure can be looked for again with the same seed;
 * when things happen relative to the daemon does not.
 *
 * Thread rule: one thread, and hostile_race's own. */
#ifndef TOKENRING_TESTS_STRESS_HOSTILE_H
#define TOKENRING_TESTS_STRESS_HOSTILE_H

#include "shm/segment.h"

enum { BREACH = 3 /* exit status: something succeeded that must be impossible */ };

struct hostile {
	const char *path;
	uint64_t seed;
	int fd;     /* the socket; -1: none */
	int memory; /* the memfd; -1: none */
	struct segment segment;
	struct segment_layout layout;
	struct ring_writer submissions;
	struct ring_reader completions;
	bool live;
	uint64_t order; /* of the next id */
};

/* The next number of the sequence that the seed begins; below a bound. */
uint32_t hostile_random(struct hostile *hostile);
uint32_t hostile_below(struct hostile *hostile, uint32_t bound);

/* Whether the daemon has ended the channel, as far as its header says. */
bool hostile_ended(const struct hostile *hostile);

/* Says what succeeded and exits with BREACH. */
void hostile_breach(const char *what) __attribute__((noreturn));

/* ---- hostile_socket.c ---- */

/* Connects and takes the offer. False: refused. */
bool hostile_connect(struct hostile *hostile);

/* Says MAPPED and waits for LIVE. False: refused. */
bool hostile_go_live(struct hostile *hostile);
void hostile_leave(struct hostile *hostile);

/* What can be wrong with messages and descriptors; on any connection. */
void hostile_messages(struct hostile *hostile);
void hostile_descriptors(struct hostile *hostile);

/* Connections by the dozen: none finished, some kept. */
void hostile_crowd(struct hostile *hostile);

/* ---- hostile_memory.c ---- */

/* System calls on the memfd and its mapping, before and after it is sealed. */
void hostile_system_calls(struct hostile *hostile);

/* ---- hostile_requests.c ---- */

/* Noise or one value over all or a part of what is shared. */
void hostile_scribble(struct hostile *hostile);

/* Requests that are right but for something. */
void hostile_requests(struct hostile *hostile);

/* Takes all it can get, and does not read the answers. */
void hostile_hoard(struct hostile *hostile);

/* Requests while a second thread changes fields of slots, blocks and header. */
void hostile_race(struct hostile *hostile);

#endif
