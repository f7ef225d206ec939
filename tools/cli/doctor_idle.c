/* tokenring doctor: how fast a CPU runs, and how long it takes to come back from sleep. */
#include <stdio.h>
#include <string.h>

#include "tools/cli/doctor_costs.h"
#include "tools/cli/doctor_tree.h"

enum { SHALLOW_US = 10 }; /* a state that takes longer to leave is seen beside a wake-up of 15 us */

struct setting {
	const char *item, *file, *wanted, *cost;
};

/* Says how many online CPUs have another word in a cpufreq file than the one wanted. */
static void examine_setting(const struct doctor_host *host, const struct setting *s,
			    struct findings *findings)
{
	char online[DOCTOR_TEXT_BYTES], text[DOCTOR_TEXT_BYTES], other[32] = "";
	const char *at = online;
	long first, last, seen = 0, differ = 0;
	tree_online(host, online);
	while (list_next(&at, &first, &last))
		for (long cpu = first; cpu <= last; cpu++) {
			if (!tree_text(host, text, "/sys/devices/system/cpu/cpu%ld/cpufreq/%s", cpu, s->file))
				continue;
			seen++;
			if (strcmp(text, s->wanted)) {
				differ++;
				snprintf(other, sizeof other, "%.31s", text);
			}
		}
	if (!seen) {
		finding_add(findings, s->item, FINDING_UNKNOWN,
			    "not shown here: the firmware or the host of this machine decides");
	} else if (!differ) {
		finding_add(findings, s->item, FINDING_OK, "%s", s->wanted);
	} else {
		struct finding *f = finding_add(findings, s->item, FINDING_COSTS, "%s on %ld of %ld CPUs",
						other, differ, seen);
		finding_cost(f, "%s", s->cost);
		finding_fix(f, "echo %s | tee /sys/devices/system/cpu/cpu*/cpufreq/%s", s->wanted, s->file);
	}
}

struct deepest {
	int64_t latency_us;
	char name[32];
	long cpus; /* that may enter a state of over SHALLOW_US */
};

/* States that are switched off count as absent. */
static bool examine_cpu(const struct doctor_host *host, long cpu, struct deepest *deepest)
{
	char name[DOCTOR_TEXT_BYTES];
	int64_t latency, disabled;
	bool any = false, slow = false;
	for (int state = 0; state < 16; state++) {
		if (!tree_number(host, &latency, "/sys/devices/system/cpu/cpu%ld/cpuidle/state%d/latency",
				 cpu, state))
			break;
		any = true;
		if (tree_number(host, &disabled, "/sys/devices/system/cpu/cpu%ld/cpuidle/state%d/disable",
				cpu, state) &&
		    disabled)
			continue;
		slow = slow || latency > SHALLOW_US;
		if (latency >= deepest->latency_us &&
		    tree_text(host, name, "/sys/devices/system/cpu/cpu%ld/cpuidle/state%d/name", cpu,
			      state)) {
			deepest->latency_us = latency;
			snprintf(deepest->name, sizeof deepest->name, "%.31s", name);
		}
	}
	deepest->cpus += slow;
	return any;
}

/* What all programs together ask of the idle states, in us; false: nothing is asked, or it may not be read.
 */
static bool latency_limit(const struct doctor_host *host, int32_t *ret_us)
{
	char path[4096];
	int32_t limit;
	snprintf(path, sizeof path, "%s/dev/cpu_dma_latency", host->root);
	FILE *file = fopen(path, "rbe");
	if (!file)
		return false;
	bool good = fread(&limit, sizeof limit, 1, file) == 1;
	fclose(file);
	if (good)
		*ret_us = limit;
	return good && limit >= 0 && limit < 1000000;
}

static void complain_of_states(struct findings *findings, const struct deepest *deepest)
{
	struct finding *f =
	    finding_add(findings, "idle-states", FINDING_COSTS,
			"%ld CPU%s may sleep as deep as %s; /dev/cpu_dma_latency does not forbid it",
			deepest->cpus, deepest->cpus == 1 ? "" : "s", deepest->name);
	finding_cost(f, "up to %lld us (the kernel's figure) more for each wake-up of a sleeping end",
		     (long long)deepest->latency_us);
	finding_fix(f, "cpupower idle-set -D %d", SHALLOW_US);
}

/* An idle CPU of a virtual machine goes back to the host, whatever its states are called. */
static void complain_of_halts(struct findings *findings)
{
	struct finding *f =
	    finding_add(findings, "idle-states", FINDING_COSTS,
			"an idle CPU of a virtual machine halts, and the host must bring it back");
	finding_cost(f, "%s", DOCTOR_COST_HALTS);
	finding_fix(
	    f, "sh -c 'exec 3>/dev/cpu_dma_latency; printf \"\\0\\0\\0\\0\" >&3; exec sleep infinity' &");
}

static void examine_idle(const struct doctor_host *host, struct findings *findings)
{
	char online[DOCTOR_TEXT_BYTES];
	const char *at = online;
	struct deepest deepest = {0};
	bool any = false;
	int32_t limit_us;
	long first, last;
	tree_online(host, online);
	while (list_next(&at, &first, &last))
		for (long cpu = first; cpu <= last; cpu++)
			any = examine_cpu(host, cpu, &deepest) || any;
	if (latency_limit(host, &limit_us) && limit_us <= SHALLOW_US)
		finding_add(findings, "idle-states", FINDING_OK,
			    "a program holds /dev/cpu_dma_latency at %d us", limit_us);
	else if (deepest.cpus)
		complain_of_states(findings, &deepest);
	else if (tree_is_virtual(host))
		complain_of_halts(findings);
	else if (any)
		finding_add(findings, "idle-states", FINDING_OK, "deepest %s, %lld us to leave", deepest.name,
			    (long long)deepest.latency_us);
	else
		finding_add(findings, "idle-states", FINDING_UNKNOWN, "the kernel does not show them");
}

void doctor_idle(const struct doctor_host *host, struct findings *findings)
{
	static const struct setting settings[] = {
	    {"governor", "scaling_governor", "performance",
	     "the first request after a pause runs at a low clock rate (not measured)"},
	    {"energy-preference", "energy_performance_preference", "performance",
	     "the CPU raises its clock rate late (not measured)"},
	};
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		examine_setting(host, &settings[i], findings);
	examine_idle(host, findings);
}
