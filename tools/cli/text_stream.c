#include "tools/cli/text_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1024 };

static int send(struct text_stream *s, const char *text, size_t bytes)
{
	char out[UTF8_STREAM_ROOM(CHUNK_BYTES)];
	for (size_t i = 0; i < bytes; i += CHUNK_BYTES) {
		size_t n = bytes - i < CHUNK_BYTES ? bytes - i : CHUNK_BYTES;
		size_t written = utf8_stream_feed(&s->characters, text + i, n, out);
		int r = written ? s->sink(s->context, out, written) : 0;
		if (r)
			return r;
	}
	return 0;
}

static int flush(struct text_stream *s)
{
	char out[UTF8_STREAM_ROOM(0)];
	size_t written = utf8_stream_flush(&s->characters, out);
	return written ? s->sink(s->context, out, written) : 0;
}

/* Where the first stop string begins; held_bytes if there is none. */
static size_t find_stop(const struct text_stream *s)
{
	size_t first = s->held_bytes;
	for (size_t i = 0; i < s->n_stops; i++) {
		const char *at = memmem(s->held, s->held_bytes, s->stops[i], strlen(s->stops[i]));
		if (at && (size_t)(at - s->held) < first)
			first = (size_t)(at - s->held);
	}
	return first;
}

/* Where the longest end of the text begins that may still become a stop string. */
static size_t find_undecided(const struct text_stream *s)
{
	size_t first = s->held_bytes;
	for (size_t i = 0; i < s->n_stops; i++) {
		size_t length = strlen(s->stops[i]);
		size_t at = s->held_bytes >= length ? s->held_bytes - length + 1 : 0;
		while (at < first && memcmp(s->held + at, s->stops[i], s->held_bytes - at) != 0)
			at++;
		if (at < first)
			first = at;
	}
	return first;
}

static int hold(struct text_stream *s, const char *text, size_t bytes)
{
	if (s->held_bytes + bytes > s->capacity) {
		size_t capacity = 2 * (s->held_bytes + bytes);
		char *held = realloc(s->held, capacity);
		if (!held)
			return -ENOMEM;
		s->held = held;
		s->capacity = capacity;
	}
	if (bytes)
		memcpy(s->held + s->held_bytes, text, bytes);
	s->held_bytes += bytes;
	return 0;
}

int text_stream_push(struct text_stream *s, const char *text, size_t bytes)
{
	if (s->stopped)
		return 0;
	int r = hold(s, text, bytes);
	if (r)
		return r;
	size_t stop = find_stop(s);
	s->stopped = stop < s->held_bytes;
	size_t decided = s->stopped ? stop : find_undecided(s);
	r = send(s, s->held, decided);
	if (s->stopped)
		return r ? r : flush(s);
	s->held_bytes -= decided;
	if (s->held_bytes)
		memmove(s->held, s->held + decided, s->held_bytes);
	return r;
}

int text_stream_end(struct text_stream *s)
{
	if (s->stopped)
		return 0;
	int r = send(s, s->held, s->held_bytes);
	s->held_bytes = 0;
	return r ? r : flush(s);
}

void text_stream_free(struct text_stream *s)
{
	free(s->held);
	s->held = NULL;
	s->held_bytes = s->capacity = 0;
}
