#include "numa/memory.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "numa/topology_internal.h"

/* linux/mman.h; older headers lack some. */
#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26)
#endif
#ifndef MAP_HUGE_1GB
#define MAP_HUGE_1GB (30 << 26)
#endif

enum {
	GUARD_BYTES = 4096,
	PART_BYTES = 16 << 20, /* as many are worth a thread */
	PARTS_MAX = 8,
	PIECE_BYTES =
	    4 << 20, /* at once: who maps memory meanwhile waits for the kernel to be done with it */
};

static const struct {
	size_t bytes;
	int flags; /* of mmap */
	const char *name;
} kinds[] = {
    [NUMA_PAGES_ORDINARY] = {4096, 0, "ordinary pages"},
    [NUMA_PAGES_TRANSPARENT] = {2 << 20, 0, "transparent huge pages"},
    [NUMA_PAGES_2M] = {2 << 20, MAP_HUGETLB | MAP_HUGE_2MB, "2 MiB pages"},
    [NUMA_PAGES_1G] = {1 << 30, MAP_HUGETLB | MAP_HUGE_1GB, "1 GiB pages"},
};

const char *numa_pages_name(enum numa_pages pages)
{
	return kinds[pages].name;
}

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

uint64_t numa_pages_for(size_t bytes, enum numa_pages pages)
{
	size_t mapped = round_up(bytes, kinds[pages].bytes);

	return mapped - bytes <= bytes / 8 ? mapped / kinds[pages].bytes : 0;
}

static int set_policy(void *base, size_t bytes, int mode, uint64_t nodes)
{
	unsigned long mask[2] = {nodes};

	/* The kernel takes one bit less than it is told. */
	return syscall(SYS_mbind, base, bytes, mode, mask, 65ul, 0u) < 0 ? -errno : 0;
}

static bool is_single(uint64_t nodes)
{
	return !(nodes & (nodes - 1));
}

int numa_prefer(void *base, size_t bytes, uint64_t nodes)
{
	return set_policy(base, bytes, is_single(nodes) ? MPOL_PREFERRED : MPOL_INTERLEAVE, nodes);
}

/* ---- putting pages in ---- */

/* The kernel clears pages on the thread that asks for them, one after the other: hundreds of MiB take a start
 * less time on several CPUs. */
struct part {
	char *base;
	size_t bytes;
	int error;
	pthread_t thread;
	bool started;
};

static void *populate_part(void *data)
{
	struct part *part = data;

	for (size_t at = 0, bytes; at < part->bytes && !part->error; at += bytes) {
		bytes = part->bytes - at < PIECE_BYTES ? part->bytes - at : PIECE_BYTES;
		if (madvise(part->base + at, bytes, MADV_POPULATE_WRITE) < 0)
			part->error = -errno;
	}
	return NULL;
}

static unsigned count_parts(size_t bytes)
{
	cpu_set_t allowed;
	size_t most = bytes / PART_BYTES;
	size_t cpus = sched_getaffinity(0, sizeof(allowed), &allowed) < 0 ? 1 : (size_t)CPU_COUNT(&allowed);

	most = most < cpus ? most : cpus;
	most = most < PARTS_MAX ? most : PARTS_MAX;
	return most ? (unsigned)most : 1;
}

/* Helpers have this thread's CPUs; what none can be had for is done here. Negative errno of madvise. */
static int populate(char *base, size_t bytes, size_t page_bytes)
{
	struct part parts[PARTS_MAX] = {0};
	unsigned n = count_parts(bytes);
	size_t each = round_up(bytes / n, page_bytes);
	int error = 0;

	for (unsigned i = 0; i < n; i++) {
		size_t at = i * each < bytes ? i * each : bytes;

		parts[i].base = base + at;
		parts[i].bytes = bytes - at < each || i == n - 1 ? bytes - at : each;
		parts[i].started = i && !pthread_create(&parts[i].thread, NULL, populate_part, &parts[i]);
	}
	for (unsigned i = 0; i < n; i++)
		if (!parts[i].started)
			populate_part(&parts[i]);
	for (unsigned i = 0; i < n; i++) {
		if (parts[i].started)
			pthread_join(parts[i].thread, NULL);
		error = error ? error : parts[i].error;
	}
	return error;
}

static int touch(char *base, size_t bytes, size_t page_bytes)
{
	int error = populate(base, bytes, page_bytes);

	for (size_t i = 0; error == -EINVAL && i < bytes; i += 4096) /* before Linux 5.14 */
		((volatile char *)base)[i] = 0;
	return error == -EINVAL ? 0 : error;
}

/* ---- reserved huge pages ---- */

/* On the nodes or not at all. The pages are put in at once, because a page that turns out to be missing later
 * would be a SIGBUS. */
static int map_reserved(struct numa_region *ret, size_t bytes, enum numa_pages pages, uint64_t nodes)
{
	struct numa_region region = {.bytes = round_up(bytes, kinds[pages].bytes), .pages = pages};
	int error = 0;

	if (!numa_pages_for(bytes, pages))
		return -EINVAL;
	region.base = mmap(NULL, region.bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | kinds[pages].flags, -1, 0);
	if (region.base == MAP_FAILED)
		return -errno;
	if (nodes)
		error = set_policy(region.base, region.bytes, is_single(nodes) ? MPOL_BIND : MPOL_INTERLEAVE,
				   nodes);
	/* Without a policy pages come from where this thread runs; the caller is told. */
	region.bind_error = error;
	error = populate(region.base, region.bytes, kinds[pages].bytes);
	if (error) {
		munmap(region.base, region.bytes);
		return error;
	}
	*ret = region;
	return 0;
}

/* ---- other pages ---- */

/* Maps more than asked and gives the ends back, because only aligned ranges become huge pages. A page after
 * the end stays, not to be touched: it keeps regions apart, in /proc/self/smaps and for a write past the end.
 */
static char *map_aligned(size_t bytes, size_t unit)
{
	size_t slack = unit + GUARD_BYTES, before;
	char *map = mmap(NULL, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	if (mprotect(map, bytes + unit, PROT_READ | PROT_WRITE) < 0) {
		munmap(map, bytes + slack);
		return NULL;
	}
	before = (unit - (uintptr_t)map % unit) % unit;
	if (before)
		munmap(map, before);
	if (unit - before)
		munmap(map + before + bytes + GUARD_BYTES, unit - before);
	mprotect(map + before + bytes, GUARD_BYTES, PROT_NONE);
	return map + before;
}

int numa_map(struct numa_region *ret, size_t bytes, const struct numa_wish *wish)
{
	struct numa_region region = {0};
	bool huge = bytes >= kinds[NUMA_PAGES_TRANSPARENT].bytes;

	if (wish->reserved && (map_reserved(ret, bytes, NUMA_PAGES_1G, wish->nodes) == 0 ||
			       map_reserved(ret, bytes, NUMA_PAGES_2M, wish->nodes) == 0))
		return 0;
	region.pages = huge && wish->transparent ? NUMA_PAGES_TRANSPARENT : NUMA_PAGES_ORDINARY;
	region.bytes = round_up(bytes ? bytes : 1, kinds[region.pages].bytes);
	region.base = map_aligned(region.bytes, kinds[region.pages].bytes);
	if (!region.base)
		return -ENOMEM;
	if (wish->nodes)
		region.bind_error = numa_prefer(region.base, region.bytes, wish->nodes);
	if (huge &&
	    madvise(region.base, region.bytes, wish->transparent ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) < 0)
		region.pages = NUMA_PAGES_ORDINARY; /* a kernel without them */
	if (wish->touch && touch(region.base, region.bytes, kinds[region.pages].bytes) < 0) {
		numa_unmap(&region);
		return -ENOMEM;
	}
	*ret = region;
	return 0;
}

void numa_unmap(const struct numa_region *region)
{
	if (region->base)
		munmap(region->base, region->bytes + (region->pages < NUMA_PAGES_2M ? GUARD_BYTES : 0));
}

uint64_t numa_free_pages(int node)
{
	int64_t n;

	return read_number(&n, "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/free_hugepages",
			   node) &&
		       n > 0
		   ? (uint64_t)n
		   : 0;
}
