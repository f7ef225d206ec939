#include "tools/cli/cpus.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* utime and stime are fields 14 and 15 of proc_pid_stat(5), processor is 39; the name before them may hold
 * blanks and parentheses, so counting begins after the last ')'. */
static int parse_stat(const char *stat, uint64_t *ret_ticks, int *ret_cpu)
{
	uint64_t user = 0, system = 0;
	const char *at = strrchr(stat, ')');
	for (int field = 3; at && field <= 39; field++) {
		at = strchr(at + 1, ' ');
		if (!at)
			return -EINVAL;
		if (field == 14)
			user = strtoull(at, NULL, 10);
		else if (field == 15)
			system = strtoull(at, NULL, 10);
		else if (field == 39)
			*ret_cpu = atoi(at);
	}
	*ret_ticks = user + system;
	return at ? 0 : -EINVAL;
}

/* Nanoseconds on a CPU, finer than the ticks of stat; 0 where the kernel does not count them. */
static uint64_t read_run_ns(const char *folder, const char *thread)
{
	char path[512];
	uint64_t ns = 0;
	snprintf(path, sizeof path, "%s/%s/schedstat", folder, thread);
	FILE *file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%" SCNu64, &ns) != 1)
		ns = 0;
	fclose(file);
	return ns;
}

static int read_thread(const char *folder, const char *thread, uint64_t *ret_time, int *ret_cpu)
{
	char path[512], stat[1024];
	snprintf(path, sizeof path, "%s/%s/stat", folder, thread);
	FILE *file = fopen(path, "re");
	if (!file)
		return -errno;
	size_t n = fread(stat, 1, sizeof stat - 1, file);
	fclose(file);
	stat[n] = 0;
	int r = parse_stat(stat, ret_time, ret_cpu);
	uint64_t run_ns = read_run_ns(folder, thread);
	if (run_ns)
		*ret_time = run_ns;
	return r;
}

int cpus_read(pid_t process, struct cpu_times *ret)
{
	char folder[64];
	struct dirent *entry;
	snprintf(folder, sizeof folder, "/proc/%d/task", (int)process);
	DIR *threads = opendir(folder);
	if (!threads)
		return -errno;
	ret->n = 0;
	while (ret->n < CPUS_THREADS_MAX && (entry = readdir(threads))) {
		uint64_t time;
		int cpu;
		if (entry->d_name[0] == '.' || read_thread(folder, entry->d_name, &time, &cpu))
			continue;
		ret->thread[ret->n].thread = (pid_t)atoi(entry->d_name);
		ret->thread[ret->n].cpu = cpu;
		ret->thread[ret->n++].ticks = time;
	}
	closedir(threads);
	return 0;
}

static uint64_t time_before(const struct cpu_times *times, pid_t thread)
{
	for (unsigned i = 0; i < times->n; i++)
		if (times->thread[i].thread == thread)
			return times->thread[i].ticks;
	return 0;
}

int cpus_busiest(const struct cpu_times *before, const struct cpu_times *after)
{
	uint64_t most = 0;
	int cpu = -1;
	for (unsigned i = 0; i < after->n; i++) {
		uint64_t worked = after->thread[i].ticks - time_before(before, after->thread[i].thread);
		if (worked > most) {
			most = worked;
			cpu = after->thread[i].cpu;
		}
	}
	return cpu;
}

static int topology(int cpu, const char *name)
{
	char path[128];
	int value = -1;
	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
	FILE *file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%d", &value) != 1)
		value = -1;
	fclose(file);
	return value;
}

bool cpus_share_core(int a, int b)
{
	int core = topology(a, "core_id");
	return a == b || (core >= 0 && core == topology(b, "core_id") &&
			  topology(a, "physical_package_id") == topology(b, "physical_package_id"));
}

int cpus_pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	return sched_setaffinity(0, sizeof set, &set) ? -errno : 0;
}

unsigned cpus_allowed(int *cpus, unsigned max)
{
	cpu_set_t set;
	unsigned n = 0;
	if (sched_getaffinity(0, sizeof set, &set))
		return 0;
	for (int cpu = 0; cpu < CPU_SETSIZE && n < max; cpu++)
		if (CPU_ISSET((unsigned)cpu, &set))
			cpus[n++] = cpu;
	return n;
}
