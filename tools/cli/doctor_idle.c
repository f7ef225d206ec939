/* tokenring doctor: how fast a CPU runs, and how long it takes to come back from sleep. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* What idle CPUs may enter. */
struct deepest {
	int32_t limit_us; /* what all programs together allow, by /dev/cpu_dma_latency; INT32_MAX: anything */
	bool hidden;      /* that may not be read */
	int64_t latency_us;
	char name[32];
	long cpus; /* that may enter a state of over SHALLOW_US */
};

/* States that are switched off or beyond the limit count as absent. */
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
		if (latency > deepest->limit_us)
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

static void read_limit(const struct doctor_host *host, struct deepest *deepest)
{
	char path[4096];
	int32_t limit;
	deepest->limit_us = INT32_MAX;
	snprintf(path, sizeof path, "%s/dev/cpu_dma_latency", host->root);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO in a copied tree must not hang us */
	deepest->hidden = fd < 0 && errno == EACCES;
	if (fd < 0)
		return;
	if (read(fd, &limit, sizeof limit) == sizeof limit && limit >= 0)
		deepest->limit_us = limit;
	close(fd);
}

/* Whether deep states cost anything depends on the limit: without a look at it nothing is said for certain.
 */
static struct finding *doubt(struct findings *findings, const struct deepest *deepest, const char *what)
{
	if (deepest->hidden)
		return finding_add(findings, "idle-states", FINDING_UNKNOWN,
				   "%s, unless a program holds /dev/cpu_dma_latency: only root can see that",
				   what);
	return finding_add(findings, "idle-states", FINDING_COSTS, "%s", what);
}

static void complain_of_states(struct findings *findings, const struct deepest *deepest)
{
	char what[128];
	snprintf(what, sizeof what, "%ld CPU%s may sleep as deep as %s", deepest->cpus,
		 deepest->cpus == 1 ? "" : "s", deepest->name);
	struct finding *f = doubt(findings, deepest, what);
	finding_cost(f, "up to %lld us (the kernel's figure) more for each wake-up of a sleeping end",
		     (long long)deepest->latency_us);
	finding_fix(f, "cpupower idle-set -D %d", SHALLOW_US);
}

/* An idle CPU of a virtual machine goes back to the host, whatever its states are called. */
static void complain_of_halts(struct findings *findings, const struct deepest *deepest)
{
	struct finding *f =
	    doubt(findings, deepest, "an idle CPU of this virtual machine halts and its host brings it back");
	finding_cost(f, "%s", DOCTOR_COST_HALTS);
	finding_fix(
	    f, "sh -c 'exec 3>/dev/cpu_dma_latency; printf \"\\0\\0\\0\\0\" >&3; exec sleep infinity' &");
}

static bool examine_cpus(const struct doctor_host *host, struct deepest *deepest)
{
	char online[DOCTOR_TEXT_BYTES];
	const char *at = online;
	bool any = false;
	long first, last;
	tree_online(host, online);
	while (list_next(&at, &first, &last))
		for (long cpu = first; cpu <= last; cpu++)
			any = examine_cpu(host, cpu, deepest) || any;
	return any;
}

static void examine_idle(const struct doctor_host *host, struct findings *findings)
{
	struct deepest deepest = {0};
	read_limit(host, &deepest);
	bool any = examine_cpus(host, &deepest);
	if (deepest.limit_us <= SHALLOW_US)
		finding_add(findings, "idle-states", FINDING_OK,
			    "a program holds /dev/cpu_dma_latency at %d us", deepest.limit_us);
	else if (deepest.cpus)
		complain_of_states(findings, &deepest);
	else if (tree_is_virtual(host))
		complain_of_halts(findings, &deepest);
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
