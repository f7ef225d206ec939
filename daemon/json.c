#include "daemon/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void put(struct json *json, const char *format, ...)
{
	size_t left = json->used < json->capacity ? json->capacity - json->used : 0;
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(json->text + (left ? json->used : 0), left, format, arguments);
	va_end(arguments);
	json->used += n > 0 ? (size_t)n : 0;
}

void put_text(struct json *json, const char *key, const char *text)
{
	put(json, "\"%s\":\"", key);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
			put(json, "\\u%04x", c);
		else
			put(json, "%c", c);
	}
	put(json, "\",");
}

void put_number(struct json *json, const char *key, uint64_t value)
{
	put(json, "\"%s\":%" PRIu64 ",", key, value);
}

void put_counter(struct json *json, const char *key, const shared_u64 *value)
{
	put_number(json, key, load_relaxed_u64(value));
}

void close_object(struct json *json, const char *after)
{
	json->used--;
	put(json, "}%s", after);
}

void close_array(struct json *json, const char *after)
{
	if (json->used && json->used <= json->capacity && json->text[json->used - 1] == ',')
		json->used--;
	put(json, "]%s", after);
}
