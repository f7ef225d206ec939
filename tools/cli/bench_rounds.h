/* Things that are measured in turns: each round runs one slice of every contender between two halves of the
 * raw ping-pong, which tells whether the machine changed under it.
 *
 * A virtual machine may put both CPUs on one core for a while, where a line never leaves the cache: rounds
 * whose ping-pong is faster than --same-core-ns are dropped and counted. So are rounds whose ping-pong before
 * and after differs by over 30 %: a CPU was moved nearer or farther, and the round belongs to neither. */
#ifndef TOKENRING_TOOLS_CLI_BENCH_ROUNDS_H
#define TOKENRING_TOOLS_CLI_BENCH_ROUNDS_H

#include "tools/cli/bench_ring.h"

enum { QUANTILES = 4 }; /* 50, 90, 99, 99.9 % */

struct contender;

/* Runs `n` round trips (or whatever is counted) into an empty `ret`. Complains on failure. */
typedef enum exit_code contender_fn(const struct ring *ring, const struct contender *self, uint64_t n,
				    struct floor_trips *ret);

struct contender {
	const char *metric;
	contender_fn *run;
	void *context;
	uint64_t n;                        /* of a slice */
	const struct contender *reference; /* what its median is compared with; NULL: nothing */
	bool is_rate;                      /* `n` in the time of the slice; else the single times */
	bool polls;                        /* this end spins, so that gaps of its own CPU can be told */
	/* results */
	double ticks_per_poll;
	struct floor_trips slice, sum;
	struct series raw[QUANTILES], without[QUANTILES], rate;
};

struct rounds {
	struct ring *ring;
	struct contender **contenders; /* (n) without the ping-pong */
	unsigned n;
	uint64_t wanted;
	struct contender walk; /* the raw ping-pong: may be a reference */
	/* results */
	uint64_t kept, on_one_core, moved;
	struct floor_trips walk_half[2];
};

/* Prepares the ping-pong: `trips` of it a round. */
void rounds_init(struct rounds *rounds, struct ring *ring, const char *walk_metric, uint64_t trips,
		 uint64_t wanted);

/* Warms up with one short round, then runs until enough rounds count. Complains on failure. */
enum exit_code rounds_run(struct rounds *rounds, struct contender **contenders, unsigned n);

/* Prints a contender's rows: raw, and without the gaps of its own CPU. */
void rounds_print(const struct rounds *rounds, struct contender *contender);

/* How many rounds counted, and the gaps that the machine caused. */
void rounds_note(const struct rounds *rounds);

void rounds_free(struct rounds *rounds);

/* ---- contenders of several sections ---- */

struct pair;
struct pair_transport;

struct pair_run {
	struct pair *pair;
	uint32_t mode, window, pause_us, read_bytes; /* as in struct pair_order */
};

enum exit_code ring_start_pair(const struct pair_transport *transport, struct pair **ret);

/* Context: struct pair_run. */
contender_fn ring_run_pair;
/* Context: struct echo. */
contender_fn ring_run_echo;

#endif
