/* Machine, plan and reality as one JSON object. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon_internal.h"
#include "daemon/json.h"
#include "numa/observe.h"

enum {
	THREADS_MAX = PLAN_THREADS_MAX + 64, /* that are looked at */
	LOOK_AGAIN_NS = 1000000000
};

static const char *const page_names[TOPOLOGY_PAGES] = {"2m", "1g"};
static const char *const device_names[] = {
    [TOPOLOGY_NETWORK] = "network", [TOPOLOGY_NVME] = "nvme", [TOPOLOGY_ACCELERATOR] = "accelerator"};

/* ---- the machine ---- */

static void put_signed(struct json *json, const char *key, int value)
{
	put(json, "\"%s\":%d,", key, value);
}

/* "0-3,8" */
static void put_ids(struct json *json, const char *key, const struct id_set *set)
{
	const char *comma = "";

	put(json, "\"%s\":\"", key);
	for (long id = 0; id < PARSE_IDS_MAX; id++) {
		long last = id;

		if (!id_set_has(set, id))
			continue;
		while (id_set_has(set, last + 1))
			last++;
		put(json, last > id ? "%s%ld-%ld" : "%s%ld", comma, id, last);
		comma = ",";
		id = last;
	}
	put(json, "\",");
}

static struct id_set set_of_nodes(uint64_t nodes)
{
	return (struct id_set){{nodes}};
}

static void put_node(struct json *json, const struct topology *topology, const struct topology_node *node)
{
	struct id_set cpus = {{0}};

	for (uint32_t i = 0; i < topology->n_cpus; i++)
		if (topology->cpu[i].node == node->id)
			id_set_add(&cpus, topology->cpu[i].id);
	put(json, "{");
	put_signed(json, "id", node->id);
	put_ids(json, "cpus", &cpus);
	put_number(json, "cores", node->cores);
	put_number(json, "memory_bytes", node->memory_bytes);
	put(json, "\"memory_allowed\":%s,", node->allowed ? "true" : "false");
	for (int page = 0; page < TOPOLOGY_PAGES; page++)
		put(json, "\"pages_%s\":%llu,\"free_pages_%s\":%llu,", page_names[page],
		    (unsigned long long)node->pages[page], page_names[page],
		    (unsigned long long)node->free_pages[page]);
	put(json, "\"distances\":[");
	for (uint32_t n = 0; n < topology->n_nodes; n++)
		put(json, "%u,", node->distance[topology->node[n].id]);
	close_array(json, "},");
}

static void put_machine(struct json *json, const struct topology *topology)
{
	put_number(json, "cpus", topology->n_cpus);
	put_number(json, "cores", topology->n_cores);
	put_number(json, "offline_cpus", topology->n_offline);
	put(json, "\"quota_cpus\":%.2f,\"nodes\":[", topology->quota_cpus);
	for (uint32_t n = 0; n < topology->n_nodes; n++)
		put_node(json, topology, &topology->node[n]);
	close_array(json, ",\"devices\":[");
	for (uint32_t d = 0; d < topology->n_devices; d++) {
		put(json, "{");
		put_text(json, "address", topology->device[d].address);
		put_text(json, "kind", device_names[topology->device[d].kind]);
		put_signed(json, "node", topology->device[d].node);
		close_object(json, ",");
	}
	close_array(json, ",");
}

/* ---- threads ---- */

static int node_of_cpu(const struct topology *topology, int cpu)
{
	for (uint32_t i = 0; i < topology->n_cpus; i++)
		if (topology->cpu[i].id == cpu)
			return topology->cpu[i].node;
	return -1;
}

/* Whether a thread may run where the plan says, and nowhere else. */
static bool follows(const struct topology *topology, const struct plan_thread *line,
		    const struct observed_thread *thread)
{
	if (line->cpu >= 0)
		return id_set_count(&thread->allowed) == 1 && id_set_has(&thread->allowed, line->cpu);
	for (long id = 0; line->node >= 0 && id < PARSE_IDS_MAX; id++)
		if (id_set_has(&thread->allowed, id) && node_of_cpu(topology, (int)id) != line->node)
			return false;
	return true;
}

/* The thread of this line: one that follows it if there is one. NULL: none of this name is left. */
static struct observed_thread *find_thread(const struct daemon *daemon, const struct plan_thread *line,
					   struct observed_thread *threads, int n)
{
	bool shared = !strcmp(line->name, "front") && !daemon->placement.separate;
	const char *name = shared ? "engine" : line->name;
	struct observed_thread *found = NULL;

	for (int i = 0; i < n; i++) {
		if (strcmp(threads[i].name, name) != 0 || (threads[i].taken && !shared))
			continue;
		if (!found || follows(&daemon->topology, line, &threads[i]))
			found = &threads[i];
	}
	if (found)
		found->taken = true;
	return found;
}

/* Returns whether plan and reality differ. */
static bool put_thread(struct json *json, const struct daemon *daemon, const struct plan_thread *line,
		       struct observed_thread *threads, int n)
{
	const struct observed_thread *thread = find_thread(daemon, line, threads, n);
	bool agrees = thread && follows(&daemon->topology, line, thread);

	put(json, "{");
	put_text(json, "name", line->name);
	put_signed(json, "cpu", line->cpu);
	put_signed(json, "node", line->node);
	put_text(json, "why", line->why);
	put(json, "\"runs\":%s,", thread ? "true" : "false");
	if (thread) {
		put_ids(json, "allowed", &thread->allowed);
		put_signed(json, "last_cpu", thread->last_cpu);
		put(json, "\"agrees\":%s,", agrees ? "true" : "false");
	}
	close_object(json, ",");
	return thread && !agrees;
}

static unsigned put_threads(struct json *json, const struct daemon *daemon)
{
	const struct plan *plan = &daemon->placement;
	struct observed_thread *threads = calloc(THREADS_MAX, sizeof(*threads));
	int n = threads ? observe_threads("/proc/self", threads, THREADS_MAX) : 0;
	unsigned differences = 0;

	put(json, "\"threads\":[");
	for (uint32_t i = 0; i < plan->n_lines; i++)
		differences += put_thread(json, daemon, &plan->line[i], threads, n);
	close_array(json, ",");
	free(threads);
	return differences;
}

/* ---- memory ---- */

struct look {
	uint32_t n_entries;
	struct memory_entry entry[MEMORY_REGIONS_MAX];
	size_t n_ranges;
	struct observed_memory seen[PLAN_MEMORIES];
};

static int look(const struct daemon *daemon, struct look *ret)
{
	size_t max = MEMORY_REGIONS_MAX + (size_t)daemon->config.max_clients;
	struct observe_range *ranges = calloc(max, sizeof(*ranges));
	size_t n = 0;
	int error;

	if (!ranges)
		return -ENOMEM;
	ret->n_entries = memory_list(daemon->memory, ret->entry);
	for (; n < ret->n_entries; n++)
		ranges[n] = (struct observe_range){.base = (uintptr_t)ret->entry[n].region.base,
						   .bytes = ret->entry[n].region.bytes,
						   .slot = ret->entry[n].kind};
	n += server_channel_ranges(daemon->server, ranges + n, max - n, PLAN_CHANNELS);
	error = observe_memory("/proc/self", ranges, n, ret->seen, PLAN_MEMORIES);
	free(ranges);
	return error;
}

/* Everything on the plan's nodes; of several, each has at least half of its share. */
static bool lies_there(const struct observed_memory *seen, uint64_t nodes)
{
	uint64_t total = 0, share;

	for (int id = 0; id < TOPOLOGY_NODES_MAX; id++)
		total += seen->on_node[id];
	share = nodes ? total / (uint64_t)__builtin_popcountll(nodes) : 0;
	for (int id = 0; id < TOPOLOGY_NODES_MAX; id++)
		if (nodes && (nodes >> id & 1 ? seen->on_node[id] < share / 2 : seen->on_node[id] > 0))
			return false;
	return true;
}

static void put_seen(struct json *json, const struct observed_memory *seen)
{
	put_number(json, "bytes", seen->bytes);
	put_number(json, "huge_bytes", seen->huge_bytes);
	put_number(json, "page_bytes", seen->page_bytes);
	put(json, "\"on_nodes\":[");
	for (int id = 0; id < TOPOLOGY_NODES_MAX; id++)
		if (seen->on_node[id])
			put(json, "{\"node\":%d,\"bytes\":%llu},", id, (unsigned long long)seen->on_node[id]);
	close_array(json, ",");
}

/* Returns whether plan and reality differ. */
static bool put_memory(struct json *json, const struct daemon *daemon, const struct look *look,
		       enum plan_memory_kind kind)
{
	const struct plan_memory *plan = &daemon->placement.memory[kind];
	const struct observed_memory *seen = &look->seen[kind];
	struct id_set nodes = set_of_nodes(plan->nodes);
	bool agrees = lies_there(seen, plan->nodes);
	const char *note = "";
	uint64_t missing = 0;

	for (uint32_t i = 0; i < look->n_entries; i++)
		if (look->entry[i].kind == kind) {
			note = *look->entry[i].note ? look->entry[i].note : note;
			missing += look->entry[i].missing_pages;
			agrees = agrees && !look->entry[i].fell_short;
		}
	put(json, "{");
	put_text(json, "name", plan_memory_name(kind));
	put_ids(json, "nodes", &nodes);
	put_text(json, "why", plan->why);
	put_seen(json, seen);
	put_number(json, "missing_2m", missing);
	put_text(json, "note", note);
	if (seen->bytes)
		put(json, "\"agrees\":%s,", agrees ? "true" : "false");
	close_object(json, ",");
	return seen->bytes && !agrees;
}

static unsigned put_memories(struct json *json, const struct daemon *daemon)
{
	struct look *now = calloc(1, sizeof(*now));
	unsigned differences = 0;
	int error = now ? look(daemon, now) : -ENOMEM;

	if (error)
		put_text(json, "memory_error", strerror(-error));
	put(json, "\"memory\":[");
	for (enum plan_memory_kind kind = 0; !error && kind < PLAN_MEMORIES; kind++)
		differences += put_memory(json, daemon, now, kind);
	close_array(json, ",");
	free(now);
	return differences;
}

/* ---- all of it ---- */

static int look_again(const struct daemon *daemon, char *text, size_t capacity)
{
	struct json json = {.text = text, .capacity = capacity};
	char advice[MEMORY_NOTE_BYTES];
	unsigned differences;

	put(&json, "{");
	put_machine(&json, &daemon->topology);
	differences = put_threads(&json, daemon);
	differences += put_memories(&json, daemon);
	put_text(&json, "advice", memory_advice(daemon->memory, advice, sizeof(advice)) ? advice : "");
	put_number(&json, "differences", differences);
	close_object(&json, "");
	return json.used < capacity ? (int)json.used : -ENOSPC;
}

int daemon_topology(void *context, char *text, size_t capacity)
{
	struct daemon *daemon = context;
	uint64_t now = daemon_clock_ns();

	if (daemon->look && now - daemon->looked_ns < LOOK_AGAIN_NS) {
		memcpy(text, daemon->look, (size_t)daemon->look_bytes);
		return daemon->look_bytes;
	}
	int bytes = look_again(daemon, text, capacity);
	if (bytes < 0)
		return bytes;
	char *copy = realloc(daemon->look, (size_t)bytes);
	if (copy) {
		memcpy(copy, text, (size_t)bytes);
		daemon->look = copy;
		daemon->look_bytes = bytes;
		daemon->looked_ns = now;
	}
	return bytes;
}
