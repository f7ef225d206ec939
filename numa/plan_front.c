/* Where the front runs: on a thread of its own if a CPU is spare, else on the engine's. */
#include "numa/plan_internal.h"

static bool computes(const struct plan *plan, int cpu)
{
	for (uint32_t i = 0; i < plan->threads; i++)
		if (plan->cpus[i] == cpu)
			return true;
	return false;
}

static bool core_computes(const struct planning *planning, int core)
{
	const struct topology *topology = planning->topology;

	for (uint32_t i = 0; i < topology->n_cpus; i++)
		if (topology->cpu[i].core == core && computes(planning->plan, topology->cpu[i].id))
			return true;
	return false;
}

/* One CPU more than front and threads need stays for the control thread and for clients; reserved ones will
 * do. */
static bool cpu_is_spare(const struct planning *planning)
{
	const struct topology *topology = planning->topology;
	uint32_t reserved = planning->request->reserve_cores;
	uint32_t others = planning->plan->threads + (reserved > 1 ? reserved : 1);

	return topology->n_cpus > others && (topology->quota_cpus <= 0 || topology->quota_cpus > others);
}

static uint32_t idle_cores(const struct planning *planning)
{
	const struct topology *topology = planning->topology;
	uint32_t n = topology->n_cores;

	for (uint32_t i = 0; i < topology->n_cpus; i++) {
		bool counted = false;

		for (uint32_t j = 0; j < i; j++)
			counted |= topology->cpu[j].core == topology->cpu[i].core;
		n -= !counted && core_computes(planning, topology->cpu[i].core);
	}
	return n;
}

/* Lower is better: an idle core before the sibling of a busy one, then not CPU 0's, a fast one, near the
 * engine. */
static uint64_t cost_of(const struct planning *planning, const struct topology_cpu *cpu)
{
	const struct topology_cpu *engine = plan_cpu(planning, planning->plan->cpus[0]);

	return (uint64_t)core_computes(planning, cpu->core) << 42 |
	       (uint64_t)(planning->many && cpu->core == 0) << 41 | (uint64_t)cpu->efficiency << 40 |
	       (uint64_t)(engine ? plan_distance(planning, engine->node, cpu->node) : 0) << 1 |
	       (engine && engine->cache != cpu->cache);
}

static const struct topology_cpu *best_cpu(const struct planning *planning)
{
	const struct topology *topology = planning->topology;
	const struct topology_cpu *best = NULL;
	bool core_is_spare = idle_cores(planning) > planning->request->reserve_cores;

	for (uint32_t i = 0; i < topology->n_cpus; i++) {
		const struct topology_cpu *cpu = &topology->cpu[i];

		if (!computes(planning->plan, cpu->id) &&
		    (core_is_spare || core_computes(planning, cpu->core)) &&
		    (!best || cost_of(planning, cpu) < cost_of(planning, best)))
			best = cpu;
	}
	return best;
}

static void share_engine(struct planning *planning)
{
	const struct topology_cpu *engine = plan_cpu(planning, planning->plan->cpus[0]);

	plan_say(planning, "front", engine ? engine->id : -1, engine ? engine->node : -1,
		 planning->request->front == PLAN_FRONT_SHARED
		     ? "on the engine's thread: front = shared says so"
		     : "on the engine's thread: no CPU is spare beside %u threads and the clients",
		 planning->plan->threads);
}

void plan_front_choose(struct planning *planning)
{
	enum plan_front wish = planning->request->front;

	planning->plan->front_cpu = -1;
	planning->plan->separate =
	    wish == PLAN_FRONT_OWN || (wish == PLAN_FRONT_AUTO && cpu_is_spare(planning));
}

static void take(struct planning *planning, const struct topology_cpu *cpu, const char *why)
{
	planning->plan->front_cpu = cpu->id;
	planning->taken[cpu - planning->topology->cpu] = true;
	plan_say(planning, "front", cpu->id, cpu->node, "%s", why);
}

static const char own_core[] = "a core of its own, so that no step delays it";

void plan_front_early(struct planning *planning)
{
	take(planning, &planning->topology->cpu[plan_next_cpu(planning)], own_core);
}

void plan_front_late(struct planning *planning)
{
	const struct plan_request *request = planning->request;
	const struct topology_cpu *cpu;

	if (!planning->plan->separate) {
		share_engine(planning);
		return;
	}
	cpu = request->front_cpu >= 0 ? plan_cpu(planning, request->front_cpu) : best_cpu(planning);
	if (!cpu)
		plan_say(planning, "front", -1, -1,
			 "left to the kernel: every CPU has a thread that computes");
	else if (request->front_cpu >= 0)
		take(planning, cpu, "front_cpu says so");
	else if (core_computes(planning, cpu->core))
		take(planning, cpu, "the idle half of a core that computes, as no core is spare");
	else
		take(planning, cpu, own_core);
}
