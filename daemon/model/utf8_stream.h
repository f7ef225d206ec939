/* Passes on a stream of bytes in whole UTF-8 characters: tokens end anywhere, terminals and JSON may not.
 *
 * Thread rule: one owner a stream.  Nothing allocates or blocks.  The output is well-formed UTF-8 whatever
 * comes in; each maximal subpart of an ill-formed sequence becomes one U+FFFD. */
#ifndef TOKENRING_MODEL_UTF8_STREAM_H
#define TOKENRING_MODEL_UTF8_STREAM_H

#include <stddef.h>

struct utf8_stream { /* all zero at the start */
	char held[4];
	unsigned n_held;
};

/* Room that feeding n bytes, or flushing with n = 0, may need. */
#define UTF8_STREAM_ROOM(n) (3 * ((size_t)(n) + 4))

/* Takes `bytes` bytes and writes every character that is complete; returns the bytes written. */
size_t utf8_stream_feed(struct utf8_stream *, const char *data, size_t bytes, char *out);

/* The stream ends: a character that was begun becomes U+FFFD.  Returns the bytes written; the stream starts
 * afresh. */
size_t utf8_stream_flush(struct utf8_stream *, char *out);

#endif
