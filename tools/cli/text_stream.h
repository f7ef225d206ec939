/* Text that arrives in pieces leaves in whole characters and ends before the first stop string.
 *
 * A piece may end inside a UTF-8 character or inside a stop string: such an end is held back until it is
 * decided. What leaves is well-formed UTF-8 (daemon/model/utf8_stream.h). One thread at a time. */
#ifndef TOKENRING_TOOLS_CLI_TEXT_STREAM_H
#define TOKENRING_TOOLS_CLI_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/model/utf8_stream.h"

/* Returns 0 or a negative errno, which the stream hands on. */
typedef int (*text_sink)(void *context, const char *text, size_t bytes);

struct text_stream {
	const char *const *stops; /* (n_stops) not empty; the caller's */
	size_t n_stops;
	text_sink sink;
	void *context;
	bool stopped; /* a stop string was seen; nothing more leaves */
	char *held;   /* what may still become a stop string */
	size_t held_bytes, capacity;
	struct utf8_stream characters;
};

/* Takes a piece. Returns 0, -ENOMEM, or what the sink returned. */
int text_stream_push(struct text_stream *stream, const char *text, size_t bytes);

/* The end of the text: what is held back leaves too. Returns like push. */
int text_stream_end(struct text_stream *stream);

/* Frees what the stream holds, not the stream. */
void text_stream_free(struct text_stream *stream);

#endif
