/* What is in flight for each tenant that a user names: requests, and bytes of their blocks.
 *
 * A hash table of (user, tenant) pairs; a pair exists while it has a request, so that as many entries as
 * there are requests always suffice, whatever names a client makes up.
 *
 * Thread rule: one owner. Nothing allocates but tenants_init. */
#ifndef TOKENRING_DAEMON_ENGINE_TENANTS_H
#define TOKENRING_DAEMON_ENGINE_TENANTS_H

#include <stdint.h>

struct tenant {
	uint32_t uid, number;
	uint32_t n_requests;
	uint32_t next;        /* in its bucket, or in the free list */
	uint64_t block_bytes; /* kept by whoever joins and leaves */
};

struct tenants {
	struct tenant *items; /* (n) */
	uint32_t *buckets;    /* (mask + 1) index of an item */
	uint32_t mask, first_free;
};

/* Room for n pairs, one at least. -ENOMEM. */
int tenants_init(struct tenants *tenants, uint32_t n);

/* Safe on a zeroed object. */
void tenants_destroy(struct tenants *tenants);

/* Counts one request more for the pair and returns its entry, for tenants_leave; UINT32_MAX: the pair has
 * `most` already. There must be fewer requests counted than there is room for. */
uint32_t tenants_join(struct tenants *tenants, uint32_t uid, uint32_t number, uint32_t most);
void tenants_leave(struct tenants *tenants, uint32_t entry);

#endif
