#include "shm/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "shm/resident.h"

/* Valid at a run's first unit. */
struct arena_run {
	uint32_t length : 31, is_free : 1; /* in units */
	uint32_t before;                   /* length of the run that ends here; 0 at the first */
	uint32_t next, previous;           /* in the list of its class, while free */
};

/* How many runs of the request's own class are tried when no larger class has one. */
enum { OWN_CLASS_TRIES = 8 };

static unsigned class_of(uint32_t length)
{
	unsigned power;

	if (length < 8)
		return length;
	power = 31 - (unsigned)__builtin_clz(length);
	return (power - 2) * 8 + ((length >> (power - 3)) & 7);
}

/* The least class whose every run is at least `length` long. */
static unsigned class_above(uint32_t length)
{
	if (length < 8)
		return length;
	return class_of(length + (1u << (28 - (unsigned)__builtin_clz(length))) - 1);
}

static void list_insert(struct arena *arena, uint32_t first)
{
	unsigned class = class_of(arena->runs[first].length);
	uint32_t head = arena->heads[class];

	arena->runs[first].is_free = 1;
	arena->runs[first].next = head;
	arena->runs[first].previous = ARENA_NONE;
	if (head != ARENA_NONE)
		arena->runs[head].previous = first;
	arena->heads[class] = first;
	arena->present[class / 64] |= UINT64_C(1) << class % 64;
}

static void list_remove(struct arena *arena, uint32_t first)
{
	struct arena_run *run = &arena->runs[first];
	unsigned class = class_of(run->length);

	run->is_free = 0;
	if (run->next != ARENA_NONE)
		arena->runs[run->next].previous = run->previous;
	if (run->previous != ARENA_NONE)
		arena->runs[run->previous].next = run->next;
	else
		arena->heads[class] = run->next;
	if (arena->heads[class] == ARENA_NONE)
		arena->present[class / 64] &= ~(UINT64_C(1) << class % 64);
}

/* Writes a run's length at its first unit and tells the run behind it. */
static void run_set(struct arena *arena, uint32_t first, uint32_t length)
{
	arena->runs[first].length = length & INT32_MAX;
	arena->runs[first + length].before = length;
}

int arena_init(struct arena *arena, uint64_t n_units)
{
	if (n_units > INT32_MAX)
		return -EINVAL;
	*arena = (struct arena){.n_units = (uint32_t)n_units};
	arena->runs = resident_calloc(n_units + 1, sizeof *arena->runs);
	if (!arena->runs)
		return -ENOMEM;
	/* Touched here, so that no later call meets a page fault. */
	for (uint64_t unit = 0; unit <= n_units; unit++)
		arena->runs[unit].next = arena->runs[unit].previous = ARENA_NONE;
	for (unsigned class = 0; class < ARENA_CLASSES; class ++)
		arena->heads[class] = ARENA_NONE;
	if (n_units == 0)
		return 0;
	run_set(arena, 0, arena->n_units);
	list_insert(arena, 0);
	return 0;
}

void arena_destroy(struct arena *arena)
{
	free(arena->runs);
	*arena = (struct arena){0};
}

static uint32_t find_in_larger_class(const struct arena *arena, uint32_t length)
{
	unsigned class = class_above(length), word = class / 64;
	uint64_t bits = arena->present[word] & (UINT64_MAX << class % 64);

	while (bits == 0) {
		if (++word == sizeof arena->present / sizeof arena->present[0])
			return ARENA_NONE;
		bits = arena->present[word];
	}
	return arena->heads[word * 64 + (unsigned)__builtin_ctzll(bits)];
}

static uint32_t find_in_own_class(const struct arena *arena, uint32_t length)
{
	uint32_t first = arena->heads[class_of(length)];

	for (int tries = 0; tries < OWN_CLASS_TRIES && first != ARENA_NONE; tries++) {
		if (arena->runs[first].length >= length)
			return first;
		first = arena->runs[first].next;
	}
	return ARENA_NONE;
}

uint32_t arena_take(struct arena *arena, uint32_t n_units)
{
	uint32_t first, rest;

	if (n_units == 0 || n_units > arena->n_units)
		return ARENA_NONE;
	first = find_in_larger_class(arena, n_units);
	if (first == ARENA_NONE)
		first = find_in_own_class(arena, n_units);
	if (first == ARENA_NONE)
		return ARENA_NONE;
	list_remove(arena, first);
	rest = arena->runs[first].length - n_units;
	if (rest) {
		run_set(arena, first, n_units);
		run_set(arena, first + n_units, rest);
		list_insert(arena, first + n_units);
	}
	return first;
}

void arena_give(struct arena *arena, uint32_t first)
{
	uint32_t length = arena->runs[first].length, behind = first + length,
		 before = arena->runs[first].before;

	if (behind < arena->n_units && arena->runs[behind].is_free) {
		list_remove(arena, behind);
		length += arena->runs[behind].length;
	}
	if (before && arena->runs[first - before].is_free) {
		first -= before;
		list_remove(arena, first);
		length += before;
	}
	run_set(arena, first, length);
	list_insert(arena, first);
}

uint32_t arena_longest(const struct arena *arena)
{
	uint32_t longest = 0;

	for (unsigned class = 0; class < ARENA_CLASSES; class ++)
		for (uint32_t run = arena->heads[class]; run != ARENA_NONE; run = arena->runs[run].next)
			if (arena->runs[run].length > longest)
				longest = arena->runs[run].length;
	return longest;
}
