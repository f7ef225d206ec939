#include "kernels/cpu/peak.h"

#include <errno.h>
#include <time.h>

#include "kernels/cpu/detect.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/pool.h"

enum { PASSES_MIN = 5, PASSES_MAX = 1000, READ_UNIT = 4096 };
static const double PEAK_SECONDS = 0.25;

struct peak {
	const struct cpu_isa *isa;
	const uint8_t *memory;
	size_t bytes;
	uint32_t rounds;
	uint64_t products; /* of one thread's pass */
	uint32_t sink;     /* keeps the reads */
};

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void read_slice(void *data, struct team_thread *self)
{
	struct peak *peak = data;
	uint32_t first, end;

	pool_share(self->index, self->threads, (uint32_t)(peak->bytes / READ_UNIT), &first, &end);
	uint32_t sum =
	    peak->isa->read(peak->memory + (size_t)first * READ_UNIT, (size_t)(end - first) * READ_UNIT);
	if (self->index == 0)
		peak->sink ^= sum;
}

static void multiply(void *data, struct team_thread *self)
{
	struct peak *peak = data;
	uint64_t products = peak->isa->int8_peak(peak->rounds);

	if (self->index == 0)
		peak->products = products;
}

/* The shortest pass, after one that warms up. */
static double best_pass(struct pool *pool, void (*pass)(void *, struct team_thread *), struct peak *peak)
{
	double start = seconds(), best = 1e9;

	pool_run(pool, pass, peak);
	for (int i = 0; i < PASSES_MAX && (i < PASSES_MIN || seconds() - start < PEAK_SECONDS); i++) {
		double before = seconds();
		pool_run(pool, pass, peak);
		double took = seconds() - before;
		best = took < best ? took : best;
	}
	return best;
}

static int open_team(const char *isa, uint32_t threads, const int *cpus, struct peak *peak, struct pool **ret)
{
	struct pool_config config = {.threads = threads, .cpus = cpus};
	char why[128];
	int r = threads ? detect_isa(isa, &peak->isa, why, sizeof why) : -EINVAL;

	return r < 0 ? r : pool_open(&config, ret, why, sizeof why);
}

int cpu_peak_read(size_t bytes, uint32_t threads, const int *cpus, double *ret_bytes_per_s)
{
	struct peak peak = {.bytes = bytes / READ_UNIT * READ_UNIT};
	struct pool *pool = NULL;

	if (!peak.bytes || peak.bytes / READ_UNIT > UINT32_MAX)
		return -EINVAL;
	void *memory = memory_map(peak.bytes + 2 * READ_UNIT, true); /* prefetches run past the end */
	if (!memory)
		return -ENOMEM;
	peak.memory = memory;
	int r = open_team("auto", threads, cpus, &peak, &pool);
	if (r == 0)
		*ret_bytes_per_s = (double)peak.bytes / best_pass(pool, read_slice, &peak);
	pool_close(pool);
	memory_unmap(memory, peak.bytes + 2 * READ_UNIT);
	return r;
}

int cpu_peak_int8(const char *isa, uint32_t threads, const int *cpus, double *ret_ops_per_s)
{
	struct peak peak = {0};
	struct pool *pool = NULL;
	int r = open_team(isa, threads, cpus, &peak, &pool);

	if (r < 0)
		return r;
	/* About a millisecond a pass: long beside the start of a job, short beside an interruption. */
	peak.rounds = peak.isa->macs_per_us * 10 / 640 * 1000 / 10;
	double took = best_pass(pool, multiply, &peak);
	*ret_ops_per_s = 2.0 * (double)peak.products * threads / took;
	pool_close(pool);
	return 0;
}
