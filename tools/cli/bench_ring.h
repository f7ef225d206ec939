/* tokenring bench ring: what its sections share. Each section is one file, bench_ring_SECTION.c. */
#ifndef TOKENRING_TOOLS_CLI_BENCH_RING_H
#define TOKENRING_TOOLS_CLI_BENCH_RING_H

#include <sys/types.h>

#include "tools/bench_floor.h"
#include "tools/cli/bench.h"

struct ring {
	struct bench bench;
	struct floor_lines *lines;
	int near_cpu, far_cpu; /* this program's, the daemon's */
	double ns_per_tick;
};

/* An echo at a time on one client. */
struct echo {
	struct tr_client *client;
	unsigned n_tokens; /* 1 to 8 */
	bool waits;        /* by tr_wait */
	uint32_t pause_us; /* before each, outside the time */
};

/* Echoes one after the other; each answer must be its own. Negative errno. */
int echo_trips(const struct echo *echo, uint64_t n, double ns_per_tick, double ticks_per_poll,
	       struct floor_trips *ret);
enum exit_code complain_echo(struct tr_client *client, int error);

pid_t ring_daemon(const struct ring *ring);

/* Opens another client of the same daemon; spin_ns as in tr_open_options. Complains on failure. */
enum exit_code ring_open_client(const struct ring *ring, uint32_t spin_ns, struct tr_client **ret);

/* Each measures its rows and prints them. */
enum exit_code ring_bench_echo(struct ring *ring);
enum exit_code ring_bench_throughput(struct ring *ring);
enum exit_code ring_bench_idle(struct ring *ring);
enum exit_code ring_bench_parked(struct ring *ring);
enum exit_code ring_bench_asleep(struct ring *ring);
enum exit_code ring_bench_prefill(struct ring *ring);
enum exit_code ring_bench_payload(struct ring *ring);
enum exit_code ring_bench_paced(struct ring *ring);
enum exit_code ring_bench_peers(struct ring *ring);

#endif
