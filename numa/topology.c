#include "numa/topology.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 8192 };

/* ---- files ---- */

__attribute__((format(printf, 2, 3))) static bool read_text(char text[TEXT_BYTES], const char *format, ...)
{
	char path[PATH_MAX];
	va_list list;

	va_start(list, format);
	vsnprintf(path, sizeof path, format, list);
	va_end(list);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	size_t bytes = fread(text, 1, TEXT_BYTES - 1, file);
	fclose(file);
	text[bytes] = 0;
	return bytes > 0;
}

/* The next range of a list like "0-3,8"; false at its end. */
static bool next_range(const char **at, long *ret_first, long *ret_last)
{
	char *end;

	while (**at == ',' || **at == ' ' || **at == '\t')
		(*at)++;
	*ret_first = *ret_last = strtol(*at, &end, 10);
	if (end == *at)
		return false;
	*at = end;
	if (**at == '-') {
		*ret_last = strtol(*at + 1, &end, 10);
		*at = end;
	}
	return *ret_first >= 0 && *ret_last >= *ret_first;
}

/* ---- CPUs ---- */

static int read_allowed(const char *root, struct topology *topology)
{
	char text[TEXT_BYTES];
	long first, last;

	if (!read_text(text, "%s/proc/self/status", root))
		return -ENOENT;
	const char *at = strstr(text, "Cpus_allowed_list:");
	if (!at)
		return -ENOENT;
	at += strlen("Cpus_allowed_list:");
	while (next_range(&at, &first, &last))
		for (long id = first; id <= last; id++) {
			if (topology->n_cpus == TOPOLOGY_CPUS_MAX || id > INT_MAX)
				return -E2BIG;
			topology->cpu[topology->n_cpus++] =
			    (struct topology_cpu){.id = (int)id, .core = (int)id};
		}
	return topology->n_cpus ? 0 : -ENOENT;
}

static void read_core(const char *root, struct topology_cpu *cpu)
{
	char text[TEXT_BYTES];
	const char *at = text;
	long first, last;

	if (read_text(text, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root, cpu->id) &&
	    next_range(&at, &first, &last))
		cpu->core = (int)first;
}

static struct topology_cpu *find_cpu(struct topology *topology, long id)
{
	for (uint32_t i = 0; i < topology->n_cpus; i++)
		if (topology->cpu[i].id == id)
			return &topology->cpu[i];
	return NULL;
}

static void read_node(const char *root, int node, struct topology *topology)
{
	char text[TEXT_BYTES];
	const char *at = text;
	long first, last;

	if (!read_text(text, "%s/sys/devices/system/node/node%d/cpulist", root, node))
		return;
	while (next_range(&at, &first, &last))
		for (long id = first; id <= last; id++) {
			struct topology_cpu *cpu = find_cpu(topology, id);
			if (cpu)
				cpu->node = node;
		}
}

static void read_nodes(const char *root, struct topology *topology)
{
	char text[TEXT_BYTES];
	const char *at = text;
	long first, last;

	if (!read_text(text, "%s/sys/devices/system/node/online", root))
		return;
	while (next_range(&at, &first, &last))
		for (long node = first; node <= last && node < TOPOLOGY_CPUS_MAX; node++)
			read_node(root, (int)node, topology);
}

static bool same_core(const struct topology_cpu *a, const struct topology_cpu *b)
{
	return a->core == b->core;
}

static bool same_node(const struct topology_cpu *a, const struct topology_cpu *b)
{
	return a->node == b->node;
}

static uint32_t count_distinct(const struct topology *topology,
			       bool (*same)(const struct topology_cpu *, const struct topology_cpu *))
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < topology->n_cpus; i++) {
		uint32_t j = 0;
		while (j < i && !same(&topology->cpu[i], &topology->cpu[j]))
			j++;
		n += j == i;
	}
	return n;
}

/* ---- quota ---- */

static void lower_quota(double cpus, double *quota)
{
	if (cpus > 0 && (*quota == 0 || cpus < *quota))
		*quota = cpus;
}

/* "max 100000" or "150000 100000" */
static void read_cpu_max(const char *root, const char *group, double *quota)
{
	char text[TEXT_BYTES];
	double limit, period;

	if (read_text(text, "%s/sys/fs/cgroup%s/cpu.max", root, group) &&
	    sscanf(text, "%lf %lf", &limit, &period) == 2 && period > 0)
		lower_quota(limit / period, quota);
}

static void read_cfs_quota(const char *root, const char *group, double *quota)
{
	char limit[TEXT_BYTES], period[TEXT_BYTES];

	if (read_text(limit, "%s/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", root, group) &&
	    read_text(period, "%s/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", root, group) && atof(period) > 0)
		lower_quota(atof(limit) / atof(period), quota);
}

/* The group and everything above it limit the process. */
static void read_up(const char *root, char *group, void (*read)(const char *, const char *, double *),
		    double *quota)
{
	if (!strcmp(group, "/"))
		*group = 0;
	for (;;) {
		read(root, group, quota);
		char *slash = strrchr(group, '/');
		if (!slash)
			return;
		*slash = 0;
	}
}

/* Lines "id:controllers:path"; version 2 has no controllers. In a container the path may not exist below its
 * own /sys/fs/cgroup: the root of that mount is looked at in any case. */
static double read_quota(const char *root)
{
	char text[TEXT_BYTES], *line, *rest = text;
	double quota = 0;

	if (!read_text(text, "%s/proc/self/cgroup", root))
		return 0;
	while ((line = strsep(&rest, "\n")) != NULL) {
		char *controllers = strchr(line, ':'),
		     *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = 0;
		if (controllers[1] == 0)
			read_up(root, path, read_cpu_max, &quota);
		else if (!strcmp(controllers + 1, "cpu") || strstr(controllers, "cpu,"))
			read_up(root, path, read_cfs_quota, &quota);
	}
	return quota;
}

int topology_read(const char *root, struct topology *ret)
{
	struct topology *topology = calloc(1, sizeof *topology);
	int r = topology ? read_allowed(root, topology) : -ENOMEM;

	if (r == 0) {
		for (uint32_t i = 0; i < topology->n_cpus; i++)
			read_core(root, &topology->cpu[i]);
		read_nodes(root, topology);
		topology->n_cores = count_distinct(topology, same_core);
		topology->n_nodes = count_distinct(topology, same_node);
		topology->quota_cpus = read_quota(root);
		*ret = *topology;
	}
	free(topology);
	return r;
}

/* ---- placement ---- */

uint32_t topology_threads(const struct topology *topology)
{
	uint32_t threads = topology->n_cores;

	if (topology->quota_cpus > 0 && topology->quota_cpus < threads)
		threads = (uint32_t)topology->quota_cpus;
	return threads ? threads : 1;
}

/* How many allowed siblings of the same core come before CPU i. */
static uint32_t sibling_rank(const struct topology *topology, uint32_t i)
{
	uint32_t rank = 0;

	for (uint32_t j = 0; j < i; j++)
		rank += same_core(&topology->cpu[i], &topology->cpu[j]);
	return rank;
}

static uint32_t cores_of_node(const struct topology *topology, int node)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < topology->n_cpus; i++)
		n += topology->cpu[i].node == node && sibling_rank(topology, i) == 0;
	return n;
}

/* True if CPU a should be taken before CPU b. */
static bool sooner(const struct topology *topology, uint32_t a, uint32_t b)
{
	uint32_t rank_a = sibling_rank(topology, a), rank_b = sibling_rank(topology, b);
	int node_a = topology->cpu[a].node, node_b = topology->cpu[b].node;

	if (rank_a != rank_b)
		return rank_a < rank_b;
	if (node_a != node_b) {
		uint32_t cores_a = cores_of_node(topology, node_a), cores_b = cores_of_node(topology, node_b);
		return cores_a != cores_b ? cores_a > cores_b : node_a < node_b;
	}
	return a < b;
}

void topology_place(const struct topology *topology, uint32_t threads, int *ret_cpus)
{
	bool taken[TOPOLOGY_CPUS_MAX] = {false};

	for (uint32_t t = 0; t < threads; t++) {
		uint32_t best = TOPOLOGY_CPUS_MAX;
		for (uint32_t i = 0; i < topology->n_cpus; i++)
			if (!taken[i] && (best == TOPOLOGY_CPUS_MAX || sooner(topology, i, best)))
				best = i;
		ret_cpus[t] = best == TOPOLOGY_CPUS_MAX ? -1 : topology->cpu[best].id;
		if (best != TOPOLOGY_CPUS_MAX)
			taken[best] = true;
	}
}
