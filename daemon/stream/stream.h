/* Reading large parts of a file, with several reads in flight.
 *
 * The caller lists extents; a team of readers fetches them in pieces, first to last, and each reader calls
 * back with what it has read while that is still in its caches.  A callback sees every piece exactly once,
 * several at once and in no order.  stream_pread.c is the team of preads; another way to read is another file
 * with these functions.
 *
 * Thread rule: one thread owns a stream and makes its calls; stream_cancel alone may come from any thread. */
#ifndef TOKENRING_STREAM_STREAM_H
#define TOKENRING_STREAM_STREAM_H

#include <stddef.h>
#include <stdint.h>

enum {
	STREAM_PIECE_BYTES = 1 << 20,       /* of a piece, unless one granule is larger */
	STREAM_REQUEST_BYTES = 1 << 20,     /* of one read request, always */
	STREAM_GRANULE_MAX_BYTES = 1 << 28, /* of a granule: bounds the buffers */
	STREAM_READERS_MAX = 64,
};

/* Part of a file.  Pieces are whole granules, save the last of an extent. */
struct stream_extent {
	uint64_t offset;        /* in the file */
	uint64_t bytes;         /* may be 0: no piece */
	uint64_t granule_bytes; /* at least 1; a row of a weight, or as many as the consumer wants together */
};

struct stream_piece {
	size_t extent; /* index into the caller's list */
	uint64_t at;   /* bytes from the extent's start, a multiple of its granule */
	size_t bytes;
	const void *data; /* 64-byte aligned, valid during the callback */
};

struct stream_options {
	unsigned readers; /* threads that read and call back; 0: 4 */
	const int *cpus;  /* (n_cpus) that the readers may run on */
	unsigned n_cpus;  /* 0: any */
};

struct stream;

/* Opens the file for reading.  `options` may be NULL.  Blocks on the file system.  open's errno, -EISDIR,
 * -EINVAL, -ENOMEM. */
int stream_open(const char *path, const struct stream_options *options, struct stream **ret, char *why,
		size_t why_bytes);

/* Reads the extents and calls `deliver` for each piece, on the readers' threads; anything but 0 from it ends
 * the reading and is returned, the first such answer.  Blocks until all is delivered; no callback runs any
 * more then.  -EIO: the file ends early or cannot be read, the sentence names the byte; -ECANCELED:
 * stream_cancel was called; -EINVAL: a bad extent; -ENOMEM, -EAGAIN: no memory, no thread. */
int stream_read(struct stream *, const struct stream_extent *extents, size_t n,
		int (*deliver)(void *context, const struct stream_piece *), void *context, char *why,
		size_t why_bytes);

/* Makes stream_read, now or later, return -ECANCELED soon: after the reads under way. */
void stream_cancel(struct stream *);

/* Accepts NULL; not while stream_read runs. */
void stream_close(struct stream *);

#endif
