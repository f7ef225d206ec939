/* A pair of processes (tools/bench/pair.h) as a child of the benchmark: started once, asked for slices. */
#ifndef TOKENRING_TOOLS_CLI_BENCH_PAIR_H
#define TOKENRING_TOOLS_CLI_BENCH_PAIR_H

#include "tools/bench/pair.h"
#include "tools/bench_floor.h"

struct pair;

/* Forks a child that serves a transport of this program. Negative errno. */
int pair_start(const struct pair_transport *transport, struct pair **ret);

/* The same with a program that serves orders on its standard input. -ENOENT: there is no such program. */
int pair_start_program(const char *path, struct pair **ret);

/* One slice. -ETIMEDOUT: the pair hangs; -EPIPE: it ended. It is of no use after either. */
int pair_run(struct pair *pair, const struct pair_order *order, struct floor_trips *ret);

/* Ends the processes and frees. NULL is allowed. */
void pair_stop(struct pair *pair);

#endif
