#include "daemon/model/utf8.h"

#include <stdbool.h>
#include <string.h>

struct lead {
	unsigned length;    /* of the character, 0 if no character begins so */
	unsigned low, high; /* of the second byte */
};

static struct lead classify(unsigned char byte)
{
	if (byte < 0x80)
		return (struct lead){1, 0, 0};
	if (byte < 0xc2)
		return (struct lead){0, 0, 0};
	if (byte < 0xe0)
		return (struct lead){2, 0x80, 0xbf};
	if (byte < 0xf0) /* no overlong forms, no surrogates */
		return (struct lead){3, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
	if (byte < 0xf5) /* no overlong forms, nothing past U+10FFFF */
		return (struct lead){4, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
	return (struct lead){0, 0, 0};
}

size_t utf8_first(const char *text, size_t bytes, enum utf8_status *ret)
{
	struct lead lead = classify((unsigned char)text[0]);
	*ret = UTF8_BROKEN;
	if (lead.length == 0)
		return 1;
	for (size_t i = 1; i < lead.length; i++) {
		if (i == bytes) {
			*ret = UTF8_PARTIAL;
			return i;
		}
		unsigned char byte = (unsigned char)text[i];
		if (byte < (i == 1 ? lead.low : 0x80) || byte > (i == 1 ? lead.high : 0xbf))
			return i;
	}
	*ret = UTF8_CHARACTER;
	return lead.length;
}

size_t utf8_clean(const char *text, size_t bytes, char *out)
{
	size_t written = 0;
	for (size_t at = 0; at < bytes;) {
		enum utf8_status status;
		size_t n = utf8_first(text + at, bytes - at, &status);
		bool good = status == UTF8_CHARACTER;
		size_t grows = good ? n : sizeof UTF8_REPLACEMENT - 1;
		if (out)
			memcpy(out + written, good ? text + at : UTF8_REPLACEMENT, grows);
		written += grows;
		at += n;
	}
	return written;
}
