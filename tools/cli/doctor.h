/* tokenring doctor: what of this host costs latency, and the command that changes it.
 *
 * Findings are a pure function of a tree of files (/proc, /sys, /dev, /run below a root) and of a few facts
 * that no file tells; tests record both. Thread rule: any thread; reads files, so not for the hot path.
 * Nothing here allocates, writes or changes the host. */
#ifndef TOKENRING_TOOLS_CLI_DOCTOR_H
#define TOKENRING_TOOLS_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum finding_state {
	FINDING_OK,
	FINDING_NOTE,    /* worth knowing; costs nothing, or only where it says */
	FINDING_UNKNOWN, /* the host does not show it */
	FINDING_COSTS,   /* costs latency */
	FINDING_WRONG,   /* something does not work */
};

struct finding {
	const char *item;
	enum finding_state state;
	char found[256];
	char cost[256]; /* "": nothing */
	char fix[256];  /* a command for root, or words where there is none; "": nothing to do */
};

enum { FINDINGS_MAX = 48 };

struct findings {
	size_t n;
	struct finding finding[FINDINGS_MAX];
};

/* A pinned thread that reads the clock again and again: how long something else had its CPU. */
struct doctor_spin {
	bool measured;
	int cpu;
	uint64_t spun_ns, lost_ns; /* lost: the sum of the gaps */
	uint64_t gaps, longest_ns; /* gaps of at least DOCTOR_GAP_NS */
	uint64_t clock_read_ns;    /* one clock_gettime(CLOCK_MONOTONIC), on average */
};

enum { DOCTOR_GAP_NS = 10000, DOCTOR_SPIN_NS = 200000000 };

/* What a daemon behind the socket says, or why none does. */
struct doctor_daemon {
	bool asked;
	int error;        /* of tr_open or tr_status, negative errno; 0: it answered */
	int pid;          /* 0: not known */
	char version[32]; /* "" */
	char state[32];   /* of its model, "" */
};

struct doctor_host {
	const char *root;    /* "" for this machine, or a folder that stands for / */
	const char *process; /* whose limits count: "self", or the daemon's process id */
	const char *socket;  /* path of the socket, below root */
	const char *version; /* ours */
	struct doctor_spin spin;
	struct doctor_daemon daemon;
};

/* All items, in the order of print. */
void doctor_examine(const struct doctor_host *, struct findings *ret);

/* The items of each topic: appended. */
void doctor_cpus(const struct doctor_host *, struct findings *);   /* doctor_cpus.c */
void doctor_idle(const struct doctor_host *, struct findings *);   /* doctor_idle.c: frequency, idle states */
void doctor_memory(const struct doctor_host *, struct findings *); /* doctor_memory.c */
void doctor_system(const struct doctor_host *, struct findings *); /* doctor_system.c: kernel, clock, gaps */
void doctor_limits(const struct doctor_host *, struct findings *); /* doctor_limits.c: cgroups, rlimits */
void doctor_service(const struct doctor_host *, struct findings *); /* doctor_service.c: socket, daemon */

/* Spins for DOCTOR_SPIN_NS on the last CPU that this process may use; its affinity is as before afterwards.
 * Measures nothing (`measured` stays false) where the thread cannot be pinned. */
void doctor_spin_measure(struct doctor_spin *ret);

/* Appends a finding and returns it. Past FINDINGS_MAX the last one is overwritten. */
__attribute__((format(printf, 4, 5))) struct finding *
finding_add(struct findings *, const char *item, enum finding_state, const char *format, ...);
__attribute__((format(printf, 2, 3))) void finding_cost(struct finding *, const char *format, ...);
__attribute__((format(printf, 2, 3))) void finding_fix(struct finding *, const char *format, ...);

#endif
