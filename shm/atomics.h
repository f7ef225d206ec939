/* The one file that uses C11 atomics: shared words, and the named orders in which they are touched.
 *
 * Thread rule: every function may run on any thread or process that maps the word. Wait-free, no system call.
 * Words are plain structs, so that no access without a named order compiles.
 * Source: C17 7.17 (ISO/IEC 9899:2018). */
#ifndef TOKENRING_SHM_ATOMICS_H
#define TOKENRING_SHM_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
	_Atomic uint32_t value;
} shared_u32;

typedef struct {
	_Atomic uint64_t value;
} shared_u64;

_Static_assert(sizeof(shared_u32) == 4 && sizeof(shared_u64) == 8, "shared words have no lock beside them");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
	       "words are shared between processes");

static inline uint32_t load_relaxed_u32(const shared_u32 *word)
{
	return atomic_load_explicit(&word->value, memory_order_relaxed);
}

static inline uint32_t load_acquire_u32(const shared_u32 *word)
{
	return atomic_load_explicit(&word->value, memory_order_acquire);
}

static inline void store_relaxed_u32(shared_u32 *word, uint32_t value)
{
	atomic_store_explicit(&word->value, value, memory_order_relaxed);
}

static inline void store_release_u32(shared_u32 *word, uint32_t value)
{
	atomic_store_explicit(&word->value, value, memory_order_release);
}

static inline uint64_t load_relaxed_u64(const shared_u64 *word)
{
	return atomic_load_explicit(&word->value, memory_order_relaxed);
}

static inline uint64_t load_acquire_u64(const shared_u64 *word)
{
	return atomic_load_explicit(&word->value, memory_order_acquire);
}

static inline void store_relaxed_u64(shared_u64 *word, uint64_t value)
{
	atomic_store_explicit(&word->value, value, memory_order_relaxed);
}

static inline void store_release_u64(shared_u64 *word, uint64_t value)
{
	atomic_store_explicit(&word->value, value, memory_order_release);
}

static inline uint64_t add_relaxed_u64(shared_u64 *word, uint64_t value)
{
	return atomic_fetch_add_explicit(&word->value, value, memory_order_relaxed);
}

/* The full fence of the sleep handshake: publish, fence, read the peer's sleep word, on both ends. */
static inline void fence_full(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

#endif
