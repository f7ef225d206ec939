/* What tokenring doctor finds on three recorded hosts, and on what is changed in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/scratch.h"
#include "tests/unit/doctor_trees.h"
#include "tools/cli/doctor.h"
#include "tools/cli/doctor_tree.h"

#define PLANT(tree) plant(tree, sizeof tree / sizeof *tree)

static char root[64];
static struct findings findings;
static struct doctor_host host;

static int setup(void **state)
{
	host = (struct doctor_host){
	    .root = root, .process = "self", .socket = "/run/tokenring/socket", .version = "1.2.3"};
	host.spin =
	    (struct doctor_spin){.measured = true, .cpu = 3, .spun_ns = 200000000, .clock_read_ns = 20};
	host.daemon = (struct doctor_daemon){.asked = true, .pid = 7, .version = "1.2.3", .state = "ready"};
	return mkdtemp(scratch_path(root, sizeof root, "tokenring-doctor")) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];
	snprintf(command, sizeof command, "rm -rf %s", root);
	return system(command);
}

static void put_bytes(const char *path, const void *data, size_t bytes)
{
	char full[256];
	snprintf(full, sizeof full, "%s/%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(full, 0700);
		*slash = '/';
	}
	FILE *file = fopen(full, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, bytes, file), bytes);
	fclose(file);
}

static void put(const char *path, const char *text)
{
	put_bytes(path, text, strlen(text));
}

static void plant(const struct tree_file *files, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(files[i].path, files[i].text);
}

static const struct finding *find(const char *item)
{
	doctor_examine(&host, &findings);
	for (size_t i = 0; i < findings.n; i++)
		if (!strcmp(findings.finding[i].item, item))
			return &findings.finding[i];
	fail_msg("no finding %s", item);
	return NULL;
}

/* A part of a finding that must be there; NULL: it must be empty. */
static void has(const char *item, const char *text, const char *part)
{
	if (part ? !strstr(text, part) : *text != 0)
		fail_msg("%s says \"%s\" instead of \"%s\"", item, text, part ? part : "");
}

static void expect(const char *item, enum finding_state state, const char *found, const char *cost,
		   const char *fix)
{
	const struct finding *f = find(item);
	if (f->state != state)
		fail_msg("%s has state %d instead of %d: %s", item, f->state, state, f->found);
	has(item, f->found, found);
	has(item, f->cost, cost);
	has(item, f->fix, fix);
}

static void a_tuned_server_has_nothing_to_complain_of(void **state)
{
	PLANT(tuned_server);
	put("run/tokenring/socket", "");
	doctor_examine(&host, &findings);
	assert_true(findings.n >= 20);
	for (size_t i = 0; i < findings.n; i++) {
		const struct finding *f = &findings.finding[i];
		if (f->state != FINDING_OK)
			fail_msg("%s: state %d, %s", f->item, f->state, f->found);
		has(f->item, f->cost, NULL);
		has(f->item, f->fix, NULL);
	}
	expect("idle-states", FINDING_OK, "deepest C1E, 2 us", NULL, NULL);
	expect("clock", FINDING_OK, "tsc, 20 ns a read", NULL, NULL);
	expect("huge-pages-2m", FINDING_OK, "120 of 128 free: 60 on node 0, 60 on node 1", NULL, NULL);
	expect("interrupts", FINDING_OK, "3, none on the isolated CPUs", NULL, NULL);
	expect("daemon", FINDING_OK, "version 1.2.3, process 7, model ready", NULL, NULL);
}

static void each_thing_that_is_changed_on_the_server_is_found(void **state)
{
	PLANT(tuned_server);
	put("proc/sys/kernel/numa_balancing", "1\n");
	expect("numa-balancing", FINDING_COSTS, "on, 2 nodes", "page faults",
	       "sysctl -w kernel.numa_balancing=0");
	put("proc/irq/24/effective_affinity_list", "3\n");
	expect("interrupts", FINDING_COSTS, "1 of 3 may come to the isolated CPUs, among them 24", "us",
	       "smp_affinity_list");
	put(CPU "nohz_full", "(null)\n");
	expect("isolated-cpus", FINDING_COSTS, "2-3, but the tick still runs there (nohz_full: none)", "tick",
	       "nohz_full=2-3");
	put("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "0\n");
	expect("huge-pages-2m", FINDING_NOTE, "120 of 128 free: 60 on node 0, 0 on node 1", "echoes",
	       "echo 64 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages");
	put(CPU "cpu0/cpuidle/state2/disable", "0\n");
	expect("idle-states", FINDING_COSTS, "1 CPU may sleep as deep as C6", "up to 133 us",
	       "cpupower idle-set -D 10");
	put("sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n");
	expect("cgroup-cpu", FINDING_COSTS, "1.5 CPUs", "100 ms",
	       "echo max > /sys/fs/cgroup/system.slice/cpu.max");
	put("sys/fs/cgroup/system.slice/tokenringd.service/memory.max", "1610612736\n");
	expect("cgroup-memory", FINDING_NOTE, "1.50 GiB", "refused", NULL);
}

static void whole_isolated_cores_do_not_mind_smt(void **state)
{
	PLANT(tuned_server);
	put(CPU "smt/active", "1\n");
	put(CPU "cpu2/topology/thread_siblings_list", "2-3\n");
	put(CPU "cpu3/topology/thread_siblings_list", "2-3\n");
	expect("smt", FINDING_OK, "whole cores", NULL, NULL);
	put(CPU "cpu3/topology/thread_siblings_list", "1,3\n");
	expect("smt", FINDING_COSTS, "two threads a core", "sibling",
	       "echo off > /sys/devices/system/cpu/smt/control");
}

static void a_held_latency_limit_is_as_good_as_disabled_states(void **state)
{
	int32_t limit = 0, shallow = 100, none = 2000000000;
	PLANT(laptop);
	put_bytes("dev/cpu_dma_latency", &none, sizeof none);
	expect("idle-states", FINDING_COSTS, "C10", "up to 1034 us", "cpupower");
	put(CPU "cpu0/cpuidle/state3/latency", "90\n");
	put(CPU "cpu0/cpuidle/state3/name", "C6\n");
	put_bytes("dev/cpu_dma_latency", &shallow, sizeof shallow);
	expect("idle-states", FINDING_COSTS, "as deep as C6", "up to 90 us", "cpupower");
	put_bytes("dev/cpu_dma_latency", &limit, sizeof limit);
	expect("idle-states", FINDING_OK, "holds /dev/cpu_dma_latency at 0 us", NULL, NULL);
}

static void a_laptop_costs_latency_in_many_ways(void **state)
{
	PLANT(laptop);
	expect("kernel", FINDING_NOTE,
	       "6.1.0-57-amd64 lacks MFD_NOEXEC_SEAL (6.3), SO_PEERPIDFD (6.5), SO_PASSRIGHTS (6.16)",
	       "descriptors", "6.16");
	expect("clock", FINDING_COSTS, "hpet", "system call", "unstable");
	expect("hypervisor", FINDING_OK, "none", NULL, NULL);
	expect("governor", FINDING_COSTS, "powersave on 3 of 4 CPUs", "clock rate",
	       "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor");
	expect("energy-preference", FINDING_COSTS, "balance_power on 1 of 1", "clock rate",
	       "energy_performance_preference");
	expect("smt", FINDING_COSTS, "two threads a core", "sibling", "smt/control");
	expect("isolated-cpus", FINDING_COSTS, "none", "gaps", "isolcpus=managed_irq,domain,2-3");
	expect("interrupts", FINDING_NOTE, "2, on any CPU", NULL, NULL);
	expect("mitigations", FINDING_NOTE, "2 of 4 faults are mitigated, 1 are open", "no system call",
	       "mitigations=off");
	expect("thp", FINDING_COSTS, "never", "4 KiB: 5 to 22 % fewer",
	       "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
	expect("huge-pages-2m", FINDING_COSTS, "none is reserved", "echoes", "sysctl -w vm.nr_hugepages=64");
	expect("huge-pages-1g", FINDING_NOTE, "none", NULL, NULL);
	expect("numa-balancing", FINDING_OK, "on, 1 node", NULL, NULL);
	expect("swap", FINDING_COSTS, "1 area", "disk", "swapoff -a");
	expect("memlock", FINDING_NOTE, "8192 KiB", "nothing", NULL);
	expect("nofile", FINDING_OK, "enough", NULL, NULL);
}

static void a_container_shows_its_limits(void **state)
{
	PLANT(container);
	expect("kernel", FINDING_WRONG, "lacks MADV_POPULATE_WRITE (5.14), MADV_COLLAPSE (6.1)",
	       "cannot be set up", "6.16");
	expect("clock", FINDING_COSTS, "xen", "system call",
	       "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource");
	expect("hypervisor", FINDING_COSTS, "5.00 %", "gaps", "dedicated");
	expect("governor", FINDING_UNKNOWN, "not shown", NULL, NULL);
	expect("idle-states", FINDING_COSTS, "halts", "53 us instead of 15 us",
	       "exec 3>/dev/cpu_dma_latency; printf \"\\0\\0\\0\\0\" >&3");
	expect("smt", FINDING_UNKNOWN, "not show", NULL, NULL);
	expect("mitigations", FINDING_UNKNOWN, "not show", NULL, NULL);
	expect("interrupts", FINDING_UNKNOWN, "cannot be read", NULL, NULL);
	expect("thp", FINDING_OK, "always", NULL, NULL);
	expect("huge-pages-2m", FINDING_NOTE, "all are taken", "echoes", "sysctl -w vm.nr_hugepages=80");
	expect("cgroup-cpu", FINDING_COSTS, "1.75 CPUs", "100 ms",
	       "echo -1 > /sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us");
	expect("cgroup-memory", FINDING_NOTE, "0.50 GiB", "refused", NULL);
	expect("cpuset", FINDING_COSTS, "one of 4 CPUs: 2", "take turns", "AllowedCPUs=0-3");
	expect("nofile", FINDING_COSTS, "1024 descriptors", "512", "LimitNOFILE");
}

static void gaps_are_those_of_the_spin(void **state)
{
	host.spin.gaps = 12;
	host.spin.lost_ns = 4000000;
	host.spin.longest_ns = 1500000;
	expect("gaps", FINDING_COSTS, "12 over 10 us in 200 ms on CPU 3, the longest 1500 us", "2.00 %",
	       "isolated-cpus");
	host.spin.measured = false;
	expect("gaps", FINDING_UNKNOWN, "not measured", NULL, NULL);
}

static void an_empty_tree_is_unknown_not_healthy(void **state)
{
	host.spin.measured = host.daemon.asked = false;
	doctor_examine(&host, &findings);
	for (size_t i = 0; i < findings.n; i++)
		if (!strcmp(findings.finding[i].item, "kernel") ||
		    !strcmp(findings.finding[i].item, "cgroup-cpu") ||
		    !strcmp(findings.finding[i].item, "swap") || !strcmp(findings.finding[i].item, "daemon"))
			assert_int_equal(findings.finding[i].state, FINDING_UNKNOWN);
}

static void the_daemon_is_named_with_what_is_wrong(void **state)
{
	host.daemon.error = -ENOENT;
	expect("daemon", FINDING_NOTE, "none runs", NULL, "systemctl start tokenringd");
	host.daemon.error = -ETIMEDOUT;
	expect("daemon", FINDING_WRONG, "no answer: Connection timed out", NULL,
	       "systemctl restart tokenringd");
	host.daemon.error = -EPROTONOSUPPORT;
	expect("daemon", FINDING_WRONG, "another version of the channel", NULL,
	       "systemctl restart tokenringd");
	host.daemon.error = 0;
	strcpy(host.daemon.version, "1.2.2");
	expect("daemon", FINDING_WRONG, "it is of version 1.2.2, but this is 1.2.3", NULL, "install both");
}

static void a_folder_that_everybody_may_write_is_wrong_unless_sticky(void **state)
{
	char folder[128];
	snprintf(folder, sizeof folder, "%s/run/tokenring", root);
	expect("socket", FINDING_NOTE, "No such file", NULL, NULL);
	put("run/tokenring/socket", "");
	assert_int_equal(chmod(folder, 0777), 0);
	expect("socket", FINDING_WRONG, "every user may replace it", NULL, "chmod o-w");
	assert_int_equal(chmod(folder, 01777), 0);
	expect("socket", FINDING_OK, "/run/tokenring/socket, mode 0", NULL, NULL);
}

static void lists_of_cpus_are_read(void **state)
{
	char word[16];
	assert_int_equal(list_count("0-3,8,10-11"), 7);
	assert_int_equal(list_count("0-99999999999"), 0);
	assert_int_equal(list_count("5-2"), 0);
	assert_true(list_has("0-3,8", 8));
	assert_false(list_has("0-3,8", 7));
	assert_false(list_has("", 0));
	assert_true(list_within("1,3", "0-3"));
	assert_false(list_within("1,4", "0-3"));
	chosen_word("always [madvise] never", word, sizeof word);
	assert_string_equal(word, "madvise");
	chosen_word("always", word, sizeof word);
	assert_string_equal(word, "");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(a_tuned_server_has_nothing_to_complain_of),
	    CASE(each_thing_that_is_changed_on_the_server_is_found),
	    CASE(whole_isolated_cores_do_not_mind_smt),
	    CASE(a_held_latency_limit_is_as_good_as_disabled_states),
	    CASE(a_laptop_costs_latency_in_many_ways),
	    CASE(a_container_shows_its_limits),
	    CASE(gaps_are_those_of_the_spin),
	    CASE(an_empty_tree_is_unknown_not_healthy),
	    CASE(the_daemon_is_named_with_what_is_wrong),
	    CASE(a_folder_that_everybody_may_write_is_wrong_unless_sticky),
	    CASE(lists_of_cpus_are_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
