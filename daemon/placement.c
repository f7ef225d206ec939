#include "daemon/placement.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool contains(const int *cpus, uint32_t n, int cpu)
{
	for (uint32_t i = 0; i < n; i++)
		if (cpus[i] == cpu)
			return true;
	return false;
}

static int check_listed(const struct topology *topology, int cpu, const char *option, char *why,
			size_t why_bytes)
{
	for (uint32_t i = 0; i < topology->n_cpus; i++)
		if (topology->cpu[i].id == cpu)
			return 0;
	snprintf(
	    why, why_bytes,
	    "%s names CPU %d, which this process may not use; see Cpus_allowed_list in /proc/self/status",
	    option, cpu);
	return -EINVAL;
}

static int check_lists(const struct topology *topology, const struct config *config, uint32_t threads,
		       char *why, size_t why_bytes)
{
	const struct config_cpus *workers = &config->worker_cpus;
	int error = 0;

	if (config->engine_cpu >= 0)
		error = check_listed(topology, (int)config->engine_cpu, "engine_cpu", why, why_bytes);
	for (uint32_t i = 0; !error && i < workers->n; i++)
		error = check_listed(topology, workers->cpu[i], "worker_cpus", why, why_bytes);
	if (!error && workers->n && workers->n < threads - 1) {
		snprintf(why, why_bytes,
			 "worker_cpus lists %u CPUs for %u threads beside the engine's; list as many, or "
			 "lower threads",
			 workers->n, threads - 1);
		error = -EINVAL;
	}
	return error;
}

/* The options' CPUs instead of those chosen. A worker that was given the engine's wish gets the engine's
 * place. */
static void apply_options(struct placement *placement, const struct config *config)
{
	for (uint32_t i = 1; i < placement->threads; i++) {
		if (config->worker_cpus.n)
			placement->cpus[i] = config->worker_cpus.cpu[i - 1];
		else if (config->engine_cpu >= 0 && placement->cpus[i] == config->engine_cpu)
			placement->cpus[i] = placement->cpus[0];
	}
	if (config->engine_cpu >= 0)
		placement->cpus[0] = (int)config->engine_cpu;
}

static bool core_computes(const struct topology *topology, const struct placement *placement, int core)
{
	for (uint32_t i = 0; i < topology->n_cpus; i++)
		if (topology->cpu[i].core == core &&
		    contains(placement->cpus, placement->threads, topology->cpu[i].id))
			return true;
	return false;
}

/* A CPU for the front's thread: on a core where nothing computes, else beside one; -1: none is left. */
static int spare_cpu(const struct topology *topology, const struct placement *placement)
{
	int sibling = -1;

	for (uint32_t i = 0; i < topology->n_cpus; i++) {
		const struct topology_cpu *cpu = &topology->cpu[i];

		if (contains(placement->cpus, placement->threads, cpu->id))
			continue;
		if (!core_computes(topology, placement, cpu->core))
			return cpu->id;
		sibling = cpu->id;
	}
	return sibling;
}

/* One CPU more than front and threads need stays for the control thread and for clients. */
static bool cpu_is_spare(const struct topology *topology, uint32_t threads)
{
	return topology->n_cpus > threads + 1 &&
	       (topology->quota_cpus <= 0 || topology->quota_cpus > threads + 1);
}

int placement_choose(struct placement *ret, const struct config *config, const struct topology *topology,
		     char *why, size_t why_bytes)
{
	struct placement placement = {.front_cpu = -1};
	int error;

	placement.threads = config->threads ? (uint32_t)config->threads : topology_threads(topology);
	if (placement.threads > BACKEND_CPUS_MAX)
		placement.threads = BACKEND_CPUS_MAX;
	error = check_lists(topology, config, placement.threads, why, why_bytes);
	if (error)
		return error;
	topology_place(topology, placement.threads, placement.cpus);
	apply_options(&placement, config);
	placement.separate = strcmp(config->front, "auto") ? !strcmp(config->front, "own")
							   : cpu_is_spare(topology, placement.threads);
	if (placement.separate)
		placement.front_cpu = spare_cpu(topology, &placement);
	*ret = placement;
	return 0;
}
