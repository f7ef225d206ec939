/* The small texts of /proc and /sys that describe a machine.
 *
 * Pure functions of a NUL-terminated text; any bytes are allowed in it. Out-parameters stay untouched where
 * false is returned. Formats: Linux Documentation/admin-guide/cputopology.rst (lists), numastat(7) and
 * proc_meminfo(5) ("Key:  123 kB"), cgroup-v2.rst (cpu.max). */
#ifndef TOKENRING_NUMA_PARSE_H
#define TOKENRING_NUMA_PARSE_H

#include <stdbool.h>
#include <stdint.h>

enum { PARSE_IDS_MAX = 8192 /* NR_CPUS of the largest kernels */ };

struct id_set {
	uint64_t word[PARSE_IDS_MAX / 64];
};

static inline bool id_set_has(const struct id_set *set, long id)
{
	return id >= 0 && id < PARSE_IDS_MAX && set->word[id / 64] >> id % 64 & 1;
}

static inline void id_set_add(struct id_set *set, long id)
{
	if (id >= 0 && id < PARSE_IDS_MAX)
		set->word[id / 64] |= UINT64_C(1) << id % 64;
}

uint32_t id_set_count(const struct id_set *set);

/* -1: the set is empty. */
long id_set_first(const struct id_set *set);

/* "0-3,8", with or without a newline. False: no list, an empty one, or an id of PARSE_IDS_MAX or more. */
bool parse_list(const char *text, struct id_set *ret);

/* A whole number: decimal, or hexadecimal after 0x; nothing but white space may follow. */
bool parse_number(const char *text, int64_t *ret);

/* The number after `key` and white space, wherever the key stands: "MemTotal:  123 kB". */
bool parse_value(const char *text, const char *key, uint64_t *ret);

/* The text of the line that begins with `key`, without leading white space. NULL: there is none. It ends with
 * the text or the next newline. */
const char *parse_line(const char *text, const char *key);

/* Up to `max` numbers separated by blanks; returns how many. Those above 65535 end the row. */
uint32_t parse_row(const char *text, uint16_t *ret, uint32_t max);

/* "max 100000" or "150000 100000" of cgroup version 2: CPU time a second, in CPUs. False: no limit. */
bool parse_cpu_max(const char *text, double *ret);

#endif
