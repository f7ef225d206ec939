#include "tests/conformance/fence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, UNTOUCHED = 0xa5 };

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

void *fence_alloc(size_t bytes, size_t align)
{
	size_t used = round_up(bytes, align), pages = round_up(used, PAGE);
	uint8_t *map = mmap(NULL, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(map != MAP_FAILED);
	assert_int_equal(pages ? mprotect(map + PAGE, pages, PROT_READ | PROT_WRITE) : 0, 0);
	uint8_t *memory = map + PAGE + pages - used;
	memset(map + PAGE, UNTOUCHED, pages - used);
	memset(memory + bytes, UNTOUCHED, used - bytes);
	return memory;
}

static void check_untouched(const uint8_t *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (from[i] != UNTOUCHED)
			fail_msg("byte %zu of %zu beside the memory was written", i, bytes);
}

void fence_free(void *memory, size_t bytes, size_t align)
{
	size_t used = round_up(bytes, align), pages = round_up(used, PAGE);
	uint8_t *map = (uint8_t *)memory + used - pages - PAGE;

	check_untouched(map + PAGE, pages - used);
	check_untouched((uint8_t *)memory + bytes, used - bytes);
	munmap(map, pages + 2 * PAGE);
}

static void *map_fenced(void *context, enum backend_memory_use use, size_t bytes, bool touch, char *why,
			size_t why_bytes)
{
	return fence_alloc(bytes, PAGE);
}

static void unmap_fenced(void *context, void *memory, size_t bytes)
{
	fence_free(memory, bytes, PAGE);
}

const struct backend_memory fenced_memory = {map_fenced, unmap_fenced, NULL};
