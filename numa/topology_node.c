/* Nodes: memory, reserved huge pages, distances, and which CPUs lie on them. */
#include "numa/topology_internal.h"

static const int page_kib[TOPOLOGY_PAGES] = {[TOPOLOGY_PAGE_2M] = 2048, [TOPOLOGY_PAGE_1G] = 1048576};

/* "Node 0 MemTotal:  123 kB" */
static uint64_t memory_of(const char *text, const char *key)
{
	uint64_t kib;

	return parse_value(text, key, &kib) && kib < UINT64_MAX >> 10 ? kib << 10 : 0;
}

static uint64_t pages_of(const char *root, int node, enum topology_page page, const char *what)
{
	int64_t n;

	return read_number(&n, "%s/sys/devices/system/node/node%d/hugepages/hugepages-%dkB/%s", root, node,
			   page_kib[page], what) &&
		       n > 0
		   ? (uint64_t)n
		   : 0;
}

static void read_distances(const char *root, struct topology_node *node, const struct id_set *online)
{
	char text[TEXT_BYTES];
	uint16_t row[TOPOLOGY_NODES_MAX];
	uint32_t n, at = 0;

	if (!read_text(text, "%s/sys/devices/system/node/node%d/distance", root, node->id))
		return;
	n = parse_row(text, row, TOPOLOGY_NODES_MAX);
	for (int id = 0; id < TOPOLOGY_NODES_MAX && at < n; id++) /* one number an online node */
		if (id_set_has(online, id))
			node->distance[id] = row[at++];
}

static void read_node(const char *root, struct topology *topology, struct topology_node *node)
{
	char text[TEXT_BYTES];
	struct id_set cpus;

	if (read_text(text, "%s/sys/devices/system/node/node%d/meminfo", root, node->id)) {
		node->memory_bytes = memory_of(text, "MemTotal:");
		node->free_bytes = memory_of(text, "MemFree:");
	}
	for (int page = 0; page < TOPOLOGY_PAGES; page++) {
		node->pages[page] = pages_of(root, node->id, page, "nr_hugepages");
		node->free_pages[page] = pages_of(root, node->id, page, "free_hugepages");
	}
	if (read_list(&cpus, "%s/sys/devices/system/node/node%d/cpulist", root, node->id))
		for (uint32_t i = 0; i < topology->n_cpus; i++)
			if (id_set_has(&cpus, topology->cpu[i].id))
				topology->cpu[i].node = node->id;
}

void read_nodes(const char *root, struct topology *topology)
{
	char text[TEXT_BYTES];
	struct id_set online, allowed;
	const char *line =
	    read_text(text, "%s/proc/self/status", root) ? parse_line(text, "Mems_allowed_list:") : NULL;
	bool limited = line && parse_list(line, &allowed);

	if (!read_list(&online, "%s/sys/devices/system/node/online", root))
		online = (struct id_set){{1}}; /* a kernel without NUMA */
	for (int id = 0; id < TOPOLOGY_NODES_MAX; id++) {
		struct topology_node *node = &topology->node[topology->n_nodes];

		if (!id_set_has(&online, id))
			continue;
		*node = (struct topology_node){.id = id, .allowed = !limited || id_set_has(&allowed, id)};
		read_node(root, topology, node);
		read_distances(root, node, &online);
		topology->n_nodes++;
	}
	if (!topology->n_nodes) /* all of them have ids that are too large */
		topology->node[topology->n_nodes++] = (struct topology_node){.allowed = true};
}
