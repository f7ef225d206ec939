#include "numa/plan.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "numa/plan_internal.h"

const struct topology_cpu *plan_cpu(const struct planning *planning, int id)
{
	const struct topology *topology = planning->topology;

	for (uint32_t i = 0; i < topology->n_cpus; i++)
		if (topology->cpu[i].id == id)
			return &topology->cpu[i];
	return NULL;
}

uint32_t plan_distance(const struct planning *planning, int a, int b)
{
	const struct topology_node *node = topology_find_node(planning->topology, a);

	if (a == b)
		return 0;
	return node && b >= 0 && b < TOPOLOGY_NODES_MAX && node->distance[b] ? node->distance[b]
									     : UINT16_MAX + 10;
}

void plan_say(struct planning *planning, const char *name, int cpu, int node, const char *format, ...)
{
	struct plan_thread *line = &planning->plan->line[planning->plan->n_lines++];
	va_list list;

	snprintf(line->name, sizeof(line->name), "%s", name);
	line->cpu = cpu;
	line->node = node;
	va_start(list, format);
	vsnprintf(line->why, sizeof(line->why), format, list);
	va_end(list);
}

/* ---- what options may say ---- */

static int check_cpu(const struct planning *planning, int cpu, const char *option, char *why,
		     size_t why_bytes)
{
	if (plan_cpu(planning, cpu))
		return 0;
	snprintf(why, why_bytes,
		 "%s names CPU %d, which this process may not use or which is offline; see Cpus_allowed_list "
		 "in /proc/self/status",
		 option, cpu);
	return -EINVAL;
}

static int check_node(const struct planning *planning, char *why, size_t why_bytes)
{
	int id = planning->request->memory_node;
	const struct topology_node *node = topology_find_node(planning->topology, id);

	if (id < 0 || (node && node->allowed))
		return 0;
	snprintf(why, why_bytes,
		 "memory_node names node %d, which %s; `tokenring status --topology` and "
		 "Mems_allowed_list in /proc/self/status show the nodes",
		 id, node ? "this process may not use" : "this machine does not have");
	return -EINVAL;
}

static int check_options(const struct planning *planning, char *why, size_t why_bytes)
{
	const struct plan_request *request = planning->request;
	uint32_t workers = planning->plan->threads - 1;
	int error = check_node(planning, why, why_bytes);

	if (!error && request->engine_cpu >= 0)
		error = check_cpu(planning, request->engine_cpu, "engine_cpu", why, why_bytes);
	if (!error && request->front_cpu >= 0)
		error = check_cpu(planning, request->front_cpu, "front_cpu", why, why_bytes);
	for (uint32_t i = 0; !error && i < request->n_worker_cpus; i++)
		error = check_cpu(planning, request->worker_cpus[i], "worker_cpus", why, why_bytes);
	if (!error && request->n_worker_cpus && request->n_worker_cpus < workers) {
		snprintf(why, why_bytes,
			 "worker_cpus lists %u CPUs for %u threads beside the engine's; list as many, or "
			 "lower threads",
			 request->n_worker_cpus, workers);
		error = -EINVAL;
	}
	return error;
}

/* ---- how many threads ---- */

enum { ROUND_SIBLINGS = 2 /* after fast cores and slow ones */ };

static void rank_cpus(struct planning *planning)
{
	const struct topology *topology = planning->topology;

	for (uint32_t i = 0; i < topology->n_cpus; i++) {
		uint32_t siblings = 0;

		for (uint32_t j = 0; j < i; j++)
			siblings += topology->cpu[j].core == topology->cpu[i].core;
		planning->round[i] = siblings ? siblings + 1 : topology->cpu[i].efficiency;
	}
}

/* Threads share a step equally, so that a slow core would keep the fast ones waiting. */
static uint32_t fast_cores(const struct planning *planning)
{
	const struct topology *topology = planning->topology;
	int node = planning->request->accelerator_node;
	uint32_t n = 0;

	for (uint32_t i = 0; i < topology->n_cpus; i++)
		n += planning->round[i] == 0 && (node < 0 || topology->cpu[i].node == node);
	return n ? n : topology->n_cores;
}

/* Cores that compute unless `threads` says how many: from 8 on less one for the front and one for CPU 0's
 * duties, which may be a reserved one. 0: none is left. */
static uint32_t cores_left(const struct planning *planning)
{
	const struct topology *topology = planning->topology;
	uint32_t reserved = planning->request->reserve_cores, cores = fast_cores(planning);
	uint32_t front = planning->many && planning->request->front != PLAN_FRONT_SHARED;
	uint32_t zero = planning->many && plan_cpu(planning, 0) != NULL;
	uint32_t others = front + (zero > reserved ? zero : reserved);
	double quota = topology->quota_cpus;

	cores -= front + zero < cores ? front + zero : 0;
	if (reserved && topology->n_cores < cores + others)
		cores = topology->n_cores > others ? topology->n_cores - others : 0;
	if (quota > 0 && quota < cores + reserved)
		cores = quota > reserved ? (uint32_t)(quota - reserved) : 0;
	return cores;
}

static uint32_t choose_threads(const struct planning *planning)
{
	const struct plan_request *request = planning->request;
	uint32_t threads = request->threads ? request->threads : cores_left(planning);

	if (threads > PLAN_THREADS_MAX)
		threads = PLAN_THREADS_MAX;
	if (!threads && request->reserve_cores)
		snprintf(planning->plan->warning, sizeof(planning->plan->warning),
			 "reserve_cores = %u leaves none of the %u cores that may be used; one thread "
			 "computes all the "
			 "same; lower reserve_cores",
			 request->reserve_cores, planning->topology->n_cores);
	return threads ? threads : 1;
}

/* ---- which node first ---- */

/* Cores that threads take gladly: not the one that is left to CPU 0's duties. */
static uint32_t usable_cores(const struct planning *planning, const struct topology_node *node)
{
	const struct topology_cpu *zero = planning->many ? plan_cpu(planning, 0) : NULL;

	return node->cores - (zero && zero->node == node->id && node->cores);
}

/* 2: room for all threads and the front's; 1: for those that compute; 0: for some. */
static int room_of(const struct planning *planning, const struct topology_node *node)
{
	uint32_t cores = usable_cores(planning, node), threads = planning->plan->threads;

	return (cores >= threads) + (cores >= threads + planning->plan->separate);
}

/* Whether a is the better node to begin with. */
static bool better_start(const struct planning *planning, const struct topology_node *a,
			 const struct topology_node *b)
{
	int room_a = room_of(planning, a), room_b = room_of(planning, b);

	if (room_a != room_b)
		return room_a > room_b;
	if (a->memory_bytes != b->memory_bytes)
		return a->memory_bytes > b->memory_bytes;
	return a->cores > b->cores;
}

static void start_at_most_memory(struct planning *planning)
{
	const struct topology *topology = planning->topology;
	const struct topology_node *best = NULL;

	for (uint32_t i = 0; i < topology->n_nodes; i++)
		if (topology->node[i].cores && (!best || better_start(planning, &topology->node[i], best)))
			best = &topology->node[i];
	planning->start_node = best ? best->id : topology->cpu[0].node;
	if (best && topology->n_nodes > 1)
		snprintf(planning->start_why, sizeof(planning->start_why),
			 room_of(planning, best) ? ", the node of most memory with a core for all threads"
						 : ", the node of most memory");
}

static void choose_start(struct planning *planning)
{
	const struct plan_request *request = planning->request;
	const struct topology_node *accelerator =
				       topology_find_node(planning->topology, request->accelerator_node),
				   *memory = topology_find_node(planning->topology, request->memory_node);
	const char *reason = NULL;

	if (accelerator && accelerator->cores) {
		planning->start_node = accelerator->id;
		reason = ", the accelerator's node";
	} else if (memory && memory->cores) {
		planning->start_node = memory->id;
		reason = ", the node of memory_node";
	} else if (request->engine_cpu >= 0) {
		planning->start_node = plan_cpu(planning, request->engine_cpu)->node;
		reason = ", the node of engine_cpu";
	}
	if (!reason)
		start_at_most_memory(planning);
	else if (planning->topology->n_nodes > 1)
		snprintf(planning->start_why, sizeof(planning->start_why), "%s", reason);
}

/* ---- which CPUs ---- */

/* True if CPU a should compute before CPU b. */
static bool sooner(const struct planning *planning, uint32_t a, uint32_t b)
{
	const struct topology *topology = planning->topology;
	const struct topology_cpu *cpu_a = &topology->cpu[a], *cpu_b = &topology->cpu[b];
	uint32_t far_a = plan_distance(planning, planning->start_node, cpu_a->node),
		 far_b = plan_distance(planning, planning->start_node, cpu_b->node);
	bool kept_a = planning->many && cpu_a->core == 0, kept_b = planning->many && cpu_b->core == 0;

	if (planning->round[a] != planning->round[b])
		return planning->round[a] < planning->round[b];
	if (kept_a != kept_b)
		return kept_b;
	if (far_a != far_b)
		return far_a < far_b;
	if (cpu_a->node != cpu_b->node)
		return cpu_a->node < cpu_b->node;
	return a < b;
}

static void explain_chosen(struct planning *planning, const char *name, uint32_t i)
{
	const struct topology *topology = planning->topology;
	const struct topology_cpu *cpu = &topology->cpu[i];

	if (planning->round[i] >= ROUND_SIBLINGS)
		plan_say(planning, name, cpu->id, cpu->node,
			 "shares the core of CPU %d, as every core has a thread already", cpu->core);
	else if (planning->many && cpu->core == 0)
		plan_say(planning, name, cpu->id, cpu->node,
			 "a core of its own, the one of CPU 0 last because interrupts like it");
	else if (cpu->node != planning->start_node)
		plan_say(planning, name, cpu->id, cpu->node,
			 "a core of its own on node %d, as the cores of node %d are taken", cpu->node,
			 planning->start_node);
	else
		plan_say(planning, name, cpu->id, cpu->node, "a core of its own%s%s",
			 cpu->efficiency ? ", a slow one as the fast ones are taken" : "",
			 planning->start_why);
}

/* CPUs that options name are not given to other threads. */
static void take_named(struct planning *planning)
{
	const struct plan_request *request = planning->request;
	const struct topology *topology = planning->topology;

	for (uint32_t i = 0; i < topology->n_cpus; i++) {
		int id = topology->cpu[i].id;

		planning->taken[i] = id == request->engine_cpu || id == request->front_cpu;
		for (uint32_t w = 0; w < request->n_worker_cpus; w++)
			planning->taken[i] |= id == request->worker_cpus[w];
	}
}

uint32_t plan_next_cpu(const struct planning *planning)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < planning->topology->n_cpus; i++)
		if (!planning->taken[i] && (best == UINT32_MAX || sooner(planning, i, best)))
			best = i;
	return best;
}

static void place_thread(struct planning *planning, uint32_t thread)
{
	const struct plan_request *request = planning->request;
	const char *name = thread ? "worker" : "engine", *option = thread ? "worker_cpus" : "engine_cpu";
	int wanted = -1;

	if (thread == 0)
		wanted = request->engine_cpu;
	else if (request->n_worker_cpus)
		wanted = request->worker_cpus[thread - 1];
	planning->plan->cpus[thread] = wanted;
	if (wanted >= 0) {
		plan_say(planning, name, wanted, plan_cpu(planning, wanted)->node, "%s says so", option);
		return;
	}
	uint32_t chosen = plan_next_cpu(planning);
	if (chosen == UINT32_MAX) {
		plan_say(planning, name, -1, -1, "left to the kernel: there are more threads than CPUs");
		return;
	}
	planning->taken[chosen] = true;
	planning->plan->cpus[thread] = planning->topology->cpu[chosen].id;
	explain_chosen(planning, name, chosen);
}

/* A core near the engine goes to the front before the workers spread out, if all of them find a fast one, and
 * unless one of them alone would be driven to another node. */
static bool front_comes_early(const struct planning *planning)
{
	uint32_t zero = planning->many && plan_cpu(planning, 0), reserved = planning->request->reserve_cores;
	uint32_t kept = zero > reserved ? zero : reserved;
	const struct topology_node *start = topology_find_node(planning->topology, planning->start_node);

	return planning->plan->separate && planning->request->front_cpu < 0 &&
	       fast_cores(planning) > planning->plan->threads + kept && start &&
	       room_of(planning, start) != 1;
}

static void place_threads(struct planning *planning)
{
	bool early;

	take_named(planning);
	early = front_comes_early(planning);
	place_thread(planning, 0);
	if (early)
		plan_front_early(planning);
	for (uint32_t thread = 1; thread < planning->plan->threads; thread++)
		place_thread(planning, thread);
	if (!early)
		plan_front_late(planning);
}

int plan_make(struct plan *ret, const struct plan_request *request, const struct topology *topology,
	      char *why, size_t why_bytes)
{
	struct planning planning = {.request = request,
				    .topology = topology,
				    .plan = ret,
				    .many = topology->n_cores >= PLAN_MANY_CORES};
	int error;

	memset(ret, 0, sizeof(*ret));
	ret->n_nodes = topology->n_nodes;
	rank_cpus(&planning);
	ret->threads = choose_threads(&planning);
	error = check_options(&planning, why, why_bytes);
	if (error)
		return error;
	plan_front_choose(&planning);
	choose_start(&planning);
	place_threads(&planning);
	plan_memories(&planning);
	return 0;
}
