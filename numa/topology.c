#include "numa/topology.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <stdlib.h>

#include "numa/topology_internal.h"

/* ---- files ---- */

static bool read_text_list(char text[TEXT_BYTES], const char *format, va_list list)
{
	char path[PATH_MAX];
	struct stat at;
	FILE *file;
	size_t bytes;

	vsnprintf(path, sizeof(path), format, list);
	if (stat(path, &at) < 0 || !S_ISREG(at.st_mode)) /* a FIFO in a copied tree would hang us */
		return false;
	file = fopen(path, "re");
	if (!file)
		return false;
	bytes = fread(text, 1, TEXT_BYTES - 1, file);
	fclose(file);
	text[bytes] = 0;
	return bytes > 0;
}

bool read_text(char text[TEXT_BYTES], const char *format, ...)
{
	va_list list;
	bool found;

	va_start(list, format);
	found = read_text_list(text, format, list);
	va_end(list);
	return found;
}

bool read_list(struct id_set *ret, const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list list;
	bool found;

	va_start(list, format);
	found = read_text_list(text, format, list) && parse_list(text, ret);
	va_end(list);
	return found;
}

bool read_number(int64_t *ret, const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list list;
	bool found;

	va_start(list, format);
	found = read_text_list(text, format, list) && parse_number(text, ret);
	va_end(list);
	return found;
}

/* ---- CPUs ---- */

static bool intersect(struct id_set *set, const struct id_set *with)
{
	struct id_set both;

	for (uint32_t i = 0; i < PARSE_IDS_MAX / 64; i++)
		both.word[i] = set->word[i] & with->word[i];
	if (id_set_first(&both) < 0)
		return false;
	*set = both;
	return true;
}

/* The kernel's list may name CPUs that are offline, or that could be plugged in one day. */
static int read_allowed(const char *root, struct id_set *ret)
{
	char text[TEXT_BYTES];
	struct id_set allowed, other;
	const char *line =
	    read_text(text, "%s/proc/self/status", root) ? parse_line(text, "Cpus_allowed_list:") : NULL;

	if (!line || !parse_list(line, &allowed))
		return -ENOENT;
	if (read_list(&other, "%s/sys/devices/system/cpu/online", root) && !intersect(&allowed, &other))
		return -ENOENT;
	if (read_cpuset(root, &other))
		intersect(&allowed, &other);
	*ret = allowed;
	return 0;
}

static int list_cpus(const char *root, struct topology *topology)
{
	struct id_set allowed;
	int r = read_allowed(root, &allowed);

	for (long id = 0; r == 0 && id < PARSE_IDS_MAX; id++) {
		if (!id_set_has(&allowed, id))
			continue;
		if (topology->n_cpus == TOPOLOGY_CPUS_MAX)
			return -E2BIG;
		topology->cpu[topology->n_cpus++] =
		    (struct topology_cpu){.id = (int)id, .core = (int)id, .package = -1, .cache = -1};
	}
	return r;
}

/* The cache of the highest level is the one that cores may share. */
static int read_cache(const char *root, int cpu)
{
	int64_t level, highest = 0;
	struct id_set shared;
	int found = -1;

	for (int index = 0; index < 8; index++) {
		if (!read_number(&level, "%s/sys/devices/system/cpu/cpu%d/cache/index%d/level", root, cpu,
				 index) ||
		    level <= highest ||
		    !read_list(&shared, "%s/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", root,
			       cpu, index))
			continue;
		highest = level;
		found = (int)id_set_first(&shared);
	}
	return found;
}

static void read_cpu(const char *root, struct topology_cpu *cpu, const struct id_set *efficiency)
{
	struct id_set siblings;
	int64_t package;

	/* A list that leaves the CPU itself out is not to be believed. */
	if (read_list(&siblings, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root,
		      cpu->id) &&
	    id_set_has(&siblings, cpu->id))
		cpu->core = (int)id_set_first(&siblings);
	if (read_number(&package, "%s/sys/devices/system/cpu/cpu%d/topology/physical_package_id", root,
			cpu->id) &&
	    package >= 0 && package <= INT_MAX)
		cpu->package = (int)package;
	cpu->cache = read_cache(root, cpu->id);
	cpu->efficiency = id_set_has(efficiency, cpu->id);
}

static void read_cpus(const char *root, struct topology *topology)
{
	struct id_set efficiency = {{0}}, offline;

	read_list(&efficiency, "%s/sys/devices/cpu_atom/cpus", root);
	if (read_list(&offline, "%s/sys/devices/system/cpu/offline", root))
		topology->n_offline = id_set_count(&offline);
	for (uint32_t i = 0; i < topology->n_cpus; i++)
		read_cpu(root, &topology->cpu[i], &efficiency);
}

static bool first_of_core(const struct topology *topology, uint32_t i)
{
	for (uint32_t j = 0; j < i; j++)
		if (topology->cpu[j].core == topology->cpu[i].core)
			return false;
	return true;
}

static void count_cores(struct topology *topology)
{
	for (uint32_t i = 0; i < topology->n_cpus; i++) {
		if (!first_of_core(topology, i))
			continue;
		topology->n_cores++;
		for (uint32_t n = 0; n < topology->n_nodes; n++)
			topology->node[n].cores += topology->node[n].id == topology->cpu[i].node;
	}
}

/* ---- all of it ---- */

int topology_read(const char *root, struct topology *ret)
{
	struct topology *topology = calloc(1, sizeof(*topology));
	int r = topology ? list_cpus(root, topology) : -ENOMEM;

	if (r == 0) {
		read_cpus(root, topology);
		read_nodes(root, topology);
		count_cores(topology);
		read_devices(root, topology);
		topology->quota_cpus = read_quota(root);
		*ret = *topology;
	}
	free(topology);
	return r;
}

const struct topology_node *topology_find_node(const struct topology *topology, int id)
{
	for (uint32_t n = 0; n < topology->n_nodes; n++)
		if (topology->node[n].id == id)
			return &topology->node[n];
	return NULL;
}

uint32_t topology_cpus_of(const struct topology *topology, int node, int *ret)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < topology->n_cpus; i++)
		if (topology->cpu[i].node == node)
			ret[n++] = topology->cpu[i].id;
	return n;
}
