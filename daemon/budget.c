#include "daemon/budget.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, TEXT_BYTES = 65536 };

/* Reads a small file; returns its length, 0 if it cannot be read. */
static size_t read_text(const char *path, char *text, size_t capacity)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n = 0;
	ssize_t got;

	if (fd < 0)
		return 0;
	while (n < capacity - 1 && (got = read(fd, text + n, capacity - 1 - n)) > 0)
		n += (size_t)got;
	close(fd);
	text[n] = '\0';
	return n;
}

static void lower(struct budget *budget, uint64_t bytes, const char *source)
{
	if (bytes >= budget->bytes)
		return;
	budget->bytes = bytes;
	snprintf(budget->source, sizeof(budget->source), "%s", source);
}

static void read_meminfo(const char *root, struct budget *budget)
{
	char path[PATH_BYTES], text[TEXT_BYTES];
	const char *line;

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (!read_text(path, text, sizeof(text)))
		return;
	line = strstr(text, "MemAvailable:");
	if (line)
		lower(budget, strtoull(line + strlen("MemAvailable:"), NULL, 10) * 1024, "MemAvailable");
}

/* The limit in `folder` and in each folder above it, up to `mount` itself: a child never has more than its
 * parent. In a container the path may not exist below the mount; then the walk upward still finds the
 * container's own. */
static void read_limits(const char *mount, const char *folder, const char *file, struct budget *budget)
{
	char path[PATH_BYTES], at[PATH_BYTES], text[64];
	char *slash;

	snprintf(at, sizeof(at), "%s", folder);
	for (;;) {
		int n = snprintf(path, sizeof(path), "%s%s/%s", mount, at, file);

		/* "max" is no number: version 2's word for no limit. */
		if (n < (int)sizeof(path) && read_text(path, text, sizeof(text)) && *text >= '0' &&
		    *text <= '9')
			lower(budget, strtoull(text, NULL, 10), "cgroup limit");
		slash = strrchr(at, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

static bool lists_memory(const char *controllers, const char *end)
{
	while (controllers < end) {
		size_t n = strcspn(controllers, ",:");

		if (n == strlen("memory") && !strncmp(controllers, "memory", n))
			return true;
		controllers += n + 1;
	}
	return false;
}

/* A line is HIERARCHY:CONTROLLERS:PATH; version 2 has hierarchy 0 and no controllers. Source: cgroups(7). */
static void read_cgroup_line(const char *root, char *line, struct budget *budget)
{
	char mount[PATH_BYTES];
	char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!path)
		return;
	if (path == controllers + 1) {
		snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup", root);
		read_limits(mount, path + 1, "memory.max", budget);
		snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/unified", root);
		read_limits(mount, path + 1, "memory.max", budget);
	} else if (lists_memory(controllers + 1, path)) {
		snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/memory", root);
		read_limits(mount, path + 1, "memory.limit_in_bytes", budget);
	}
}

static void read_cgroups(const char *root, struct budget *budget)
{
	char path[PATH_BYTES], text[TEXT_BYTES];
	char *rest = NULL;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	if (!read_text(path, text, sizeof(text)))
		return;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		read_cgroup_line(root, line, budget);
}

int budget_read(const char *root, uint64_t memory_limit, struct budget *ret, char *why, size_t why_bytes)
{
	struct budget budget = {.bytes = UINT64_MAX};

	read_meminfo(root, &budget);
	read_cgroups(root, &budget);
	if (budget.bytes == UINT64_MAX) {
		snprintf(why, why_bytes, "cannot read how much memory there is from /proc");
		return -EIO;
	}
	if (memory_limit)
		lower(&budget, memory_limit, "option memory_limit");
	*ret = budget;
	return 0;
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

int budget_check(const struct budget *budget, const struct demand *demand, char *why, size_t why_bytes)
{
	if (demand_total(demand) <= budget->bytes)
		return 0;
	snprintf(why, why_bytes,
		 "the model does not fit: %.1f MiB of weights, %.1f MiB of KV cache, %.1f MiB of scratch and "
		 "%.1f MiB of channels and queues are %.1f MiB, and the %s is %.1f MiB; lower kv_tokens, "
		 "max_batch_sequences, max_clients, arena_bytes or max_queue, or take a smaller model",
		 mib(demand->weights), mib(demand->kv), mib(demand->scratch), mib(demand->channels),
		 mib(demand_total(demand)), budget->source, mib(budget->bytes));
	return -ENOMEM;
}
