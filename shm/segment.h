/* The memory of a channel: a sealed memfd, its mapping, and the layout written in its header page.
 *
 * The daemon's order: segment_layout, segment_create, (the descriptor travels, the client maps),
 * segment_seal, segment_populate, segment_publish. Before sealing nothing is touched, because a client could
 * still punch holes; after it nobody can. The client's order: segment_map, (LIVE arrives), segment_read,
 * segment_populate.
 *
 * Thread rule: one thread at a time for each segment. Calls may block in the kernel (page allocation); none
 * allocates from the heap. Errors are negative errno, with a sentence in `why` where it is offered. */
#ifndef TOKENRING_SHM_SEGMENT_H
#define TOKENRING_SHM_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/ring.h"
#include "shm/wire.h"

/* Which pages back a segment. auto and prefer both fall back to 4 KiB pages, collapsed to huge ones where the
 * kernel allows; prefer asks the caller to say so. */
enum segment_pages {
	SEGMENT_PAGES_AUTO,
	SEGMENT_PAGES_PREFER,
	SEGMENT_PAGES_REQUIRE,  /* hugetlb pages or an error */
	SEGMENT_PAGES_NEVER,    /* 4 KiB pages, not collapsed */
	SEGMENT_PAGES_COLLAPSE, /* 4 KiB pages, collapsed where the kernel allows */
};

enum { SEGMENT_HUGE_BYTES = 2 << 20, SEGMENT_COLOURS = 256 };

struct segment {
	unsigned char *base; /* (bytes), page-aligned; NULL: not mapped */
	uint64_t bytes;
	int fd;        /* -1 after sealing, and always at the client */
	int seals;     /* what F_GET_SEALS must say after sealing */
	bool huge;     /* hugetlb pages */
	bool collapse; /* segment_populate asks for transparent huge pages */
};

/* The constant part of the header: what both ends keep privately, never read again from the memory. */
struct segment_layout {
	uint64_t epoch, bytes;
	uint32_t sq_off, cq_off, sq_slots, cq_slots;
	uint64_t arena_off, arena_bytes;
	uint32_t max_inflight, features;
	uint64_t first_index;
};

/* Computes offsets for rings of sq_slots and cq_slots (powers of two, 8 to WIRE_MAX_SLOTS), at least
 * arena_bytes of arena, and `max_inflight` with cq_slots >= 2 x max_inflight. `colour` is any number that
 * differs between channels: successive ones lie an odd number of lines apart, so that polled heads spread
 * over cache sets. Sets bytes to the least multiple of 4 KiB; epoch, features and first_index to zero.
 * -EINVAL: a size is out of range. */
int segment_layout(struct segment_layout *ret, uint32_t sq_slots, uint32_t cq_slots, uint32_t max_inflight,
		   uint64_t arena_bytes, uint32_t colour);

/* Creates the memfd, sizes it (rounded up to whole pages: `layout->bytes` and `arena_bytes` grow to match),
 * seals SHRINK and GROW and maps it. Nothing is touched. Out of dumps and forks. -ENOMEM: no huge pages
 * (require) or no address space; other errors of the kernel. */
int segment_create(struct segment *ret, struct segment_layout *layout, enum segment_pages pages, char *why,
		   size_t why_bytes);

/* After the client has mapped: adds FUTURE_WRITE and SEAL, verifies that the kernel reports exactly the seals
 * expected, and closes the descriptor. -EPROTO: the seals are not what they must be. */
int segment_seal(struct segment *segment, char *why, size_t why_bytes);

/* Makes every page present in this process. -ENOMEM, -EFAULT: the kernel has no page. */
int segment_populate(const struct segment *segment);

/* Presets the rings, writes the header and state LIVE, and stores the magic last. The header's daemon_sleep
 * and heartbeat_ns are the caller's to set before. */
void segment_publish(const struct segment *segment, const struct segment_layout *layout);

/* The client's side: checks that `fd` (which stays the caller's) is a memfd of `bytes` that can neither
 * shrink nor grow, and maps it, out of dumps and forks. -EPROTO: it is something else. -ENOMEM. */
int segment_map(struct segment *ret, int fd, uint64_t bytes, char *why, size_t why_bytes);

/* Reads the header once and checks it (segment_check). -EPROTONOSUPPORT: another major version, or no magic
 * yet; -EPROTO as segment_check. */
int segment_read(const struct segment *segment, struct segment_layout *ret, char *why, size_t why_bytes);

/* Whether a layout that another process wrote adds up within `bytes` of memory: pure, overflow-checked.
 * -EPROTO: the sentence names the field. */
int segment_check(const struct segment_layout *layout, uint64_t bytes, char *why, size_t why_bytes);

/* Unmaps and closes; safe on a zeroed or half-built segment whose fd is -1 or valid. */
void segment_destroy(struct segment *segment);

static inline struct wire_header *segment_header(const struct segment *segment)
{
	return (struct wire_header *)segment->base;
}

/* The two ends' private views of the rings, at layout->first_index. The layout has been checked. */
void segment_client_rings(const struct segment *segment, const struct segment_layout *layout,
			  struct ring_writer *ret_submissions, struct ring_reader *ret_completions);
void segment_daemon_rings(const struct segment *segment, const struct segment_layout *layout,
			  struct ring_reader *ret_submissions, struct ring_writer *ret_completions);

#endif
