/* Where memory lies, and the threads that fill it. */
#include <stdarg.h>
#include <stdio.h>

#include "numa/plan_internal.h"

const char *plan_memory_name(enum plan_memory_kind kind)
{
	static const char *const names[PLAN_MEMORIES] = {[PLAN_WEIGHTS] = "weights",
							 [PLAN_KV] = "kv",
							 [PLAN_SCRATCH] = "scratch",
							 [PLAN_CHANNELS] = "channels"};

	return names[kind];
}

static uint64_t bit_of(int node)
{
	return UINT64_C(1) << node;
}

static bool may_hold(const struct topology_node *node)
{
	return node && node->allowed && node->memory_bytes;
}

/* `node` itself, or the nearest one with memory that the process may use; -1: none is known to have any. */
static int nearest_memory(const struct planning *planning, int node)
{
	const struct topology *topology = planning->topology;
	int best = -1;

	for (uint32_t i = 0; i < topology->n_nodes; i++) {
		int id = topology->node[i].id;

		if (may_hold(&topology->node[i]) &&
		    (best < 0 || plan_distance(planning, node, id) < plan_distance(planning, node, best)))
			best = id;
	}
	return best;
}

/* The nodes nearest to the computing threads; 0: wherever. */
static uint64_t computing_nodes(const struct planning *planning)
{
	const struct plan *plan = planning->plan;
	uint64_t nodes = 0;

	for (uint32_t i = 0; i < plan->threads; i++) {
		const struct topology_cpu *cpu = plan_cpu(planning, plan->cpus[i]);
		int node = cpu ? nearest_memory(planning, cpu->node) : -1;

		nodes |= node >= 0 ? bit_of(node) : 0;
	}
	return nodes;
}

__attribute__((format(printf, 4, 5))) static void put(struct planning *planning, enum plan_memory_kind kind,
						      uint64_t nodes, const char *format, ...)
{
	struct plan_memory *memory = &planning->plan->memory[kind];
	va_list list;

	memory->nodes = nodes;
	va_start(list, format);
	vsnprintf(memory->why, sizeof(memory->why), format, list);
	va_end(list);
}

static void put_computed(struct planning *planning)
{
	int option = planning->request->memory_node;
	uint64_t nodes = computing_nodes(planning);

	for (enum plan_memory_kind kind = PLAN_WEIGHTS; kind <= PLAN_KV; kind++)
		if (option >= 0)
			put(planning, kind, bit_of(option), "memory_node says so");
		else if (!nodes)
			put(planning, kind, 0, "wherever the kernel likes: no node is known to have memory");
		else if (nodes & (nodes - 1))
			put(planning, kind, nodes,
			    "interleaved, as threads on all of these nodes read all of it");
		else
			put(planning, kind, nodes, "where all threads are that read it");
}

/* At the nearest memory of one thread. */
static void put_near(struct planning *planning, enum plan_memory_kind kind, int cpu, const char *thread)
{
	const struct topology_cpu *at = plan_cpu(planning, cpu);
	int node = at ? nearest_memory(planning, at->node) : -1;

	if (node < 0)
		put(planning, kind, 0, "wherever the kernel likes: the %s is not pinned", thread);
	else if (node != at->node)
		put(planning, kind, bit_of(node), "nearest to the %s, whose own node has no memory for it",
		    thread);
	else
		put(planning, kind, bit_of(node), "at the %s, which touches it most", thread);
}

static void put_only_node(struct planning *planning)
{
	for (enum plan_memory_kind kind = 0; kind < PLAN_MEMORIES; kind++)
		put(planning, kind, bit_of(planning->topology->node[0].id), "the only node");
}

static bool has_cpus(const struct planning *planning, int node)
{
	const struct topology_node *at = topology_find_node(planning->topology, node);

	return at && at->cores;
}

static void place_loader(struct planning *planning)
{
	uint64_t nodes = planning->plan->memory[PLAN_WEIGHTS].nodes;
	int node = nodes ? __builtin_ctzll(nodes) : -1;

	if (nodes & bit_of(planning->start_node))
		node = planning->start_node;
	planning->plan->loader_node = has_cpus(planning, node) && planning->topology->n_nodes > 1 ? node : -1;
	if (planning->topology->n_nodes == 1)
		plan_say(planning, "loader", -1, -1, "on any CPU: there is one node");
	else if (planning->plan->loader_node >= 0)
		plan_say(planning, "loader", -1, node, "at the weights that it writes");
	else
		plan_say(planning, "loader", -1, -1, "on any CPU: the node of the weights has none");
}

static void place_readers(struct planning *planning)
{
	const struct plan_request *request = planning->request;
	int node = request->storage_node;

	planning->plan->reader_node = -1;
	if (planning->topology->n_nodes == 1)
		plan_say(planning, "reader", -1, -1, "on any CPU: there is one node");
	else if (!has_cpus(planning, node))
		plan_say(planning, "reader", -1, -1, "on any CPU: %s",
			 *request->storage_address ? "the node of the weights' drive is not known or has none"
						   : "the drive of the weights is no PCI device");
	else {
		planning->plan->reader_node = node;
		plan_say(planning, "reader", -1, node, "near the drive with the weights, PCI %s",
			 request->storage_address);
	}
}

void plan_memories(struct planning *planning)
{
	const struct plan *plan = planning->plan;
	int front = plan->separate ? plan->front_cpu : plan->cpus[0];

	if (planning->topology->n_nodes == 1) {
		put_only_node(planning);
	} else {
		put_computed(planning);
		put_near(planning, PLAN_SCRATCH, plan->cpus[0], "engine");
		put_near(planning, PLAN_CHANNELS, front, "front");
	}
	place_loader(planning);
	place_readers(planning);
}
