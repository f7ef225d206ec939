/* Three hosts as tokenring doctor sees them: the files that it reads, with what they held. */
#ifndef TOKENRING_TESTS_UNIT_DOCTOR_TREES_H
#define TOKENRING_TESTS_UNIT_DOCTOR_TREES_H

struct tree_file {
	const char *path, *text;
};

#define CPU   "sys/devices/system/cpu/"
#define CLOCK "sys/devices/system/clocksource/clocksource0/"
#define THP   "sys/kernel/mm/transparent_hugepage/"
#define HUGE  "sys/kernel/mm/hugepages/hugepages-"

#define LIMITS(files, locked)                                                                  \
	"Limit                     Soft Limit           Hard Limit           Units     \n"     \
	"Max cpu time              unlimited            unlimited            seconds   \n"     \
	"Max open files            1024                 " files "                files     \n" \
	"Max locked memory         65536                " locked "            bytes     \n"

#define SWAPS "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"

/* Two sockets, tuned: SMT off, CPUs 2-3 isolated without a tick, interrupts elsewhere, huge pages on both
 * nodes. */
static const struct tree_file tuned_server[] = {
    {"proc/sys/kernel/osrelease", "6.18.2-amd64\n"},
    {"proc/sys/kernel/numa_balancing", "0\n"},
    {"proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme de pse tsc msr constant_tsc\n"},
    {"proc/stat", "cpu  100 0 100 9800 0 0 0 0 0 0\n"},
    {"proc/swaps", SWAPS "\n"},
    {"proc/self/status", "Name:\ttokenring\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n"},
    {"proc/self/limits", LIMITS("65536", "unlimited")},
    {"proc/self/cgroup", "0::/system.slice/tokenringd.service\n"},
    {"sys/fs/cgroup/system.slice/tokenringd.service/cpu.max", "max 100000\n"},
    {"sys/fs/cgroup/system.slice/tokenringd.service/memory.max", "max\n"},
    {"proc/irq/24/effective_affinity_list", "0\n"},
    {"proc/irq/25/effective_affinity_list", "1\n"},
    {"proc/irq/26/smp_affinity_list", "0-1\n"},
    {CLOCK "current_clocksource", "tsc\n"},
    {CLOCK "available_clocksource", "tsc hpet acpi_pm \n"},
    {CPU "online", "0-3\n"},
    {CPU "isolated", "2-3\n"},
    {CPU "nohz_full", "2-3\n"},
    {CPU "smt/active", "0\n"},
    {CPU "smt/control", "off\n"},
    {CPU "vulnerabilities/meltdown", "Not affected\n"},
    {CPU "vulnerabilities/spectre_v1", "Not affected\n"},
    {CPU "cpu0/cpufreq/scaling_governor", "performance\n"},
    {CPU "cpu1/cpufreq/scaling_governor", "performance\n"},
    {CPU "cpu2/cpufreq/scaling_governor", "performance\n"},
    {CPU "cpu3/cpufreq/scaling_governor", "performance\n"},
    {CPU "cpu0/cpufreq/energy_performance_preference", "performance\n"},
    {CPU "cpu0/cpuidle/state0/latency", "0\n"},
    {CPU "cpu0/cpuidle/state0/name", "POLL\n"},
    {CPU "cpu0/cpuidle/state0/disable", "0\n"},
    {CPU "cpu0/cpuidle/state1/latency", "2\n"},
    {CPU "cpu0/cpuidle/state1/name", "C1E\n"},
    {CPU "cpu0/cpuidle/state1/disable", "0\n"},
    {CPU "cpu0/cpuidle/state2/latency", "133\n"},
    {CPU "cpu0/cpuidle/state2/name", "C6\n"},
    {CPU "cpu0/cpuidle/state2/disable", "1\n"},
    {THP "enabled", "always [madvise] never\n"},
    {HUGE "2048kB/nr_hugepages", "128\n"},
    {HUGE "2048kB/free_hugepages", "120\n"},
    {HUGE "1048576kB/nr_hugepages", "2\n"},
    {HUGE "1048576kB/free_hugepages", "2\n"},
    {"sys/devices/system/node/online", "0-1\n"},
    {"sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "60\n"},
    {"sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "60\n"},
};

/* A laptop as it comes: four threads on two cores, powersave, deep idle states, Debian 12's kernel, swap. */
static const struct tree_file laptop[] = {
    {"proc/sys/kernel/osrelease", "6.1.0-57-amd64\n"},
    {"proc/sys/kernel/numa_balancing", "1\n"},
    {"proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme de pse tsc msr constant_tsc\n"},
    {"proc/stat", "cpu  100 0 100 9800 0 0 0 0 0 0\n"},
    {"proc/swaps", SWAPS "\n/dev/dm-2                               partition\t1003516\t\t0\t\t-2\n"},
    {"proc/self/status", "Name:\ttokenring\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n"},
    {"proc/self/limits", LIMITS("1048576", "8388608")},
    {"proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n"},
    {"proc/irq/9/effective_affinity_list", "2\n"},
    {"proc/irq/120/effective_affinity_list", "3\n"},
    {CLOCK "current_clocksource", "hpet\n"},
    {CLOCK "available_clocksource", "hpet acpi_pm \n"},
    {CPU "online", "0-3\n"},
    {CPU "isolated", "\n"},
    {CPU "smt/active", "1\n"},
    {CPU "smt/control", "on\n"},
    {CPU "vulnerabilities/meltdown", "Mitigation: PTI\n"},
    {CPU "vulnerabilities/mds", "Vulnerable: Clear CPU buffers attempted, no microcode\n"},
    {CPU "vulnerabilities/spectre_v1", "Mitigation: usercopy/swapgs barriers\n"},
    {CPU "vulnerabilities/tsa", "Not affected\n"},
    {CPU "cpu0/cpufreq/scaling_governor", "performance\n"},
    {CPU "cpu1/cpufreq/scaling_governor", "powersave\n"},
    {CPU "cpu2/cpufreq/scaling_governor", "powersave\n"},
    {CPU "cpu3/cpufreq/scaling_governor", "powersave\n"},
    {CPU "cpu0/cpufreq/energy_performance_preference", "balance_power\n"},
    {CPU "cpu0/cpuidle/state0/latency", "0\n"},
    {CPU "cpu0/cpuidle/state0/name", "POLL\n"},
    {CPU "cpu0/cpuidle/state1/latency", "2\n"},
    {CPU "cpu0/cpuidle/state1/name", "C1\n"},
    {CPU "cpu0/cpuidle/state2/latency", "1034\n"},
    {CPU "cpu0/cpuidle/state2/name", "C10\n"},
    {CPU "cpu0/cpuidle/state2/disable", "0\n"},
    {THP "enabled", "always madvise [never]\n"},
    {HUGE "2048kB/nr_hugepages", "0\n"},
    {HUGE "2048kB/free_hugepages", "0\n"},
    {"sys/devices/system/node/online", "0\n"},
};

/* A container on a virtual machine: old kernel, a quarter of a CPU short of two, one CPU, 512 MiB, cgroup v1
 * for the CPU, few descriptors, no view of the CPU's files. */
static const struct tree_file container[] = {
    {"proc/sys/kernel/osrelease", "5.10.0-33-cloud-amd64\n"},
    {"proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme tsc hypervisor lahf_lm\n"},
    {"proc/stat", "cpu  1000 0 1000 7500 0 0 0 500 0 0\n"},
    {"proc/swaps", SWAPS "\n"},
    {"proc/self/status", "Name:\ttokenring\nCpus_allowed:\t4\nCpus_allowed_list:\t2\n"},
    {"proc/self/limits", LIMITS("1024", "65536")},
    {"proc/self/cgroup", "7:cpu,cpuacct:/docker/1f\n4:memory:/docker/1f\n0::/\n"},
    {"sys/fs/cgroup/cpu/docker/1f/cpu.cfs_quota_us", "-1\n"},
    {"sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "175000\n"},
    {"sys/fs/cgroup/cpu/docker/cpu.cfs_period_us", "100000\n"},
    {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
    {"sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes", "536870912\n"},
    {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
    {CPU "online", "0-3\n"},
    {CLOCK "current_clocksource", "xen\n"},
    {CLOCK "available_clocksource", "xen tsc hpet \n"},
    {THP "enabled", "[always] madvise never\n"},
    {HUGE "2048kB/nr_hugepages", "16\n"},
    {HUGE "2048kB/free_hugepages", "0\n"},
};

#endif
