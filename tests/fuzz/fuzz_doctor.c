/* Any bytes in the files of a host, which may be another's: doctor finds something to say of every item, in
 * whole sentences. Files are parted by an empty line, in the order of `paths`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/harness/scratch.h"
#include "tools/cli/doctor.h"

enum { ITEMS = 23 };

static const char *const paths[] = {
    "proc/sys/kernel/osrelease",
    "proc/self/cgroup",
    "proc/self/limits",
    "proc/self/status",
    "proc/stat",
    "proc/swaps",
    "proc/cpuinfo",
    "proc/irq/9/smp_affinity_list",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/nohz_full",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/latency",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/name",
    "sys/devices/system/cpu/vulnerabilities/mds",
    "sys/devices/system/node/online",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
    "sys/fs/cgroup/cpu.max",
    "dev/cpu_dma_latency",
};

enum { N_PATHS = sizeof paths / sizeof *paths };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char root[64];

static void remove_root(void)
{
	char command[128];
	snprintf(command, sizeof command, "rm -rf %s", root);
	if (system(command))
		abort();
}

static void put(const char *path, const uint8_t *data, size_t size)
{
	char full[256];
	snprintf(full, sizeof full, "%s/%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(full, 0700);
		*slash = '/';
	}
	FILE *file = fopen(full, "w");
	if (!file || fwrite(data, 1, size, file) != size || fclose(file))
		abort();
}

static void plant(const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < N_PATHS; i++) {
		const uint8_t *end = size ? memmem(data, size, "\n\n", 2) : NULL;
		size_t bytes = end ? (size_t)(end - data) : size;
		put(paths[i], data, bytes);
		data += end ? bytes + 2 : bytes;
		size -= end ? bytes + 2 : bytes;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct findings findings;
	struct doctor_host host = {.root = root, .process = "self", .socket = "/run/none", .version = "1"};
	if (!*root && (!mkdtemp(scratch_path(root, sizeof root, "tokenring-doctor")) || atexit(remove_root)))
		abort();
	plant(data, size);
	doctor_examine(&host, &findings);
	if (findings.n != ITEMS)
		abort();
	for (size_t i = 0; i < ITEMS; i++)
		if (!*findings.finding[i].found || findings.finding[i].state > FINDING_WRONG)
			abort();
	return 0;
}
