#include "tools/cli/doctor_tree.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool read_file(const char *root, const char *path, char text[DOCTOR_TEXT_BYTES])
{
	char full[PATH_MAX];
	if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
		return false;
	struct stat at;
	if (stat(full, &at) < 0 || !S_ISREG(at.st_mode)) /* a FIFO in a copied tree would hang us */
		return false;
	FILE *file = fopen(full, "re");
	if (!file)
		return false;
	size_t bytes = fread(text, 1, DOCTOR_TEXT_BYTES - 1, file);
	bool good = !ferror(file);
	fclose(file);
	while (bytes && strchr(" \t\r\n", text[bytes - 1]))
		bytes--;
	text[bytes] = 0;
	return good && *text;
}

bool tree_text(const struct doctor_host *host, char text[DOCTOR_TEXT_BYTES], const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	va_start(args, format);
	vsnprintf(path, sizeof path, format, args);
	va_end(args);
	return read_file(host->root, path, text);
}

bool tree_number(const struct doctor_host *host, int64_t *ret, const char *format, ...)
{
	char path[PATH_MAX], text[DOCTOR_TEXT_BYTES], *end;
	va_list args;
	va_start(args, format);
	vsnprintf(path, sizeof path, format, args);
	va_end(args);
	if (!read_file(host->root, path, text))
		return false;
	int64_t number = strtoll(text, &end, 10);
	if (end == text)
		return false;
	*ret = number;
	return true;
}

bool list_next(const char **at, long *ret_first, long *ret_last)
{
	char *end;
	*at += strspn(*at, ", \t\n");
	long first = strtol(*at, &end, 10), last = first;
	if (end == *at)
		return false;
	if (*end == '-')
		last = strtol(end + 1, &end, 10);
	*at = end;
	*ret_first = first;
	*ret_last = last;
	return first >= 0 && last >= first && last <= LIST_ID_MAX;
}

bool list_has(const char *list, long id)
{
	long first, last;
	while (list_next(&list, &first, &last))
		if (id >= first && id <= last)
			return true;
	return false;
}

long list_count(const char *list)
{
	long n = 0, first, last;
	while (list_next(&list, &first, &last))
		n += last - first + 1;
	return n;
}

bool list_within(const char *inner, const char *outer)
{
	long first, last;
	while (list_next(&inner, &first, &last))
		for (long id = first; id <= last; id++)
			if (!list_has(outer, id))
				return false;
	return true;
}

void tree_online(const struct doctor_host *host, char text[DOCTOR_TEXT_BYTES])
{
	if (!tree_text(host, text, "/sys/devices/system/cpu/online"))
		strcpy(text, "0");
}

void tree_nodes(const struct doctor_host *host, char text[DOCTOR_TEXT_BYTES])
{
	if (!tree_text(host, text, "/sys/devices/system/node/online"))
		strcpy(text, "0");
}

/* The flags of the first CPU lie within the first page of /proc/cpuinfo. */
bool tree_is_virtual(const struct doctor_host *host)
{
	char text[DOCTOR_TEXT_BYTES];
	if (!tree_text(host, text, "/proc/cpuinfo"))
		return false;
	return strstr(text, " hypervisor ") || strstr(text, " hypervisor\n");
}

void chosen_word(const char *text, char *ret, size_t bytes)
{
	const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
	ret[0] = 0;
	if (close)
		snprintf(ret, bytes, "%.*s", (int)(close - open - 1), open + 1);
}
