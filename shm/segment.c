#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Newer than the C library of Debian 12; the values are the kernel's ABI. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { PAGE_BYTES = 4096, SEALS_SIZE = F_SEAL_SHRINK | F_SEAL_GROW };

static int fail(int error, char *why, size_t why_bytes, const char *sentence)
{
	if (why && why_bytes)
		snprintf(why, why_bytes, "%s", sentence);
	return -error;
}

static int fail_errno(char *why, size_t why_bytes, const char *what)
{
	int error = errno;

	if (why && why_bytes)
		snprintf(why, why_bytes, "%s: %s", what, strerror(error));
	return -error;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static bool slots_valid(uint32_t slots)
{
	return slots >= 8 && slots <= WIRE_MAX_SLOTS && (slots & (slots - 1)) == 0;
}

int segment_layout(struct segment_layout *ret, uint32_t sq_slots, uint32_t cq_slots, uint32_t max_inflight,
		   uint64_t arena_bytes, uint32_t colour)
{
	struct segment_layout layout = {
	    .sq_slots = sq_slots, .cq_slots = cq_slots, .max_inflight = max_inflight};

	if (!slots_valid(sq_slots) || !slots_valid(cq_slots) || max_inflight == 0 ||
	    max_inflight > WIRE_MAX_INFLIGHT || cq_slots < 2 * max_inflight ||
	    arena_bytes > UINT64_C(1) << 37)
		return -EINVAL;
	/* Three lines apart: odd, and no two neighbours in one pair of the adjacent-line prefetcher. */
	layout.sq_off =
	    WIRE_RINGS_OFFSET + WIRE_SLOT_BYTES * (colour % SEGMENT_COLOURS * 3 % SEGMENT_COLOURS);
	layout.cq_off = layout.sq_off + sq_slots * WIRE_SLOT_BYTES;
	layout.arena_off = layout.cq_off + cq_slots * WIRE_SLOT_BYTES;
	layout.bytes = round_up(layout.arena_off + round_up(arena_bytes, WIRE_SLOT_BYTES), PAGE_BYTES);
	layout.arena_bytes = layout.bytes - layout.arena_off;
	*ret = layout;
	return 0;
}

/* Maps at an address aligned to a huge page, because only then can 4 KiB pages collapse to huge ones. Such an
 * address is found by mapping too much and giving it all back. Another thread may take it meanwhile, and then
 * any address does. Not MAP_FIXED: where it fails the kernel may have removed what was mapped before, and to
 * unmap that again would hit what another thread has mapped in the hole. */
static unsigned char *map_aligned(int fd, uint64_t bytes)
{
	uint64_t reserved = bytes + SEGMENT_HUGE_BYTES;
	char *start = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	void *map = MAP_FAILED;

	if (start != MAP_FAILED) {
		munmap(start, reserved);
		map = mmap(start + (-(uintptr_t)start & (SEGMENT_HUGE_BYTES - 1)), bytes,
			   PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	}
	if (map == MAP_FAILED)
		map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return map == MAP_FAILED ? NULL : map;
}

static int map_private(struct segment *segment, int fd, char *why, size_t why_bytes)
{
	segment->base = map_aligned(fd, segment->bytes);
	if (!segment->base)
		return fail_errno(why, why_bytes, "cannot map the channel's memory");
	if (madvise(segment->base, segment->bytes, MADV_DONTDUMP) < 0 ||
	    madvise(segment->base, segment->bytes, MADV_DONTFORK) < 0)
		return fail_errno(why, why_bytes, "cannot keep the channel's memory out of dumps and forks");
	return 0;
}

/* A kernel before 6.3 does not know MFD_NOEXEC_SEAL; the seal it would add is then not expected either. */
static int create_memfd(unsigned flags, int *ret_seals)
{
	int fd = memfd_create("tokenring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | flags);

	*ret_seals = F_SEAL_EXEC;
	if (fd < 0 && errno == EINVAL) {
		*ret_seals = 0;
		fd = memfd_create("tokenring", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	}
	return fd;
}

static int create_sized(struct segment *segment, uint64_t bytes, bool huge, char *why, size_t why_bytes)
{
	*segment = (struct segment){.fd = -1, .huge = huge};
	segment->bytes = round_up(bytes, huge ? SEGMENT_HUGE_BYTES : PAGE_BYTES);
	segment->fd = create_memfd(huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0, &segment->seals);
	if (segment->fd < 0)
		return fail_errno(why, why_bytes, "cannot create a memfd for the channel");
	segment->seals |= SEALS_SIZE | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	if (ftruncate(segment->fd, (off_t)segment->bytes) < 0)
		return fail_errno(why, why_bytes, "cannot size the channel's memfd");
	if (fcntl(segment->fd, F_ADD_SEALS, SEALS_SIZE) < 0)
		return fail_errno(why, why_bytes, "cannot seal the size of the channel's memfd");
	return map_private(segment, segment->fd, why, why_bytes);
}

static int create_huge(struct segment *segment, uint64_t bytes, char *why, size_t why_bytes)
{
	int error = create_sized(segment, bytes, true, why, why_bytes);

	if (error == 0)
		return 0;
	if (why && why_bytes && error != -EMFILE && error != -ENFILE)
		snprintf(
		    why, why_bytes,
		    "cannot map %llu huge pages of 2 MiB for a channel (%s); raise vm.nr_hugepages or set "
		    "huge_pages = prefer",
		    (unsigned long long)(segment->bytes / SEGMENT_HUGE_BYTES), strerror(-error));
	segment_destroy(segment);
	return error;
}

int segment_create(struct segment *ret, struct segment_layout *layout, enum segment_pages pages, char *why,
		   size_t why_bytes)
{
	struct segment segment = {.fd = -1};
	int error = -ENOMEM;

	if (pages != SEGMENT_PAGES_NEVER && pages != SEGMENT_PAGES_COLLAPSE)
		error = create_huge(&segment, layout->bytes, why, why_bytes);
	if (error < 0 && pages == SEGMENT_PAGES_REQUIRE)
		return error;
	if (error < 0)
		error = create_sized(&segment, layout->bytes, false, why, why_bytes);
	if (error < 0) {
		segment_destroy(&segment);
		return error;
	}
	segment.collapse = !segment.huge && pages != SEGMENT_PAGES_NEVER;
	layout->bytes = segment.bytes;
	layout->arena_bytes = segment.bytes - layout->arena_off;
	*ret = segment;
	return 0;
}

int segment_seal(struct segment *segment, char *why, size_t why_bytes)
{
	int seals;

	if (fcntl(segment->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return fail_errno(why, why_bytes, "cannot seal the channel's memfd");
	seals = fcntl(segment->fd, F_GET_SEALS);
	if (seals != segment->seals) {
		if (why && why_bytes)
			snprintf(why, why_bytes,
				 "the channel's memfd has seals 0x%x instead of 0x%x: its peer "
				 "added its own",
				 (unsigned)seals, (unsigned)segment->seals);
		return -EPROTO;
	}
	close(segment->fd);
	segment->fd = -1;
	return 0;
}

int segment_populate(const struct segment *segment)
{
	uint64_t whole = segment->bytes & ~(uint64_t)(SEGMENT_HUGE_BYTES - 1);

	/* Collapsing empty memory allocates the huge page at once. It may fail for many reasons, none of
	 * which matters: the next step then fills in ordinary pages. */
	if (segment->collapse && whole)
		madvise(segment->base, whole, MADV_COLLAPSE);
	return madvise(segment->base, segment->bytes, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
}

void segment_publish(const struct segment *segment, const struct segment_layout *layout)
{
	struct wire_header *header = segment_header(segment);

	ring_preset((struct wire_slot *)(segment->base + layout->sq_off), layout->sq_slots,
		    layout->first_index);
	ring_preset((struct wire_slot *)(segment->base + layout->cq_off), layout->cq_slots,
		    layout->first_index);
	header->epoch = layout->epoch;
	header->bytes = layout->bytes;
	header->sq_off = layout->sq_off;
	header->cq_off = layout->cq_off;
	header->sq_slots = layout->sq_slots;
	header->cq_slots = layout->cq_slots;
	header->arena_off = layout->arena_off;
	header->arena_bytes = layout->arena_bytes;
	header->max_inflight = layout->max_inflight;
	header->features = layout->features;
	header->first_index = layout->first_index;
	store_relaxed_u64(&header->sq_consumed, layout->first_index);
	store_relaxed_u64(&header->cq_consumed, layout->first_index);
	store_relaxed_u32(&header->reason, WIRE_REASON_NONE);
	store_relaxed_u32(&header->state, WIRE_STATE_LIVE);
	/* Release: pairs with the acquire in segment_read; all of the above is visible with the magic. */
	store_release_u64(&header->magic, WIRE_MAGIC);
}

int segment_map(struct segment *ret, int fd, uint64_t bytes, char *why, size_t why_bytes)
{
	struct segment segment = {.fd = -1, .bytes = bytes};
	struct stat status;
	int error, seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS_SIZE) != SEALS_SIZE)
		return fail(EPROTO, why, why_bytes,
			    "the offered descriptor is no memfd whose size is sealed");
	if (fstat(fd, &status) < 0 || status.st_size < WIRE_RINGS_OFFSET || (uint64_t)status.st_size != bytes)
		return fail(EPROTO, why, why_bytes, "the offered memfd does not have the offered size");
	error = map_private(&segment, fd, why, why_bytes);
	if (error < 0) {
		segment_destroy(&segment);
		return error;
	}
	*ret = segment;
	return 0;
}

static void copy_header(const struct wire_header *header, struct segment_layout *ret)
{
	*ret = (struct segment_layout){
	    .epoch = header->epoch,
	    .bytes = header->bytes,
	    .sq_off = header->sq_off,
	    .cq_off = header->cq_off,
	    .sq_slots = header->sq_slots,
	    .cq_slots = header->cq_slots,
	    .arena_off = header->arena_off,
	    .arena_bytes = header->arena_bytes,
	    .max_inflight = header->max_inflight,
	    .features = header->features,
	    .first_index = header->first_index,
	};
}

int segment_read(const struct segment *segment, struct segment_layout *ret, char *why, size_t why_bytes)
{
	/* Acquire: pairs with the release in segment_publish. */
	uint64_t magic = load_acquire_u64(&segment_header(segment)->magic);
	struct segment_layout layout;
	int error;

	if ((magic & 0xffffffffffff) != (WIRE_MAGIC & 0xffffffffffff))
		return fail(EPROTONOSUPPORT, why, why_bytes,
			    "the channel has no magic or another major version");
	copy_header(segment_header(segment), &layout);
	error = segment_check(&layout, segment->bytes, why, why_bytes);
	if (error == 0)
		*ret = layout;
	return error;
}

/* Whether `count` pieces of `size` bytes lie within [from, bytes) at `offset`, 64-aligned. */
static bool lies_within(uint64_t offset, uint64_t count, uint64_t size, uint64_t from, uint64_t bytes)
{
	uint64_t length, end;

	return offset % WIRE_SLOT_BYTES == 0 && offset >= from &&
	       !__builtin_mul_overflow(count, size, &length) &&
	       !__builtin_add_overflow(offset, length, &end) && end <= bytes;
}

int segment_check(const struct segment_layout *layout, uint64_t bytes, char *why, size_t why_bytes)
{
	uint64_t sq_end, cq_end;

	if (layout->bytes != bytes)
		return fail(EPROTO, why, why_bytes, "the header's bytes are not those of the memfd");
	if (!slots_valid(layout->sq_slots) || !slots_valid(layout->cq_slots))
		return fail(EPROTO, why, why_bytes, "sq_slots or cq_slots is no power of two in range");
	if (!lies_within(layout->sq_off, layout->sq_slots, WIRE_SLOT_BYTES, WIRE_RINGS_OFFSET, bytes))
		return fail(EPROTO, why, why_bytes, "sq_off: the submission ring does not lie in the memfd");
	sq_end = layout->sq_off + (uint64_t)layout->sq_slots * WIRE_SLOT_BYTES;
	if (!lies_within(layout->cq_off, layout->cq_slots, WIRE_SLOT_BYTES, sq_end, bytes))
		return fail(EPROTO, why, why_bytes,
			    "cq_off: the completion ring overlaps or leaves the memfd");
	cq_end = layout->cq_off + (uint64_t)layout->cq_slots * WIRE_SLOT_BYTES;
	if (!lies_within(layout->arena_off, layout->arena_bytes, 1, cq_end, bytes))
		return fail(EPROTO, why, why_bytes, "arena_off: the arena overlaps or leaves the memfd");
	if (bytes / WIRE_SLOT_BYTES > UINT32_MAX)
		return fail(EPROTO, why, why_bytes, "bytes: offsets in units of 64 bytes do not fit 32 bits");
	if (layout->max_inflight == 0 || layout->max_inflight > WIRE_MAX_INFLIGHT ||
	    layout->cq_slots < 2 * layout->max_inflight)
		return fail(EPROTO, why, why_bytes, "max_inflight is zero or above half of cq_slots");
	return 0;
}

void segment_destroy(struct segment *segment)
{
	if (segment->base)
		munmap(segment->base, segment->bytes);
	if (segment->fd >= 0)
		close(segment->fd);
	*segment = (struct segment){.fd = -1};
}

static struct ring_writer writer_at(struct wire_slot *slots, uint32_t n, const shared_u64 *consumed,
				    uint64_t first)
{
	return (struct ring_writer){
	    .slots = slots, .consumed = consumed, .mask = n - 1, .index = first, .limit = first + n};
}

static struct ring_reader reader_at(const struct wire_slot *slots, uint32_t n, shared_u64 *consumed,
				    uint64_t first)
{
	return (struct ring_reader){
	    .slots = slots, .consumed = consumed, .mask = n - 1, .index = first, .published = first};
}

void segment_client_rings(const struct segment *segment, const struct segment_layout *layout,
			  struct ring_writer *ret_submissions, struct ring_reader *ret_completions)
{
	struct wire_header *header = segment_header(segment);

	*ret_submissions = writer_at((struct wire_slot *)(segment->base + layout->sq_off), layout->sq_slots,
				     &header->sq_consumed, layout->first_index);
	*ret_completions = reader_at((struct wire_slot *)(segment->base + layout->cq_off), layout->cq_slots,
				     &header->cq_consumed, layout->first_index);
}

void segment_daemon_rings(const struct segment *segment, const struct segment_layout *layout,
			  struct ring_reader *ret_submissions, struct ring_writer *ret_completions)
{
	struct wire_header *header = segment_header(segment);

	*ret_submissions = reader_at((struct wire_slot *)(segment->base + layout->sq_off), layout->sq_slots,
				     &header->sq_consumed, layout->first_index);
	*ret_completions = writer_at((struct wire_slot *)(segment->base + layout->cq_off), layout->cq_slots,
				     &header->cq_consumed, layout->first_index);
}
