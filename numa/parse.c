#include "numa/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t id_set_count(const struct id_set *set)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < PARSE_IDS_MAX / 64; i++)
		n += (uint32_t)__builtin_popcountll(set->word[i]);
	return n;
}

long id_set_first(const struct id_set *set)
{
	for (uint32_t i = 0; i < PARSE_IDS_MAX / 64; i++)
		if (set->word[i])
			return (long)(64 * i) + __builtin_ctzll(set->word[i]);
	return -1;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits only: no sign, no space, as strtol would take them. */
static bool read_id(const char **at, long *ret)
{
	long value = 0;

	if (!is_digit(**at))
		return false;
	for (; is_digit(**at); (*at)++) {
		value = value * 10 + (**at - '0');
		if (value >= PARSE_IDS_MAX)
			return false;
	}
	*ret = value;
	return true;
}

bool parse_list(const char *text, struct id_set *ret)
{
	struct id_set set = {{0}};
	long first, last;

	for (;; text++) {
		if (!read_id(&text, &first))
			return false;
		last = first;
		if (*text == '-' && (text++, !read_id(&text, &last)))
			return false;
		if (last < first)
			return false;
		for (long id = first; id <= last; id++)
			id_set_add(&set, id);
		if (*text != ',')
			break;
	}
	if (*text && *text != '\n')
		return false;
	*ret = set;
	return true;
}

bool parse_number(const char *text, int64_t *ret)
{
	const char *digits = *text == '-' ? text + 1 : text;
	bool hexadecimal = digits[0] == '0' && digits[1] == 'x';
	char *end;
	long long value;

	if (!is_digit(*digits))
		return false;
	errno = 0;
	value = strtoll(text, &end, hexadecimal ? 16 : 10);
	if (errno || end[strspn(end, " \t\n")])
		return false;
	*ret = value;
	return true;
}

const char *parse_line(const char *text, const char *key)
{
	size_t length = strlen(key);

	while (text && strncmp(text, key, length) != 0) {
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	return text ? text + length + strspn(text + length, " \t") : NULL;
}

bool parse_value(const char *text, const char *key, uint64_t *ret)
{
	const char *at = strstr(text, key);
	unsigned long long value;

	if (!at)
		return false;
	at += strlen(key);
	at += strspn(at, " \t");
	if (!is_digit(*at))
		return false;
	errno = 0;
	value = strtoull(at, NULL, 10);
	if (errno)
		return false;
	*ret = value;
	return true;
}

uint32_t parse_row(const char *text, uint16_t *ret, uint32_t max)
{
	uint32_t n = 0;

	for (; n < max; n++) {
		char *end;
		unsigned long value;

		text += strspn(text, " \t");
		if (!is_digit(*text))
			break;
		value = strtoul(text, &end, 10);
		if (value > UINT16_MAX)
			break;
		ret[n] = (uint16_t)value;
		text = end;
	}
	return n;
}

bool parse_cpu_max(const char *text, double *ret)
{
	double limit, period;

	if (sscanf(text, "%lf %lf", &limit, &period) != 2 || !(period > 0) || !(limit > 0) ||
	    !(limit / period > 0 && limit / period < PARSE_IDS_MAX)) /* the quotient may underflow */
		return false;
	*ret = limit / period;
	return true;
}
