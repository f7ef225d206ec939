#include "daemon/placement.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

struct allowed {
	uint32_t n;
	int cpu[CPU_SETSIZE];
};

static void read_allowed(struct allowed *allowed)
{
	cpu_set_t set;

	allowed->n = 0;
	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			allowed->cpu[allowed->n++] = cpu;
}

static bool contains(const int *cpus, uint32_t n, int cpu)
{
	for (uint32_t i = 0; i < n; i++)
		if (cpus[i] == cpu)
			return true;
	return false;
}

static int check_listed(const struct allowed *allowed, int cpu, const char *option, char *why,
			size_t why_bytes)
{
	if (contains(allowed->cpu, allowed->n, cpu))
		return 0;
	snprintf(why, why_bytes,
		 "%s names CPU %d, which this process may not use; see Cpus_allowed_list in "
		 "/proc/self/status",
		 option, cpu);
	return -EINVAL;
}

/* The next allowed CPU that no thread has yet, or -1. */
static int next_free(const struct allowed *allowed, const struct placement *placement, uint32_t taken)
{
	for (uint32_t i = 0; i < allowed->n; i++)
		if (!contains(placement->cpus, taken, allowed->cpu[i]))
			return allowed->cpu[i];
	return -1;
}

static int check_lists(const struct allowed *allowed, const struct config *config, uint32_t threads,
		       char *why, size_t why_bytes)
{
	const struct config_cpus *workers = &config->worker_cpus;
	int error = 0;

	if (config->engine_cpu >= 0)
		error = check_listed(allowed, (int)config->engine_cpu, "engine_cpu", why, why_bytes);
	for (uint32_t i = 0; !error && i < workers->n; i++)
		error = check_listed(allowed, workers->cpu[i], "worker_cpus", why, why_bytes);
	if (!error && workers->n && workers->n < threads - 1) {
		snprintf(why, why_bytes,
			 "worker_cpus lists %u CPUs for %u threads beside the engine's; list as many, or "
			 "lower threads",
			 workers->n, threads - 1);
		error = -EINVAL;
	}
	return error;
}

int placement_choose(struct placement *ret, const struct config *config, char *why, size_t why_bytes)
{
	struct placement placement = {.front_cpu = -1};
	struct allowed allowed;
	int error;

	read_allowed(&allowed);
	placement.allowed = allowed.n;
	placement.threads = config->threads ? (uint32_t)config->threads : allowed.n ? allowed.n : 1;
	if (placement.threads > BACKEND_CPUS_MAX)
		placement.threads = BACKEND_CPUS_MAX;
	error = check_lists(&allowed, config, placement.threads, why, why_bytes);
	if (error)
		return error;
	for (uint32_t i = 0; i < placement.threads; i++) {
		if (i == 0 && config->engine_cpu >= 0)
			placement.cpus[0] = (int)config->engine_cpu;
		else if (i > 0 && config->worker_cpus.n)
			placement.cpus[i] = config->worker_cpus.cpu[i - 1];
		else
			placement.cpus[i] = next_free(&allowed, &placement, i);
	}
	placement.separate =
	    strcmp(config->front, "auto") ? !strcmp(config->front, "own") : allowed.n > placement.threads + 1;
	if (placement.separate)
		placement.front_cpu = next_free(&allowed, &placement, placement.threads); /* or none */
	*ret = placement;
	return 0;
}
