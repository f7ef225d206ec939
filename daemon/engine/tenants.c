#include "daemon/engine/tenants.h"

#include <errno.h>
#include <stdlib.h>

#include "shm/resident.h"

enum { NONE = UINT32_MAX };

int tenants_init(struct tenants *tenants, uint32_t n)
{
	uint32_t buckets = 16;

	while (buckets < n)
		buckets *= 2;
	tenants->items = resident_calloc(n, sizeof *tenants->items);
	tenants->buckets = resident_calloc(buckets, sizeof *tenants->buckets);
	if (!tenants->items || !tenants->buckets)
		return -ENOMEM;
	tenants->mask = buckets - 1;
	for (uint32_t i = 0; i < buckets; i++)
		tenants->buckets[i] = NONE;
	for (uint32_t i = 0; i < n; i++)
		tenants->items[i].next = i + 1 < n ? i + 1 : NONE;
	return 0;
}

void tenants_destroy(struct tenants *tenants)
{
	free(tenants->items);
	free(tenants->buckets);
}

/* Splitmix64's finaliser. */
static uint32_t *bucket_of(struct tenants *tenants, uint32_t uid, uint32_t number)
{
	uint64_t x = (uint64_t)uid << 32 | number;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return &tenants->buckets[(x ^ x >> 31) & tenants->mask];
}

static uint32_t add(struct tenants *tenants, uint32_t *bucket, uint32_t uid, uint32_t number)
{
	uint32_t entry = tenants->first_free;
	struct tenant *tenant = &tenants->items[entry];

	tenants->first_free = tenant->next;
	*tenant = (struct tenant){.uid = uid, .number = number, .next = *bucket};
	*bucket = entry;
	return entry;
}

uint32_t tenants_join(struct tenants *tenants, uint32_t uid, uint32_t number, uint32_t most)
{
	uint32_t *bucket = bucket_of(tenants, uid, number), entry = *bucket;

	while (entry != NONE && (tenants->items[entry].uid != uid || tenants->items[entry].number != number))
		entry = tenants->items[entry].next;
	if (entry == NONE)
		entry = add(tenants, bucket, uid, number);
	else if (tenants->items[entry].n_requests >= most)
		return NONE;
	tenants->items[entry].n_requests++;
	return entry;
}

void tenants_leave(struct tenants *tenants, uint32_t entry)
{
	struct tenant *tenant = &tenants->items[entry];
	uint32_t *link;

	if (--tenant->n_requests)
		return;
	link = bucket_of(tenants, tenant->uid, tenant->number);
	while (*link != entry)
		link = &tenants->items[*link].next;
	*link = tenant->next;
	tenant->next = tenants->first_free;
	tenants->first_free = entry;
}
