/* What cgroups leave a process: CPU time (versions 1 and 2) and CPUs (version 2). */
#include <stdlib.h>
#include <string.h>

#include "numa/topology_internal.h"

static void lower_quota(double cpus, double *quota)
{
	if (cpus > 0 && (*quota == 0 || cpus < *quota))
		*quota = cpus;
}

static void read_cpu_max(const char *root, const char *group, double *quota)
{
	char text[TEXT_BYTES];
	double cpus;

	if (read_text(text, "%s/sys/fs/cgroup%s/cpu.max", root, group) && parse_cpu_max(text, &cpus))
		lower_quota(cpus, quota);
}

static void read_cfs_quota(const char *root, const char *group, double *quota)
{
	int64_t limit, period;

	if (read_number(&limit, "%s/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", root, group) &&
	    read_number(&period, "%s/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", root, group) && period > 0)
		lower_quota((double)limit / (double)period, quota);
}

/* The group and everything above it limit the process. */
static void read_up(const char *root, char *group, void (*read)(const char *, const char *, double *),
		    double *quota)
{
	if (!strcmp(group, "/"))
		*group = 0;
	for (;;) {
		read(root, group, quota);
		char *slash = strrchr(group, '/');
		if (!slash)
			return;
		*slash = 0;
	}
}

/* The next line "id:controllers:path" of /proc/self/cgroup; version 2 has no controllers. */
static bool next_group(char **rest, char **ret_controllers, char **ret_path)
{
	char *line;

	while ((line = strsep(rest, "\n")) != NULL) {
		char *controllers = strchr(line, ':'),
		     *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*path = 0;
		*ret_controllers = controllers + 1;
		*ret_path = path + 1;
		return true;
	}
	return false;
}

static bool has_cpu_controller(const char *controllers)
{
	return !strcmp(controllers, "cpu") || !strncmp(controllers, "cpu,", 4) || strstr(controllers, ",cpu");
}

/* In a container the path may not exist below its own /sys/fs/cgroup: the root of that mount is looked at in
 * any case. */
double read_quota(const char *root)
{
	char text[TEXT_BYTES], *rest = text, *controllers, *path;
	double quota = 0;

	if (!read_text(text, "%s/proc/self/cgroup", root))
		return 0;
	while (next_group(&rest, &controllers, &path))
		if (!*controllers)
			read_up(root, path, read_cpu_max, &quota);
		else if (has_cpu_controller(controllers))
			read_up(root, path, read_cfs_quota, &quota);
	return quota;
}

bool read_cpuset(const char *root, struct id_set *ret)
{
	char text[TEXT_BYTES], *rest = text, *controllers, *path;

	if (!read_text(text, "%s/proc/self/cgroup", root))
		return false;
	while (next_group(&rest, &controllers, &path))
		if (!*controllers)
			return read_list(ret, "%s/sys/fs/cgroup%s/cpuset.cpus.effective", root, path);
	return false;
}
