/* The two ends of a pair: fork, pin, run the slices that are ordered. */
#include "tools/bench/pair.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tools/bench_floor.h"

void *pair_memory(size_t bytes)
{
	const size_t huge = 2 << 20, rounded = (bytes + huge - 1) / huge * huge;
	const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE;
	void *at = mmap(NULL, rounded, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0);
	if (at == MAP_FAILED)
		at = mmap(NULL, rounded, PROT_READ | PROT_WRITE, flags, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static int read_order(int fd, struct pair_order *ret)
{
	char *to = (char *)ret;
	size_t left = sizeof *ret;
	while (left) {
		ssize_t n = read(fd, to, left);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EPIPE;
		to += n;
		left -= (size_t)n;
	}
	return 0;
}

static int write_all(int fd, const void *from, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, from, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		from = (const char *)from + n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int serve_far(const struct pair_transport *t, int orders)
{
	struct pair_order order;
	int r = t->open(false);
	while (!r && !(r = read_order(orders, &order))) {
		pin(order.far_cpu);
		r = t->far(&order);
	}
	return r == -EPIPE ? 0 : 1;
}

static int serve_near(const struct pair_transport *t, int orders, int results, int far)
{
	static struct floor_trips trips;
	struct pair_order order;
	int r = t->open(true);
	while (!r && !(r = read_order(orders, &order))) {
		memset(&trips, 0, sizeof trips);
		pin(order.near_cpu);
		r = write_all(far, &order, sizeof order);
		if (!r)
			r = t->near(&order, &trips);
		if (!r)
			r = write_all(results, &trips, sizeof trips);
	}
	return r == -EPIPE ? 0 : 1;
}

int pair_serve(const struct pair_transport *transport, int orders, int results)
{
	int far[2];
	if ((transport->prepare && transport->prepare()) || pipe(far))
		return 1;
	pid_t child = fork();
	if (child < 0)
		return 1;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(far[1]);
		close(orders);
		close(results);
		_exit(serve_far(transport, far[0]));
	}
	close(far[0]);
	int code = serve_near(transport, orders, results, far[1]);
	kill(child, SIGKILL);
	return code;
}
