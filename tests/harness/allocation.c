#include "tests/harness/allocation.h"

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static _Thread_local bool is_forbidden;

void allocation_forbid(bool forbidden)
{
	is_forbidden = forbidden;
}

bool allocation_checked(void)
{
	return !SANITIZED;
}

#if !SANITIZED
/* glibc's own entry points behind the public names. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void __libc_free(void *memory);
void *malloc(size_t bytes);
void *calloc(size_t n, size_t bytes);
void *realloc(void *memory, size_t bytes);
void free(void *memory);

static void check(void)
{
	static const char sentence[] = "a thread that must not allocate does\n";

	if (!is_forbidden)
		return;
	is_forbidden = false;
	if (write(2, sentence, sizeof sentence - 1) >= 0)
		__builtin_trap();
}

void *malloc(size_t bytes)
{
	check();
	return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	check();
	return __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
	check();
	return __libc_realloc(memory, bytes);
}

void free(void *memory)
{
	if (memory)
		check();
	__libc_free(memory);
}
#endif
