/* tokenring doctor: kernel, clock, hypervisor, and what else runs on a CPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/doctor_costs.h"
#include "tools/cli/doctor_tree.h"

struct feature {
	int major, minor;
	const char *name, *without; /* what is lost on older kernels */
};

static const struct feature features[] = {
    {5, 14, "MADV_POPULATE_WRITE", "channels cannot be set up"},
    {6, 1, "MADV_COLLAPSE", "channels need reserved huge pages"},
    {6, 3, "MFD_NOEXEC_SEAL", "a channel's memory could be made executable"},
    {6, 5, "SO_PEERPIDFD", "a client that forked and died is noticed late"},
    {6, 16, "SO_PASSRIGHTS", "descriptors that clients pass are closed one by one"},
};

enum { N_FEATURES = sizeof features / sizeof *features };

static bool has(int major, int minor, const struct feature *f)
{
	return major > f->major || (major == f->major && minor >= f->minor);
}

static void examine_kernel(const struct doctor_host *host, struct findings *findings)
{
	char text[DOCTOR_TEXT_BYTES], missing[200] = "", lost[250] = "";
	int major, minor;
	if (!tree_text(host, text, "/proc/sys/kernel/osrelease") ||
	    sscanf(text, "%d.%d", &major, &minor) != 2) {
		finding_add(findings, "kernel", FINDING_UNKNOWN, "its version cannot be read");
		return;
	}
	for (size_t i = 0; i < N_FEATURES; i++) {
		const struct feature *f = &features[i];
		size_t m = strlen(missing), l = strlen(lost);
		if (has(major, minor, f))
			continue;
		snprintf(missing + m, sizeof missing - m, "%s%s (%d.%d)", m ? ", " : "", f->name, f->major,
			 f->minor);
		snprintf(lost + l, sizeof lost - l, "%s%s", l ? "; " : "", f->without);
	}
	if (!*missing) {
		finding_add(findings, "kernel", FINDING_OK, "%.60s has all that tokenring uses", text);
		return;
	}
	struct finding *f =
	    finding_add(findings, "kernel", has(major, minor, &features[0]) ? FINDING_NOTE : FINDING_WRONG,
			"%.40s lacks %s", text, missing);
	finding_cost(f, "%s", lost);
	finding_fix(f, "boot Linux 6.16 or younger");
}

/* Clocks that the C library reads without a system call. */
static bool is_quick(const char *clock)
{
	static const char *const quick[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page",
					    "arch_sys_counter"};
	for (size_t i = 0; i < sizeof quick / sizeof *quick; i++)
		if (!strcmp(clock, quick[i]))
			return true;
	return false;
}

static void examine_clock(const struct doctor_host *host, struct findings *findings)
{
	static const char folder[] = "/sys/devices/system/clocksource/clocksource0";
	char clock[DOCTOR_TEXT_BYTES], available[DOCTOR_TEXT_BYTES] = "", read[40] = "";
	if (!tree_text(host, clock, "%s/current_clocksource", folder)) {
		finding_add(findings, "clock", FINDING_UNKNOWN, "the kernel does not show it");
		return;
	}
	if (host->spin.measured)
		snprintf(read, sizeof read, ", %llu ns a read", (unsigned long long)host->spin.clock_read_ns);
	if (is_quick(clock)) {
		finding_add(findings, "clock", FINDING_OK, "%.40s%s", clock, read);
		return;
	}
	tree_text(host, available, "%s/available_clocksource", folder);
	struct finding *f = finding_add(findings, "clock", FINDING_COSTS, "%.40s%s", clock, read);
	finding_cost(f,
		     "a system call and a slow device for each look at the clock: about 1 us (not measured)");
	if (strstr(available, "tsc"))
		finding_fix(f, "echo tsc > %s/current_clocksource", folder);
	else
		finding_fix(f,
			    "none here: the kernel found the TSC unstable; `dmesg | grep -i tsc` says why");
}

/* Share of all CPU time since boot that the host of this machine gave to others, in percent. */
static double steal_percent(const struct doctor_host *host)
{
	char text[DOCTOR_TEXT_BYTES];
	double sum = 0, steal = 0;
	if (!tree_text(host, text, "/proc/stat") || strncmp(text, "cpu ", 4) != 0)
		return 0;
	char *at = text + 4;
	for (int field = 0; field < 8; field++) { /* user nice system idle iowait irq softirq steal */
		steal = strtod(at, &at);
		sum += steal;
	}
	return sum > 0 ? 100 * steal / sum : 0;
}

static void examine_hypervisor(const struct doctor_host *host, struct findings *findings)
{
	double steal = steal_percent(host);
	if (!tree_is_virtual(host)) {
		finding_add(findings, "hypervisor", FINDING_OK, "none");
		return;
	}
	struct finding *f = finding_add(findings, "hypervisor", steal >= 1 ? FINDING_COSTS : FINDING_NOTE,
					"a virtual machine; others took %.2f %% of its CPU time", steal);
	finding_cost(f, "%s", DOCTOR_COST_HYPERVISOR);
	finding_fix(f, "none from inside; ask for dedicated cores, or use a whole machine");
}

static void examine_gaps(const struct doctor_host *host, struct findings *findings)
{
	const struct doctor_spin *spin = &host->spin;
	if (!spin->measured) {
		finding_add(findings, "gaps", FINDING_UNKNOWN, "not measured");
		return;
	}
	if (!spin->gaps) {
		finding_add(findings, "gaps", FINDING_OK, "none over %d us in %llu ms on CPU %d",
			    DOCTOR_GAP_NS / 1000, (unsigned long long)spin->spun_ns / 1000000, spin->cpu);
		return;
	}
	struct finding *f = finding_add(
	    findings, "gaps", FINDING_COSTS, "%llu over %d us in %llu ms on CPU %d, the longest %.0f us",
	    (unsigned long long)spin->gaps, DOCTOR_GAP_NS / 1000, (unsigned long long)spin->spun_ns / 1000000,
	    spin->cpu, 1e-3 * (double)spin->longest_ns);
	finding_cost(f, "a message that meets one waits for its end; %.2f %% of the time is lost",
		     100 * (double)spin->lost_ns / (double)spin->spun_ns);
	finding_fix(
	    f, "the items hypervisor, isolated-cpus, interrupts and cgroup-cpu; stop what else runs here");
}

void doctor_system(const struct doctor_host *host, struct findings *findings)
{
	examine_kernel(host, findings);
	examine_clock(host, findings);
	examine_hypervisor(host, findings);
	examine_gaps(host, findings);
}
