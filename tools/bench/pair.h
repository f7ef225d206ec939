/* Two processes that send 64-byte messages to and fro over some transport: what a benchmark runs beside the
 * daemon, in turns with it.
 *
 * The pair takes orders from a descriptor, one slice of round trips each, and writes a struct floor_trips for
 * each to another. Between orders both processes sleep. */
#ifndef TOKENRING_TOOLS_BENCH_PAIR_H
#define TOKENRING_TOOLS_BENCH_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct floor_trips;

enum { PAIR_MESSAGE_BYTES = 64 };

enum pair_mode {
	PAIR_SPIN,   /* both ends poll */
	PAIR_BLOCK,  /* both ends block */
	PAIR_WAKE,   /* both block; the far end answers after `pause_us`; the time is that of the way back */
	PAIR_WINDOW, /* of pair_slots alone: both poll; `window` messages are under way; only the time of all
			is taken */
	PAIR_BATCH,  /* the same; both ends stay a little behind each other */
};

struct pair_order {
	uint32_t mode; /* enum pair_mode */
	int32_t near_cpu, far_cpu;
	uint32_t window, pause_us; /* pause: before each round trip (PAIR_WAKE: before each answer, too) */
	uint32_t read_bytes;       /* PAIR_WAKE: of memory that the far end reads before each answer */
	uint32_t n;
	double ns_per_tick, ticks_per_poll;
};

/* A transport keeps its state in its own file: a process has one pair at most. Calls return 0 or a negative
 * errno unless said otherwise. */
struct pair_transport {
	const char *name;
	int (*prepare)(void);      /* in the parent of both ends; NULL: nothing */
	int (*open)(bool is_near); /* in each end */
	/* One slice each; see pair_loops.h. */
	int (*near)(const struct pair_order *order, struct floor_trips *ret);
	int (*far)(const struct pair_order *order);
};

/* Forks the far end and serves orders until `orders` ends. Returns an exit code. */
int pair_serve(const struct pair_transport *transport, int orders, int results);

/* Zeroed memory that a process shares with those it forks; huge pages if there are some. NULL: none. */
void *pair_memory(size_t bytes);

extern const struct pair_transport pair_spsc, pair_slots, pair_blocks, pair_socket, pair_futex;

#ifdef __cplusplus
}
#endif

#endif
