/* Both ends of a channel over one mapping of its memory: ThreadSanitizer tells memory by its address, and
 * would see two things where daemon and client each map the memfd in one process.
 *
 * A test that compiles one_mapping.c and depends on `one_mapping` (tests/stress/meson.build) replaces
 * segment_map by a look-up of what segment_create mapped; the last segment_destroy unmaps it.
 *
 * Thread rule: any thread. */
#ifndef TOKENRING_TESTS_HARNESS_ONE_MAPPING_H
#define TOKENRING_TESTS_HARNESS_ONE_MAPPING_H

#include "shm/segment.h"

/* How many clients have got the daemon's own mapping so far. */
unsigned one_mapping_shared(void);

/* The linker's names (--wrap) for what calls from outside shm/segment.c reach, and what they reached before.
 */
int __wrap_segment_create(struct segment *, struct segment_layout *, enum segment_pages, char *why,
			  size_t why_bytes);
int __wrap_segment_map(struct segment *, int fd, uint64_t bytes, char *why, size_t why_bytes);
void __wrap_segment_destroy(struct segment *);
int __real_segment_create(struct segment *, struct segment_layout *, enum segment_pages, char *why,
			  size_t why_bytes);
void __real_segment_destroy(struct segment *);

#endif
