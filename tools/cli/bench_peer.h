/* Another engine beside ours in the same benchmark: a child process that decodes when it is asked to. */
#ifndef TOKENRING_TOOLS_CLI_BENCH_PEER_H
#define TOKENRING_TOOLS_CLI_BENCH_PEER_H

#include "tools/cli/bench.h"

struct peer;

/* Starts llama_peer.py with the python of the options and waits until it has loaded the model. Complains on
 * failure. */
enum exit_code peer_start(const struct bench *bench, struct peer **ret);

/* Tokens a second of one answer of n tokens. Complains on failure. */
enum exit_code peer_decode(struct peer *peer, unsigned n, double *ret_rate);

/* What runs: engine, version, threads. */
const char *peer_name(const struct peer *peer);

/* Ends the process and frees. NULL is allowed. */
void peer_stop(struct peer *peer);

#endif
