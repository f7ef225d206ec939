/* tokenring doctor: what cgroups and resource limits leave to the daemon's process, or to this one where no
 * daemon is known. Sources: cgroups(7), Linux Documentation/admin-guide/cgroup-v2.rst, proc_pid_limits(5). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/doctor_costs.h"
#include "tools/cli/doctor_tree.h"

enum { PATH_BYTES = 1024, DESCRIPTORS_WANTED = 2 * 512 + 64 }; /* two for each of max_clients' default */

/* One mounted hierarchy and the process's place in it. */
struct cgroup {
	char mount[PATH_BYTES], path[PATH_BYTES];
	bool v2;
};

/* Whether a comma-separated list of controllers has `name`. */
static bool names(const char *controllers, size_t bytes, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = controllers; at < controllers + bytes; at += strcspn(at, ",:") + 1)
		if (strcspn(at, ",:") == length && !memcmp(at, name, length))
			return true;
	return false;
}

/* Lines of /proc/PID/cgroup are NUMBER:CONTROLLERS:PATH; the v2 line has no controllers. */
static bool find_cgroup(const struct doctor_host *host, const char *controller, struct cgroup *ret)
{
	char text[DOCTOR_TEXT_BYTES], *rest = text, *line;
	bool found = false;
	if (!tree_text(host, text, "/proc/%s/cgroup", host->process))
		return false;
	while ((line = strsep(&rest, "\n"))) {
		char *controllers = strchr(line, ':'),
		     *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		size_t bytes = (size_t)(path - ++controllers);
		bool v2 = !bytes, v1 = bytes && names(controllers, bytes, controller);
		if (!v1 && (!v2 || found))
			continue;
		ret->v2 = v2;
		snprintf(ret->path, sizeof ret->path, "%s", strcmp(path + 1, "/") ? path + 1 : "");
		snprintf(ret->mount, sizeof ret->mount, "/sys/fs/cgroup%s%s", v1 ? "/" : "",
			 v1 ? controller : "");
		found = true;
		if (v1)
			break; /* the controller works there, not in the unified hierarchy */
	}
	return found;
}

/* Goes from the process's cgroup to the root, because each one limits what is below it. */
static bool go_up(struct cgroup *group)
{
	char *slash = strrchr(group->path, '/');
	if (!slash)
		return false;
	*slash = 0;
	return true;
}

/* CPUs' worth of time that the group allows; 0: no limit. */
static double quota_of(const struct doctor_host *host, const struct cgroup *group)
{
	char text[DOCTOR_TEXT_BYTES];
	long long quota = 0, period = 100000;
	int64_t quota_v1, period_v1;
	if (group->v2)
		return tree_text(host, text, "%s%s/cpu.max", group->mount, group->path) &&
			       sscanf(text, "%lld %lld", &quota, &period) >= 1 && quota > 0 && period > 0
			   ? (double)quota / (double)period
			   : 0;
	return tree_number(host, &quota_v1, "%s%s/cpu.cfs_quota_us", group->mount, group->path) &&
		       tree_number(host, &period_v1, "%s%s/cpu.cfs_period_us", group->mount, group->path) &&
		       quota_v1 > 0 && period_v1 > 0
		   ? (double)quota_v1 / (double)period_v1
		   : 0;
}

static void examine_quota(const struct doctor_host *host, struct findings *findings)
{
	struct cgroup group, tightest;
	double least = 0;
	if (!find_cgroup(host, "cpu", &group)) {
		finding_add(findings, "cgroup-cpu", FINDING_UNKNOWN, "/proc/%s/cgroup does not say",
			    host->process);
		return;
	}
	do {
		double quota = quota_of(host, &group);
		if (quota > 0 && (least <= 0 || quota < least)) {
			least = quota;
			tightest = group;
		}
	} while (go_up(&group));
	if (least <= 0) {
		finding_add(findings, "cgroup-cpu", FINDING_OK, "no limit");
		return;
	}
	struct finding *f =
	    finding_add(findings, "cgroup-cpu", FINDING_COSTS, "%.3g CPUs' worth of time", least);
	finding_cost(f, "when it is spent all threads stop until the next period: up to 100 ms");
	if (tightest.v2)
		finding_fix(f, "echo max > %s%.160s/cpu.max", "/sys/fs/cgroup", tightest.path);
	else
		finding_fix(f, "echo -1 > %s%.160s/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu", tightest.path);
}

/* Bytes that the group allows; 0: no limit. v1 says "no limit" by a number beyond any memory. */
static int64_t memory_of(const struct doctor_host *host, const struct cgroup *group)
{
	int64_t bytes;
	if (!tree_number(host, &bytes, "%s%s/%s", group->mount, group->path,
			 group->v2 ? "memory.max" : "memory.limit_in_bytes"))
		return 0;
	return bytes >= INT64_C(1) << 60 ? 0 : bytes;
}

static void examine_memory(const struct doctor_host *host, struct findings *findings)
{
	struct cgroup group;
	int64_t least = 0;
	if (!find_cgroup(host, "memory", &group)) {
		finding_add(findings, "cgroup-memory", FINDING_UNKNOWN, "/proc/%s/cgroup does not say",
			    host->process);
		return;
	}
	do {
		int64_t bytes = memory_of(host, &group);
		if (bytes > 0 && (!least || bytes < least))
			least = bytes;
	} while (go_up(&group));
	if (!least) {
		finding_add(findings, "cgroup-memory", FINDING_OK, "no limit");
		return;
	}
	struct finding *f = finding_add(findings, "cgroup-memory", FINDING_NOTE, "%.2f GiB",
					(double)least / (double)(1 << 30));
	finding_cost(f, "no time; a model that does not fit is refused at start, with the figures");
}

/* "Name:  value" of /proc/PID/status. */
static bool status_value(const struct doctor_host *host, const char *name, char value[DOCTOR_TEXT_BYTES])
{
	char text[DOCTOR_TEXT_BYTES];
	if (!tree_text(host, text, "/proc/%s/status", host->process))
		return false;
	const char *at = strstr(text, name);
	if (!at)
		return false;
	at += strlen(name);
	at += strspn(at, ": \t");
	snprintf(value, DOCTOR_TEXT_BYTES, "%.*s", (int)strcspn(at, "\n"), at);
	return true;
}

static void complain_of_one_cpu(struct findings *findings, long all, const char *allowed)
{
	struct finding *f =
	    finding_add(findings, "cpuset", FINDING_COSTS, "one of %ld CPUs: %.20s", all, allowed);
	finding_cost(f, "%s", DOCTOR_COST_ONE_CPU);
	finding_fix(f, "AllowedCPUs=0-%ld in the unit of tokenringd, or taskset -pc 0-%ld PID", all - 1,
		    all - 1);
}

static void examine_cpuset(const struct doctor_host *host, struct findings *findings)
{
	char online[DOCTOR_TEXT_BYTES], allowed[DOCTOR_TEXT_BYTES];
	tree_online(host, online);
	if (!status_value(host, "Cpus_allowed_list", allowed)) {
		finding_add(findings, "cpuset", FINDING_UNKNOWN, "/proc/%s/status does not say",
			    host->process);
		return;
	}
	long here = list_count(allowed), all = list_count(online);
	if (here >= all)
		finding_add(findings, "cpuset", FINDING_OK, "all %ld CPUs", all);
	else if (here >= 2)
		finding_add(findings, "cpuset", FINDING_NOTE, "%ld of %ld CPUs: %.100s", here, all, allowed);
	else
		complain_of_one_cpu(findings, all, allowed);
}

/* A hard limit: the daemon raises its soft ones itself. LLONG_MAX: unlimited. */
static bool hard_limit(const struct doctor_host *host, const char *name, long long *ret)
{
	char text[DOCTOR_TEXT_BYTES], soft[32], hard[32];
	if (!tree_text(host, text, "/proc/%s/limits", host->process))
		return false;
	const char *at = strstr(text, name);
	if (!at || sscanf(at + strlen(name), "%31s %31s", soft, hard) != 2)
		return false;
	*ret = strcmp(hard, "unlimited") ? atoll(hard) : LLONG_MAX;
	return true;
}

static void examine_descriptors(const struct doctor_host *host, struct findings *findings)
{
	long long limit;
	if (!hard_limit(host, "Max open files", &limit)) {
		finding_add(findings, "nofile", FINDING_UNKNOWN, "/proc/%s/limits does not say",
			    host->process);
		return;
	}
	if (limit >= DESCRIPTORS_WANTED) {
		finding_add(findings, "nofile", FINDING_OK, "enough for max_clients = 512");
		return;
	}
	struct finding *f = finding_add(findings, "nofile", FINDING_COSTS, "%lld descriptors", limit);
	finding_cost(f, "no time; clients are refused after about %lld of max_clients = 512", limit / 2);
	finding_fix(f, "LimitNOFILE=65536 in the unit of tokenringd, or ulimit -Hn 65536 before it starts");
}

static void examine_memlock(const struct doctor_host *host, struct findings *findings)
{
	long long limit;
	if (!hard_limit(host, "Max locked memory", &limit))
		finding_add(findings, "memlock", FINDING_UNKNOWN, "/proc/%s/limits does not say",
			    host->process);
	else if (limit == LLONG_MAX)
		finding_add(findings, "memlock", FINDING_OK, "unlimited");
	else
		finding_cost(finding_add(findings, "memlock", FINDING_NOTE, "%lld KiB", limit / 1024),
			     "nothing: this version locks no memory; see swap");
}

void doctor_limits(const struct doctor_host *host, struct findings *findings)
{
	examine_quota(host, findings);
	examine_memory(host, findings);
	examine_cpuset(host, findings);
	examine_memlock(host, findings);
	examine_descriptors(host, findings);
}
