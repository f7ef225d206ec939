/* KV blocks: a pool for each cache group, and the block table of a sequence.
 *
 * A pool knows only ids; the content lies in the backend. Block 0 is the null block: tables are padded with
 * it, it is never handed out. Blocks are reference-counted: only full blocks are shared, a sequence that
 * writes into a shared one gets its own copy first (copy-on-write).
 *
 * A sequence reserves at admission all that it can ever need and takes blocks one by one out of its
 * reservation, so that a running sequence never waits for a block.
 *
 * Thread rule: one thread, the engine's; init and free by whoever builds the engine. No allocation after
 * kv_pool_init. */
#ifndef TOKENRING_DAEMON_ENGINE_KV_H
#define TOKENRING_DAEMON_ENGINE_KV_H

#include <stdbool.h>
#include <stdint.h>

enum { KV_BLOCK_TOKENS = 32, KV_NULL_BLOCK = 0 };

struct kv_pool {
	uint32_t blocks;      /* ids are below it; the null block included */
	uint32_t n_free;      /* entries of `free`, a stack */
	uint32_t n_reserved;  /* of those, promised to sequences */
	uint32_t *free;       /* (blocks) */
	uint32_t *references; /* (blocks) 0: free */
};

/* A sequence's blocks: entry b holds positions [32 b, 32 b + 32). */
struct kv_table {
	uint32_t *block;   /* (capacity) the caller's; entries from n on are KV_NULL_BLOCK */
	uint32_t capacity; /* entries */
	uint32_t n;        /* blocks held */
	uint32_t reserved; /* blocks that it may still take */
};

static inline uint32_t kv_blocks_for(uint64_t tokens)
{
	return (uint32_t)((tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
}

/* `blocks` is 2 at least. -EINVAL, -ENOMEM. */
int kv_pool_init(struct kv_pool *, uint32_t blocks);
void kv_pool_free(struct kv_pool *);

/* Blocks neither held nor reserved: what a new sequence may reserve. */
static inline uint32_t kv_available(const struct kv_pool *pool)
{
	return pool->n_free - pool->n_reserved;
}

static inline uint32_t kv_used(const struct kv_pool *pool)
{
	return pool->blocks - 1 - pool->n_free;
}

/* An empty table over `block`, which is set to null blocks. */
void kv_table_init(struct kv_table *, uint32_t *block, uint32_t capacity);

/* Promises `blocks` more to the table. False: not available, or the table is too short; nothing changed. */
bool kv_reserve(struct kv_pool *, struct kv_table *, uint32_t blocks);

/* Takes blocks out of the reservation until positions below `tokens` are covered. False: the reservation is
 * too small; nothing changed. */
bool kv_cover(struct kv_pool *, struct kv_table *, uint64_t tokens);

/* `to` (empty) gets the blocks of `from` that are full at `tokens` tokens, shared; the last, partial one is
 * not shared: the caller copies its content from `from` after kv_cover. Returns how many blocks are shared.
 */
uint32_t kv_fork(struct kv_pool *, const struct kv_table *from, struct kv_table *to, uint64_t tokens);

/* Makes entry b of the table private before a write. Returns 1 if it was shared: *ret_from is the block whose
 * content the caller copies into the table's new one; 0 if it was private; -ENOSPC if the reservation is
 * empty. */
int kv_make_private(struct kv_pool *, struct kv_table *, uint32_t b, uint32_t *ret_from);

/* Gives back all blocks and what is left of the reservation. */
void kv_release(struct kv_pool *, struct kv_table *);

#endif
