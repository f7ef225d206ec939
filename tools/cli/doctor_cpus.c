/* tokenring doctor: who else uses the CPUs: SMT siblings, other programs, interrupts, and the mitigations. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/doctor_tree.h"

/* CPUs that the scheduler leaves alone; "" if there are none. */
static void isolated(const struct doctor_host *host, char text[DOCTOR_TEXT_BYTES])
{
	if (!tree_text(host, text, "/sys/devices/system/cpu/isolated"))
		text[0] = 0;
}

/* Whether the siblings of all isolated CPUs are isolated too: nobody else then runs on their cores. */
static bool cores_are_isolated(const struct doctor_host *host, const char *set)
{
	char siblings[DOCTOR_TEXT_BYTES];
	const char *at = set;
	long first, last;
	while (list_next(&at, &first, &last))
		for (long cpu = first; cpu <= last; cpu++)
			if (!tree_text(host, siblings,
				       "/sys/devices/system/cpu/cpu%ld/topology/thread_siblings_list", cpu) ||
			    !list_within(siblings, set))
				return false;
	return *set;
}

static void examine_smt(const struct doctor_host *host, struct findings *findings)
{
	char set[DOCTOR_TEXT_BYTES], control[DOCTOR_TEXT_BYTES];
	int64_t active;
	if (!tree_number(host, &active, "/sys/devices/system/cpu/smt/active") ||
	    !tree_text(host, control, "/sys/devices/system/cpu/smt/control")) {
		finding_add(findings, "smt", FINDING_UNKNOWN, "the kernel does not show it");
		return;
	}
	isolated(host, set);
	if (!active) {
		finding_add(findings, "smt", FINDING_OK, "one thread a core (%.20s)", control);
	} else if (cores_are_isolated(host, set)) {
		finding_add(findings, "smt", FINDING_OK, "on, but the isolated CPUs %.100s are whole cores",
			    set);
	} else {
		struct finding *f = finding_add(findings, "smt", FINDING_COSTS,
						"two threads a core: another program may run on the sibling");
		finding_cost(f, "a busy sibling takes up to half of the core (not measured)");
		finding_fix(f, "echo off > /sys/devices/system/cpu/smt/control");
	}
}

static void suggest_isolation(const struct doctor_host *host, struct finding *f)
{
	char online[DOCTOR_TEXT_BYTES];
	tree_online(host, online);
	long cpus = list_count(online);
	if (cpus < 4)
		finding_fix(
		    f, "none with %ld CPUs; from four, isolcpus= and nohz_full= on the kernel's command line",
		    cpus);
	else
		finding_fix(f,
			    "boot with isolcpus=managed_irq,domain,2-%ld nohz_full=2-%ld rcu_nocbs=2-%ld and "
			    "start tokenringd under taskset -c 2-%ld",
			    cpus - 1, cpus - 1, cpus - 1, cpus - 1);
}

static void examine_isolation(const struct doctor_host *host, struct findings *findings)
{
	char set[DOCTOR_TEXT_BYTES], quiet[DOCTOR_TEXT_BYTES];
	isolated(host, set);
	if (!tree_text(host, quiet, "/sys/devices/system/cpu/nohz_full") || !strcmp(quiet, "(null)"))
		quiet[0] = 0;
	if (!*set) {
		struct finding *f = finding_add(findings, "isolated-cpus", FINDING_COSTS,
						"none: other programs and the kernel's tick share every CPU");
		finding_cost(f, "the gaps of the item \"gaps\"");
		suggest_isolation(host, f);
	} else if (!list_within(set, quiet)) {
		struct finding *f = finding_add(findings, "isolated-cpus", FINDING_COSTS,
						"%.100s, but the tick still runs there (nohz_full: %.60s)",
						set, *quiet ? quiet : "none");
		finding_cost(f, "one interruption a tick, 100 to 1,000 a second (not measured)");
		finding_fix(f, "boot with nohz_full=%.60s rcu_nocbs=%.60s too", set, set);
	} else {
		finding_add(findings, "isolated-cpus", FINDING_OK, "%.100s, without a tick", set);
	}
}

struct interrupts {
	long n, misplaced; /* that may come to an isolated CPU */
	long example;
};

static void count_interrupt(const struct doctor_host *host, const char *number, const char *set,
			    struct interrupts *irqs)
{
	char where[DOCTOR_TEXT_BYTES];
	const char *at = where;
	long first, last;
	bool hits = false;
	if (!tree_text(host, where, "/proc/irq/%s/effective_affinity_list", number) || !*where)
		if (!tree_text(host, where, "/proc/irq/%s/smp_affinity_list", number))
			return;
	while (list_next(&at, &first, &last))
		for (long cpu = first; cpu <= last && !hits; cpu++)
			hits = list_has(set, cpu);
	irqs->n++;
	irqs->misplaced += hits;
	if (hits)
		irqs->example = atol(number);
}

static struct interrupts count_interrupts(const struct doctor_host *host, const char *set)
{
	char path[4096];
	struct interrupts irqs = {0};
	struct dirent *entry;
	snprintf(path, sizeof path, "%s/proc/irq", host->root);
	DIR *folder = opendir(path);
	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
			count_interrupt(host, entry->d_name, set, &irqs);
	if (folder)
		closedir(folder);
	return irqs;
}

static void examine_interrupts(const struct doctor_host *host, struct findings *findings)
{
	char set[DOCTOR_TEXT_BYTES];
	isolated(host, set);
	struct interrupts irqs = count_interrupts(host, set);
	if (!irqs.n) {
		finding_add(findings, "interrupts", FINDING_UNKNOWN, "/proc/irq cannot be read");
	} else if (!*set) {
		finding_add(findings, "interrupts", FINDING_NOTE,
			    "%ld, on any CPU, for none is isolated from them", irqs.n);
	} else if (irqs.misplaced) {
		struct finding *f = finding_add(findings, "interrupts", FINDING_COSTS,
						"%ld of %ld may come to the isolated CPUs, among them %ld",
						irqs.misplaced, irqs.n, irqs.example);
		finding_cost(f, "a few us for each that comes (not measured)");
		finding_fix(f, "for i in /proc/irq/*/smp_affinity_list; do echo 0-1 > $i; done; systemctl "
			       "stop irqbalance");
	} else {
		finding_add(findings, "interrupts", FINDING_OK, "%ld, none on the isolated CPUs", irqs.n);
	}
}

static void examine_mitigations(const struct doctor_host *host, struct findings *findings)
{
	char path[4096], text[DOCTOR_TEXT_BYTES];
	long mitigated = 0, vulnerable = 0, n = 0;
	struct dirent *entry;
	snprintf(path, sizeof path, "%s/sys/devices/system/cpu/vulnerabilities", host->root);
	DIR *folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		if (entry->d_name[0] == '.' ||
		    !tree_text(host, text, "/sys/devices/system/cpu/vulnerabilities/%s", entry->d_name))
			continue;
		n++;
		mitigated += !strncmp(text, "Mitigation", 10);
		vulnerable += !strncmp(text, "Vulnerable", 10);
	}
	if (folder)
		closedir(folder);
	if (!n) {
		finding_add(findings, "mitigations", FINDING_UNKNOWN, "the kernel does not show them");
	} else if (!mitigated) {
		finding_add(findings, "mitigations", FINDING_OK, "none at work; %ld of %ld faults are open",
			    vulnerable, n);
	} else {
		struct finding *f =
		    finding_add(findings, "mitigations", FINDING_NOTE,
				"%ld of %ld faults are mitigated, %ld are open", mitigated, n, vulnerable);
		finding_cost(f,
			     "nothing between two busy ends, which make no system call; part of each wake-up "
			     "(not measured)");
		finding_fix(f,
			    "mitigations=off on the kernel's command line, if every program here is trusted");
	}
}

void doctor_cpus(const struct doctor_host *host, struct findings *findings)
{
	examine_smt(host, findings);
	examine_isolation(host, findings);
	examine_interrupts(host, findings);
	examine_mitigations(host, findings);
}
