#include "daemon/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/control/log.h"

static const enum plan_memory_kind kind_of_use[] = {
    [BACKEND_WEIGHTS] = PLAN_WEIGHTS, [BACKEND_KV] = PLAN_KV, [BACKEND_SCRATCH] = PLAN_SCRATCH};

/* ---- sentences ---- */

/* "node 1", "nodes 0 1"; "any node" for none. */
static const char *describe_nodes(uint64_t nodes, char text[64])
{
	int used = snprintf(text, 64, nodes ? "node%s" : "any node", nodes & (nodes - 1) ? "s" : "");

	for (int id = 0; id < TOPOLOGY_NODES_MAX && used < 60; id++)
		if (nodes >> id & 1)
			used += snprintf(text + used, (size_t)(64 - used), " %d", id);
	return text;
}

static int first_node(uint64_t nodes)
{
	return nodes ? __builtin_ctzll(nodes) : 0;
}

/* 2 MiB pages that the region would have taken; 0: it has them, or may or should not. */
static uint64_t missing_pages(const struct memory *memory, const struct memory_entry *entry)
{
	return memory->reserved && entry->region.pages < NUMA_PAGES_2M
		   ? numa_pages_for(entry->asked, NUMA_PAGES_2M)
		   : 0;
}

/* The command that would give `pages` more of them. */
static void advise_pages(const struct memory *memory, uint64_t pages, uint64_t nodes, char *text,
			 size_t bytes)
{
	int node = first_node(nodes);
	const struct topology_node *at = topology_find_node(memory->topology, node);
	uint64_t had = at ? at->pages[TOPOLOGY_PAGE_2M] : 0;
	char where[64];

	snprintf(text, bytes,
		 "%" PRIu64 " free 2 MiB pages of %s would hold it: echo %" PRIu64
		 " >/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages, then restart",
		 pages, describe_nodes(nodes, where), had + pages, node);
}

static void advise_binding(struct memory_entry *entry, uint64_t nodes)
{
	char where[64];

	snprintf(entry->note, sizeof(entry->note),
		 "cannot be bound to %s (%s): in a container, give it the capability CAP_SYS_NICE; until "
		 "then it lies where the thread runs that loads the model",
		 describe_nodes(nodes, where), strerror(-entry->region.bind_error));
}

static void report(const struct memory *memory, struct memory_entry *entry, uint64_t nodes)
{
	char where[64];

	entry->missing_pages = missing_pages(memory, entry);
	if (entry->region.bind_error)
		advise_binding(entry, nodes);
	entry->fell_short = entry->region.bind_error || (entry->missing_pages && memory->wanted);
	log_event(entry->fell_short ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, "memory",
		  "%s: %.1f MiB in %s, %s%s%s", plan_memory_name(entry->kind),
		  (double)entry->asked / (1 << 20), numa_pages_name(entry->region.pages),
		  describe_nodes(nodes, where), *entry->note ? "; " : "", entry->note);
}

/* ---- the backend's calls ---- */

static bool too_small(const struct memory *memory, const struct memory_entry *entry, uint64_t nodes,
		      char *why, size_t why_bytes)
{
	uint64_t missing = missing_pages(memory, entry);
	char text[MEMORY_NOTE_BYTES];

	if (!memory->required || !missing)
		return false;
	advise_pages(memory, missing, nodes, text, sizeof(text));
	snprintf(why, why_bytes, "huge_pages = require, and there are too few for %s: %s",
		 plan_memory_name(entry->kind), text);
	return true;
}

/* False: the book is full, which no program comes near. */
static bool enter(struct memory *memory, const struct memory_entry *entry)
{
	bool room;

	pthread_mutex_lock(&memory->lock);
	room = memory->n < MEMORY_REGIONS_MAX;
	if (room)
		memory->entry[memory->n++] = *entry;
	pthread_mutex_unlock(&memory->lock);
	return room;
}

static void *map(void *context, enum backend_memory_use use, size_t bytes, bool touch, char *why,
		 size_t why_bytes)
{
	struct memory *memory = context;
	struct memory_entry entry = {.kind = kind_of_use[use], .asked = bytes};
	uint64_t nodes = memory->plan->memory[entry.kind].nodes;
	struct numa_wish wish = {.nodes = memory->plan->n_nodes > 1 ? nodes : 0,
				 .reserved = memory->reserved,
				 .transparent = memory->transparent,
				 .touch = touch};

	if (numa_map(&entry.region, bytes, &wish) < 0) {
		snprintf(why, why_bytes,
			 "cannot map %zu bytes for %s: lower kv_tokens, max_context_tokens or "
			 "max_batch_tokens",
			 bytes, plan_memory_name(entry.kind));
		return NULL;
	}
	if (too_small(memory, &entry, nodes, why, why_bytes) || !enter(memory, &entry)) {
		numa_unmap(&entry.region);
		return NULL;
	}
	report(memory, &memory->entry[memory->n - 1], nodes); /* this thread alone adds entries */
	return entry.region.base;
}

static void unmap(void *context, void *base, size_t bytes)
{
	struct memory *memory = context;

	pthread_mutex_lock(&memory->lock);
	for (uint32_t i = 0; i < memory->n; i++)
		if (memory->entry[i].region.base == base) {
			numa_unmap(&memory->entry[i].region);
			memory->entry[i] = memory->entry[--memory->n];
			break;
		}
	pthread_mutex_unlock(&memory->lock);
}

/* ---- the book ---- */

void memory_init(struct memory *memory, const struct plan *plan, const struct topology *topology,
		 const char *huge_pages)
{
	bool never = !strcmp(huge_pages, "never");

	*memory = (struct memory){
	    .hooks = {map, unmap, memory},
	    .plan = plan,
	    .topology = topology,
	    .reserved = !never,
	    .transparent = !never,
	    .required = !strcmp(huge_pages, "require"),
	    .wanted = !strcmp(huge_pages, "prefer"),
	};
	pthread_mutex_init(&memory->lock, NULL);
}

void memory_done(struct memory *memory)
{
	if (memory->plan)
		pthread_mutex_destroy(&memory->lock);
}

uint64_t memory_reserved_for(const struct memory *memory, enum plan_memory_kind kind, size_t bytes)
{
	static const uint64_t page_bytes[TOPOLOGY_PAGES] = {2 << 20, 1 << 30};
	static const enum numa_pages pages[TOPOLOGY_PAGES] = {NUMA_PAGES_2M, NUMA_PAGES_1G};
	const struct topology *topology = memory->topology;

	for (int size = 0; memory->reserved && size < TOPOLOGY_PAGES; size++) {
		uint64_t needed = numa_pages_for(bytes, pages[size]), there = 0;

		for (uint32_t n = 0; n < topology->n_nodes; n++)
			if (memory->plan->memory[kind].nodes >> topology->node[n].id & 1)
				there += topology->node[n].free_pages[size];
		if (needed && there >= needed)
			return needed * page_bytes[size];
	}
	return 0;
}

uint32_t memory_list(struct memory *memory, struct memory_entry *ret)
{
	uint32_t n;

	pthread_mutex_lock(&memory->lock);
	n = memory->n;
	memcpy(ret, memory->entry, n * sizeof(*ret));
	pthread_mutex_unlock(&memory->lock);
	return n;
}

bool memory_advice(struct memory *memory, char *text, size_t bytes)
{
	uint64_t pages = 0, nodes = 0;

	pthread_mutex_lock(&memory->lock);
	for (uint32_t i = 0; i < memory->n; i++)
		if (memory->entry[i].missing_pages) {
			pages += memory->entry[i].missing_pages;
			nodes = memory->plan->memory[memory->entry[i].kind].nodes;
		}
	pthread_mutex_unlock(&memory->lock);
	if (pages)
		advise_pages(memory, pages, nodes, text, bytes);
	return pages;
}
