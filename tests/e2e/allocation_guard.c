/* Preloaded into the daemon: an allocation by a thread that has promised not to allocate
 * (daemon/engine/guard.h) aborts. With TOKENRING_TRIP_GUARD set the promise itself allocates, which shows
 * that the guard works. */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void tokenring_allocation_guard(int forbid);

/* Initial-exec: reaching it must not allocate. */
static __thread bool forbidden __attribute__((tls_model("initial-exec")));

static void check(void)
{
	static const char sentence[] = "allocation guard: a thread allocates that must not\n";

	if (!forbidden)
		return;
	forbidden = false;
	if (write(STDERR_FILENO, sentence, strlen(sentence)) > 0)
		abort();
	abort();
}

__attribute__((visibility("default"))) void tokenring_allocation_guard(int forbid)
{
	void *volatile tripped; /* volatile: a compiler may leave out a malloc that is only freed */

	forbidden = forbid;
	if (!forbid || !getenv("TOKENRING_TRIP_GUARD"))
		return;
	tripped = malloc(1);
	free(tripped);
}

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
	check();
	return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t bytes)
{
	check();
	return __libc_calloc(n, bytes);
}

__attribute__((visibility("default"))) void *realloc(void *old, size_t bytes)
{
	check();
	return __libc_realloc(old, bytes);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t bytes)
{
	check();
	return __libc_memalign(alignment, bytes);
}

__attribute__((visibility("default"))) int posix_memalign(void **ret, size_t alignment, size_t bytes)
{
	check();
	*ret = __libc_memalign(alignment, bytes);
	return *ret ? 0 : 12;
}
