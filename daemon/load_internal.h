/* A load; shared by load.c (what the file says, sizes, the thread) and load_weights.c. */
#ifndef TOKENRING_DAEMON_LOAD_INTERNAL_H
#define TOKENRING_DAEMON_LOAD_INTERNAL_H

#include <pthread.h>

#include "daemon/load.h"
#include "daemon/stream/stream.h"

struct load {
	struct load_config config;
	struct load_model model;
	struct load_times times;
	struct stream *stream;
	pthread_t thread, tokenizer_thread;
	bool joined, has_tokenizer_thread;
	int tokenizer_error;
	shared_u32 phase, cancelled;
	shared_u64 bytes_done;
	char why[1024], tokenizer_why[1024];
};

/* From the file to the program; a negative errno with a sentence in why. */
int load_copy_weights(struct load *);

#endif
