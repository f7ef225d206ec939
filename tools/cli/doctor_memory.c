/* tokenring doctor: pages, nodes and swap. */
#include <stdio.h>
#include <string.h>

#include "tools/cli/doctor_costs.h"
#include "tools/cli/doctor_tree.h"

static void examine_thp(const struct doctor_host *host, struct findings *findings)
{
	char text[DOCTOR_TEXT_BYTES], enabled[32];
	if (!tree_text(host, text, "/sys/kernel/mm/transparent_hugepage/enabled")) {
		struct finding *f =
		    finding_add(findings, "thp", FINDING_COSTS, "this kernel has no transparent huge pages");
		finding_cost(f, "weights and KV cache lie in pages of 4 KiB: %s", DOCTOR_COST_THP);
		finding_fix(f, "a kernel built with CONFIG_TRANSPARENT_HUGEPAGE");
		return;
	}
	chosen_word(text, enabled, sizeof enabled);
	if (!*enabled) {
		finding_add(findings, "thp", FINDING_UNKNOWN, "the kernel says \"%.60s\"", text);
		return;
	}
	if (!strcmp(enabled, "never")) {
		struct finding *f = finding_add(findings, "thp", FINDING_COSTS, "never");
		finding_cost(f, "weights and KV cache lie in pages of 4 KiB: %s", DOCTOR_COST_THP);
		finding_fix(f, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
		return;
	}
	finding_add(findings, "thp", FINDING_OK, "%s: weights and KV cache get pages of 2 MiB", enabled);
}

static bool huge_pages(const struct doctor_host *host, const char *size, int64_t *ret_n, int64_t *ret_free)
{
	return tree_number(host, ret_n, "/sys/kernel/mm/hugepages/hugepages-%s/nr_hugepages", size) &&
	       tree_number(host, ret_free, "/sys/kernel/mm/hugepages/hugepages-%s/free_hugepages", size);
}

/* Free pages of 2 MiB on each node. */
struct node_pages {
	long n;     /* nodes that show them */
	long empty; /* the first one without any; -1: none */
	char text[128];
};

static struct node_pages read_nodes(const struct doctor_host *host)
{
	char nodes[DOCTOR_TEXT_BYTES];
	const char *at = nodes;
	struct node_pages pages = {.empty = -1};
	long first, last;
	int64_t free;
	tree_nodes(host, nodes);
	while (list_next(&at, &first, &last))
		for (long node = first; node <= last; node++) {
			if (!tree_number(
				host, &free,
				"/sys/devices/system/node/node%ld/hugepages/hugepages-2048kB/free_hugepages",
				node))
				continue;
			size_t used = strlen(pages.text);
			snprintf(pages.text + used, sizeof pages.text - used, "%s%lld on node %ld",
				 pages.n++ ? ", " : "", (long long)free, node);
			if (!free && pages.empty < 0)
				pages.empty = node;
		}
	return pages;
}

/* Weights, KV cache and channels take transparent huge pages where none is reserved. */
static bool has_thp(const struct doctor_host *host)
{
	char text[DOCTOR_TEXT_BYTES];
	return tree_text(host, text, "/sys/kernel/mm/transparent_hugepage/enabled") &&
	       !strstr(text, "[never]");
}

static void examine_huge_pages(const struct doctor_host *host, struct findings *findings)
{
	enum finding_state state = has_thp(host) ? FINDING_NOTE : FINDING_COSTS;
	int64_t n = 0, free = 0;
	struct finding *f;
	if (!huge_pages(host, "2048kB", &n, &free)) {
		finding_add(findings, "huge-pages-2m", FINDING_UNKNOWN, "the kernel does not show them");
		return;
	}
	struct node_pages nodes = read_nodes(host);
	if (free && nodes.empty < 0) {
		finding_add(findings, "huge-pages-2m", FINDING_OK, "%lld of %lld free%s%s", (long long)free,
			    (long long)n, nodes.n > 1 ? ": " : "", nodes.n > 1 ? nodes.text : "");
		return;
	}
	if (free) {
		f = finding_add(findings, "huge-pages-2m", state, "%lld of %lld free: %s", (long long)free,
				(long long)n, nodes.text);
		finding_fix(f, "echo 64 > %s/node%ld/hugepages/hugepages-2048kB/nr_hugepages",
			    "/sys/devices/system/node", nodes.empty);
	} else {
		f = finding_add(findings, "huge-pages-2m", state, "%s",
				n ? "all are taken" : "none is reserved");
		finding_fix(f,
			    "sysctl -w vm.nr_hugepages=%lld for 64 clients; weights take their size besides",
			    (long long)n + 64);
	}
	finding_cost(f, "%s", DOCTOR_COST_RESERVED_PAGES);
}

static void examine_gigantic_pages(const struct doctor_host *host, struct findings *findings)
{
	int64_t n = 0, free = 0;
	if (!huge_pages(host, "1048576kB", &n, &free))
		finding_add(findings, "huge-pages-1g", FINDING_NOTE, "this CPU or kernel has none");
	else
		finding_add(findings, "huge-pages-1g", n ? FINDING_OK : FINDING_NOTE, "%lld of %lld free%s",
			    (long long)free, (long long)n,
			    n ? "" : "; models of several GiB would take them");
}

static void examine_balancing(const struct doctor_host *host, struct findings *findings)
{
	char nodes[DOCTOR_TEXT_BYTES];
	int64_t balancing = 0;
	tree_nodes(host, nodes);
	long n = list_count(nodes);
	if (!tree_number(host, &balancing, "/proc/sys/kernel/numa_balancing") || !balancing || n < 2) {
		finding_add(findings, "numa-balancing", FINDING_OK, "%s, %ld node%s",
			    balancing ? "on" : "off", n, n == 1 ? "" : "s");
		return;
	}
	struct finding *f = finding_add(findings, "numa-balancing", FINDING_COSTS, "on, %ld nodes", n);
	finding_cost(f,
		     "the kernel takes pages away to see who uses them: page faults in the middle of a step "
		     "(not measured)");
	finding_fix(f, "sysctl -w kernel.numa_balancing=0");
}

static void examine_swap(const struct doctor_host *host, struct findings *findings)
{
	char text[DOCTOR_TEXT_BYTES];
	if (!tree_text(host, text, "/proc/swaps")) {
		finding_add(findings, "swap", FINDING_UNKNOWN, "/proc/swaps cannot be read");
		return;
	}
	long areas = 0;
	for (const char *at = strchr(text, '\n'); at; at = strchr(at + 1, '\n'))
		areas++;
	if (!areas) {
		finding_add(findings, "swap", FINDING_OK, "off");
		return;
	}
	struct finding *f =
	    finding_add(findings, "swap", FINDING_COSTS, "%ld area%s", areas, areas == 1 ? "" : "s");
	finding_cost(f, "weights that were not used lately are read back from the disk (not measured)");
	finding_fix(f, "swapoff -a, or MemorySwapMax=0 in the unit of tokenringd");
}

void doctor_memory(const struct doctor_host *host, struct findings *findings)
{
	examine_thp(host, findings);
	examine_huge_pages(host, findings);
	examine_gigantic_pages(host, findings);
	examine_balancing(host, findings);
	examine_swap(host, findings);
}
