/* Which CPU the daemon's front runs on, and which one to run beside it. */
#ifndef TOKENRING_TOOLS_CLI_CPUS_H
#define TOKENRING_TOOLS_CLI_CPUS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CPUS_THREADS_MAX = 1024 };

/* The CPU time of a process's threads at one moment, from /proc. */
struct cpu_times {
	unsigned n;
	struct {
		pid_t thread;
		int cpu; /* the one it ran on last */
		uint64_t ticks;
	} thread[CPUS_THREADS_MAX];
};

/* Negative errno if /proc does not show the process. */
int cpus_read(pid_t process, struct cpu_times *ret);

/* The CPU of the thread that has worked most between the two readings; -1 if none has. */
int cpus_busiest(const struct cpu_times *before, const struct cpu_times *after);

/* Whether two CPUs are threads of one core, as far as the kernel knows. */
bool cpus_share_core(int a, int b);

/* Pins the calling thread. Negative errno. */
int cpus_pin(int cpu);

/* Allowed CPUs in ascending order; returns how many, at most `max`. */
unsigned cpus_allowed(int *cpus, unsigned max);

#endif
