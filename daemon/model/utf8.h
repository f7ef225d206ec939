/* UTF-8 validity, after table 3-7 of the Unicode standard.  Pure functions. */
#ifndef TOKENRING_MODEL_UTF8_H
#define TOKENRING_MODEL_UTF8_H

#include <stddef.h>

enum utf8_status {
	UTF8_CHARACTER, /* one well-formed character */
	UTF8_PARTIAL,   /* the text ends inside a character that more bytes could complete */
	UTF8_BROKEN,    /* a maximal subpart of an ill-formed sequence */
};

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Looks at the first character of `bytes` >= 1 bytes and says how many bytes it (or the ill-formed part)
 * takes. */
size_t utf8_first(const char *text, size_t bytes, enum utf8_status *ret);

/* Copies text with every ill-formed part replaced by U+FFFD and returns the bytes written; `out` has room for
 * 3 * bytes, or is NULL to count only. */
size_t utf8_clean(const char *text, size_t bytes, char *out);

#endif
