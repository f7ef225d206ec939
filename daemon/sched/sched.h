/* The scheduler: which requests take part in the next step, and with how many tokens.
 *
 * A pure function of (queue state, KV state, limits, cost model, clock value): the same arguments give the
 * same plan. It never decides a bit of an answer, only when the answer is computed.
 *
 * Rules, in order:
 *  1. A request whose deadline is past, or cannot be met by the cost model, is refused (waiting) or cut
 * (running).
 *  2. Waiting requests join in the order of `sched_before` while a slot and their KV blocks are free. The
 * first that does not fit stops the others: a long prompt is never starved by short ones behind it.
 *  3. Every running request that is not paused gets one token: one that decodes all that it needs, one that
 *     prefills the least that lets it progress.
 *  4. What is left of the step's tokens goes to prefill (chunked), in the order of `sched_before`.
 *
 * Nothing waits for ever: each `patience_ns` waited raises a request by one priority class, and a missing or
 * distant deadline counts as one of `patience_ns` after arrival.
 *
 * Thread rule: may run on any thread; no allocation, no I/O, no clock. */
#ifndef TOKENRING_DAEMON_SCHED_SCHED_H
#define TOKENRING_DAEMON_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

enum sched_state { SCHED_WAITING, SCHED_RUNNING };

enum sched_action {
	SCHED_NOTHING, /* waits on, or is paused */
	SCHED_STEP,    /* takes part with `tokens` tokens; one that waited joins */
	SCHED_JOIN,    /* joins, but the step had no token left for it */
	SCHED_EXPIRED, /* its deadline is past or hopeless: refuse a waiting one, cut a running one */
};

struct sched_entry {
	/* ---- state, written by the caller ---- */
	uint8_t state;    /* enum sched_state */
	uint8_t priority; /* 0 the most urgent */
	bool paused;      /* running, but its reader lags */
	uint32_t id;      /* the caller's; breaks the last tie */
	uint32_t pending; /* tokens to compute now: what is left of the prompt, or 1 in decode */
	uint32_t to_come; /* decode steps after those: max_new at most */
	uint32_t blocks;  /* waiting: KV blocks that it reserves when it joins */
	uint64_t arrival_ns, deadline_ns; /* CLOCK_MONOTONIC; deadline 0: none */
	/* ---- plan, written by schedule ---- */
	uint8_t action;        /* enum sched_action */
	uint32_t tokens;       /* SCHED_STEP: 1 to pending */
	uint64_t predicted_ns; /* when it would finish, 0: not known */
};

struct sched_limits {
	uint32_t step_tokens; /* rows of one step; at least `running` */
	uint32_t running;     /* requests that hold a slot */
	uint32_t blocks_free; /* KV blocks that are neither held nor reserved */
	uint64_t patience_ns; /* 0: classes are strict, deadlines are taken as they are */
	uint64_t max_step_ns; /* 0: no bound; prefill shrinks to keep a step below it */
	uint64_t token_ns;    /* what a token of prefill takes, for that bound; 0: not known */
};

/* What to expect of a request; zeros: not known, then only deadlines that are past count. */
struct sched_cost {
	uint64_t step_ns;  /* of a step with one row */
	uint64_t token_ns; /* of each row more */
};

struct sched_plan {
	uint32_t tokens;  /* sum over SCHED_STEP */
	uint32_t steps;   /* entries with SCHED_STEP */
	uint32_t joins;   /* entries that waited and now run */
	uint32_t expired; /* entries with SCHED_EXPIRED */
};

/* True if a goes before b at time now: priority class, then deadline, then arrival, then id. A strict order.
 */
bool sched_before(const struct sched_entry *a, const struct sched_entry *b, const struct sched_limits *,
		  uint64_t now_ns);

/* When a request would finish if it ran alone from now on; 0: not known. */
uint64_t sched_predict(const struct sched_entry *, const struct sched_cost *, uint64_t now_ns);

/* Plans one step for `n` entries. */
struct sched_plan schedule(struct sched_entry *entries, uint32_t n, const struct sched_limits *,
			   const struct sched_cost *, uint64_t now_ns);

#endif
