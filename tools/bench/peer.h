/* The transport of a peer program, which each peer_NAME file defines. */
#ifndef TOKENRING_TOOLS_BENCH_PEER_H
#define TOKENRING_TOOLS_BENCH_PEER_H

#include "tools/bench/pair.h"

#ifdef __cplusplus
extern "C"
#else
extern
#endif
    const struct pair_transport pair_peer;

#endif
