#include "numa/observe.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numa/topology_internal.h"

/* ---- memory ---- */

static struct observed_memory *find_range(const struct observe_range *ranges, size_t n, uintptr_t start,
					  struct observed_memory *memories, uint32_t n_slots)
{
	for (size_t i = 0; i < n; i++)
		if (start >= ranges[i].base && start - ranges[i].base < ranges[i].bytes &&
		    ranges[i].slot < n_slots)
			return &memories[ranges[i].slot];
	return NULL;
}

/* "7f00 bind:1 anon=3 dirty=3 N1=3 kernelpagesize_kB=4": pages are counted in the unit at the end. */
static void count_nodes(const char *line, struct observed_memory *memory)
{
	uint64_t kib = 4;

	parse_value(line, "kernelpagesize_kB=", &kib);
	for (const char *at = strstr(line, " N"); at; at = strstr(at + 1, " N")) {
		char *end;
		unsigned long node = strtoul(at + 2, &end, 10);

		if (end == at + 2 || *end != '=' || node >= TOPOLOGY_NODES_MAX)
			continue;
		memory->on_node[node] += strtoull(end + 1, NULL, 10) * kib * 1024;
	}
}

/* False: the kernel knows no nodes. */
static bool read_numa_maps(const char *process, const struct observe_range *ranges, size_t n,
			   struct observed_memory *memories, uint32_t n_slots)
{
	char path[PATH_MAX], *line = NULL;
	size_t capacity = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/numa_maps", process);
	file = fopen(path, "re");
	if (!file)
		return false;
	while (getline(&line, &capacity, file) > 0) {
		struct observed_memory *memory =
		    find_range(ranges, n, strtoull(line, NULL, 16), memories, n_slots);

		if (memory)
			count_nodes(line, memory);
	}
	free(line);
	fclose(file);
	return true;
}

static void count_pages(const char *line, struct observed_memory *memory)
{
	static const char *const resident[] = {"Rss:", "Private_Hugetlb:", "Shared_Hugetlb:"};
	static const char *const huge[] = {
	    "AnonHugePages:", "ShmemPmdMapped:", "Private_Hugetlb:", "Shared_Hugetlb:"};
	uint64_t kib;

	for (size_t i = 0; i < sizeof(resident) / sizeof(*resident); i++)
		if (parse_value(line, resident[i], &kib))
			memory->bytes += kib * 1024;
	for (size_t i = 0; i < sizeof(huge) / sizeof(*huge); i++)
		if (parse_value(line, huge[i], &kib))
			memory->huge_bytes += kib * 1024;
	if (parse_value(line, "KernelPageSize:", &kib) && kib * 1024 > memory->page_bytes)
		memory->page_bytes = kib * 1024;
}

/* Lines "7f00-7f10 rw-p ..." begin a mapping, the others belong to it. */
static int read_smaps(const char *process, const struct observe_range *ranges, size_t n,
		      struct observed_memory *memories, uint32_t n_slots)
{
	struct observed_memory *memory = NULL;
	char path[PATH_MAX], *line = NULL;
	size_t capacity = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/smaps", process);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (getline(&line, &capacity, file) > 0) {
		char *end;
		unsigned long long start = strtoull(line, &end, 16);

		if (end != line && *end == '-')
			memory = find_range(ranges, n, start, memories, n_slots);
		else if (memory)
			count_pages(line, memory);
	}
	free(line);
	fclose(file);
	return 0;
}

int observe_memory(const char *process, const struct observe_range *ranges, size_t n,
		   struct observed_memory *ret, uint32_t n_slots)
{
	int error;

	memset(ret, 0, n_slots * sizeof(*ret));
	error = read_smaps(process, ranges, n, ret, n_slots);
	if (error)
		return error;
	if (!read_numa_maps(process, ranges, n, ret, n_slots))
		for (uint32_t slot = 0; slot < n_slots; slot++)
			ret[slot].on_node[0] = ret[slot].bytes;
	return 0;
}

/* ---- threads ---- */

/* Field 39 of stat, the CPU; the name in brackets before it may hold anything. */
static int last_cpu(const char *stat)
{
	const char *at = strrchr(stat, ')');

	for (int field = 2; at && field < 39; field++)
		at = strchr(at + 1, ' ');
	return at ? atoi(at + 1) : -1;
}

static bool read_thread(const char *process, const char *id, struct observed_thread *ret)
{
	struct observed_thread thread = {.id = atoi(id), .last_cpu = -1};
	char text[TEXT_BYTES];
	const char *line;

	if (!read_text(text, "%s/task/%s/status", process, id))
		return false;
	line = parse_line(text, "Cpus_allowed_list:");
	if (!line || !parse_list(line, &thread.allowed))
		return false;
	line = parse_line(text, "Name:");
	if (line)
		snprintf(thread.name, sizeof(thread.name), "%.*s", (int)strcspn(line, "\n"), line);
	if (read_text(text, "%s/task/%s/stat", process, id))
		thread.last_cpu = last_cpu(text);
	*ret = thread;
	return true;
}

int observe_threads(const char *process, struct observed_thread *ret, unsigned max)
{
	char path[PATH_MAX];
	const struct dirent *entry;
	unsigned n = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/task", process);
	folder = opendir(path);
	if (!folder)
		return -errno;
	while (n < max && (entry = readdir(folder)) != NULL)
		if (entry->d_name[0] != '.' && read_thread(process, entry->d_name, &ret[n]))
			n++;
	closedir(folder);
	return (int)n;
}
