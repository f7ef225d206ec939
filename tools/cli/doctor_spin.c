/* tokenring doctor: a pinned thread that does nothing but read the clock sees whoever else takes its CPU. */
#include <sched.h>
#include <time.h>

#include "tools/cli/doctor.h"

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void spin(struct doctor_spin *spin)
{
	uint64_t start = now_ns(), last = start, reads = 0;
	while (last - start < DOCTOR_SPIN_NS) {
		uint64_t now = now_ns(), gap = now - last;
		reads++;
		last = now;
		if (gap < DOCTOR_GAP_NS)
			continue;
		spin->gaps++;
		spin->lost_ns += gap;
		if (gap > spin->longest_ns)
			spin->longest_ns = gap;
	}
	spin->spun_ns = last - start;
	spin->clock_read_ns = (spin->spun_ns - spin->lost_ns) / reads;
}

static int last_cpu(const cpu_set_t *set)
{
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET((unsigned)cpu, set))
			return cpu;
	return -1;
}

void doctor_spin_measure(struct doctor_spin *ret)
{
	struct doctor_spin result = {.measured = true};
	cpu_set_t before, one;
	if (sched_getaffinity(0, sizeof before, &before))
		return;
	result.cpu = last_cpu(&before);
	CPU_ZERO(&one);
	CPU_SET((unsigned)result.cpu, &one);
	if (result.cpu < 0 || sched_setaffinity(0, sizeof one, &one))
		return;
	spin(&result);
	sched_setaffinity(0, sizeof before, &before);
	*ret = result;
}
