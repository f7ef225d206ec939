/* JSON as it is written: text that grows, one call a member, each with the comma after it.
 *
 * Thread rule: one thread at a time for each text. */
#ifndef TOKENRING_DAEMON_JSON_H
#define TOKENRING_DAEMON_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "shm/atomics.h"

/* `used` may pass `capacity`, then nothing more is written. */
struct json {
	char *text;
	size_t capacity, used;
};

__attribute__((format(printf, 2, 3))) void put(struct json *json, const char *format, ...);

/* A string with what JSON forbids escaped; bytes above 127 pass, the file names of this system are UTF-8. */
void put_text(struct json *json, const char *key, const char *text);

void put_number(struct json *json, const char *key, uint64_t value);
void put_counter(struct json *json, const char *key, const shared_u64 *value);

/* Ends an object that has a member: the comma after its last one becomes a brace. */
void close_object(struct json *json, const char *after);

/* Ends an array, which may be empty. */
void close_array(struct json *json, const char *after);

#endif
