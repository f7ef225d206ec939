/* Sleeping and waking between the two ends of a channel, without a lost wake-up.
 *
 * A sleep word in the header is a counter, odd = asleep, written only by the sleeper. Sleeper: make it odd,
 * full fence, look at every ring again, sleep, make it even. Waker: publish, full fence, read the word; if it
 * is odd and this value has not been woken, send one byte. The two fences order each end's store before its
 * load, so that at least one end sees the other (Dekker's argument); docs/channel.md has the reasoning.
 *
 * Thread rule: a sleeper and a waker each belong to one thread. No call blocks or allocates; wake_look and
 * wake_fence make at most one system call, and only when the peer sleeps. */
#ifndef TOKENRING_SHM_WAKE_H
#define TOKENRING_SHM_WAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/atomics.h"

/* The sleeper's private counter. The daemon has one for all channels and writes it to each channel's word. */
struct sleeper {
	uint32_t value;
};

/* The private state of the end that wakes. */
struct waker {
	const shared_u32 *word; /* the peer's sleep word */
	uint32_t woken;         /* the last odd value for which a wake arrived */
	int fd;                 /* SOCK_SEQPACKET, connected to the peer */
};

static inline bool sleeper_asleep(const struct sleeper *sleeper)
{
	return sleeper->value & 1;
}

/* Moves to the next odd value, also when it is odd already: a value that was woken must not be slept on
 * again. */
static inline uint32_t sleeper_next_odd(struct sleeper *sleeper)
{
	return sleeper->value = (sleeper->value + 1) | 1; /* [W1] */
}

static inline uint32_t sleeper_next_even(struct sleeper *sleeper)
{
	return sleeper->value += sleeper->value & 1;
}

/* For a sleeper with one word. After it the caller looks at its rings again and sleeps only if they are
 * empty. A sleeper with many words stores sleeper_next_odd to each (store_relaxed_u32), then calls fence_full
 * once. */
static inline void sleep_begin(struct sleeper *sleeper, shared_u32 *word)
{
	store_relaxed_u32(word, sleeper_next_odd(sleeper)); /* [W2] */
	fence_full(); /* [W3] pairs with the fence of wake_fence (or of the waker's turn) */
}

static inline void sleep_end(struct sleeper *sleeper, shared_u32 *word)
{
	store_relaxed_u32(word, sleeper_next_even(sleeper)); /* [W8] */
}

/* Whether the peer sleeps, woken or not, as far as is visible without a fence. */
static inline bool waker_sees_sleep(const struct waker *waker)
{
	return load_relaxed_u32(waker->word) & 1;
}

/* Whether the peer sleeps on a value that was not woken yet, as far as is visible without a fence. */
static inline bool wake_wanted(const struct waker *waker)
{
	uint32_t value = load_relaxed_u32(waker->word);

	return (value & 1) && value != waker->woken;
}

/* Sends the byte if it is wanted. 1: sent, or a message was there already; 0: not wanted, or the kernel was
 * short of memory (wanted still); -ECONNRESET: the peer is gone. The caller fences before, once for many
 * wakers. */
int wake_look(struct waker *waker);

/* Fence, then wake_look: after this no published message is left unseen by a sleeping peer. */
static inline int wake_fence(struct waker *waker)
{
	fence_full(); /* [W9] pairs with the fence of sleep_begin */
	return wake_wanted(waker) ? wake_look(waker) : 0;
}

/* For loops that poll shared memory: lets the core's other hardware thread run. */
static inline void spin_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

#endif
