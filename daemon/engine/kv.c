#include "daemon/engine/kv.h"

#include <errno.h>
#include <stdlib.h>

#include "shm/resident.h"

int kv_pool_init(struct kv_pool *pool, uint32_t blocks)
{
	uint32_t *free_blocks, *references;

	if (blocks < 2)
		return -EINVAL;
	free_blocks = resident_calloc(blocks, sizeof(*free_blocks));
	references = resident_calloc(blocks, sizeof(*references));
	if (!free_blocks || !references) {
		free(free_blocks);
		free(references);
		return -ENOMEM;
	}
	/* Low ids lie on top of the stack, so that a lightly used pool touches little memory. */
	for (uint32_t i = 0; i < blocks - 1; i++)
		free_blocks[i] = blocks - 1 - i;
	*pool = (struct kv_pool){
	    .blocks = blocks, .n_free = blocks - 1, .free = free_blocks, .references = references};
	return 0;
}

void kv_pool_free(struct kv_pool *pool)
{
	free(pool->free);
	free(pool->references);
	*pool = (struct kv_pool){0};
}

void kv_table_init(struct kv_table *table, uint32_t *block, uint32_t capacity)
{
	*table = (struct kv_table){.block = block, .capacity = capacity};
	for (uint32_t i = 0; i < capacity; i++)
		block[i] = KV_NULL_BLOCK;
}

bool kv_reserve(struct kv_pool *pool, struct kv_table *table, uint32_t blocks)
{
	if (blocks > kv_available(pool) || blocks > table->capacity - table->n - table->reserved)
		return false;
	pool->n_reserved += blocks;
	table->reserved += blocks;
	return true;
}

static uint32_t take(struct kv_pool *pool, struct kv_table *table)
{
	uint32_t block = pool->free[--pool->n_free];

	pool->n_reserved--;
	table->reserved--;
	pool->references[block] = 1;
	return block;
}

bool kv_cover(struct kv_pool *pool, struct kv_table *table, uint64_t tokens)
{
	uint32_t wanted = kv_blocks_for(tokens);

	if (wanted > table->n && wanted - table->n > table->reserved)
		return false;
	while (table->n < wanted)
		table->block[table->n++] = take(pool, table);
	return true;
}

uint32_t kv_fork(struct kv_pool *pool, const struct kv_table *from, struct kv_table *to, uint64_t tokens)
{
	uint32_t full = (uint32_t)(tokens / KV_BLOCK_TOKENS);

	if (full > from->n)
		full = from->n;
	if (full > to->capacity)
		full = to->capacity;
	for (uint32_t i = 0; i < full; i++) {
		to->block[i] = from->block[i];
		pool->references[from->block[i]]++;
	}
	to->n = full;
	return full;
}

static void give_back(struct kv_pool *pool, uint32_t block)
{
	if (--pool->references[block] == 0)
		pool->free[pool->n_free++] = block;
}

int kv_make_private(struct kv_pool *pool, struct kv_table *table, uint32_t b, uint32_t *ret_from)
{
	uint32_t shared = table->block[b];

	if (pool->references[shared] == 1)
		return 0;
	if (!table->reserved)
		return -ENOSPC;
	table->block[b] = take(pool, table);
	give_back(pool, shared);
	*ret_from = shared;
	return 1;
}

void kv_release(struct kv_pool *pool, struct kv_table *table)
{
	while (table->n) {
		give_back(pool, table->block[--table->n]);
		table->block[table->n] = KV_NULL_BLOCK;
	}
	pool->n_reserved -= table->reserved;
	table->reserved = 0;
}
