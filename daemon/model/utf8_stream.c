#include "daemon/model/utf8_stream.h"

#include <string.h>

#include "daemon/model/utf8.h"

/* Writes what is complete in `text`, keeps a partial end in the stream, returns the bytes written. */
static size_t pass(struct utf8_stream *s, const char *text, size_t bytes, char *out)
{
	size_t whole = 0;
	for (size_t at = 0; at < bytes; at = whole) {
		enum utf8_status status;
		size_t n = utf8_first(text + at, bytes - at, &status);
		if (status == UTF8_PARTIAL)
			break;
		whole += n;
	}
	size_t written = utf8_clean(text, whole, out);
	s->n_held = (unsigned)(bytes - whole);
	memmove(s->held, text + whole, bytes - whole);
	return written;
}

size_t utf8_stream_feed(struct utf8_stream *s, const char *data, size_t bytes, char *out)
{
	size_t written = 0;
	/* A held part is completed byte by byte: at most three bytes until it is a character or broken. */
	while (s->n_held && bytes) {
		char joined[sizeof s->held];
		size_t n = s->n_held;
		memcpy(joined, s->held, n);
		joined[n] = *data++;
		bytes--;
		written += pass(s, joined, n + 1, out + written);
	}
	return bytes ? written + pass(s, data, bytes, out + written) : written;
}

size_t utf8_stream_flush(struct utf8_stream *s, char *out)
{
	size_t written = utf8_clean(s->held, s->n_held, out);
	s->n_held = 0;
	return written;
}
