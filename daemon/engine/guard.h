/* The allocation guard: marks the code that must not allocate.
 *
 * In production the marks cost nothing. A test preloads a library that replaces malloc and defines
 * `tokenring_allocation_guard`; then an allocation by a marked thread aborts the daemon with a stack to look
 * at.
 *
 * Thread rule: guard_init before other threads start; the others mark the calling thread. */
#ifndef TOKENRING_DAEMON_ENGINE_GUARD_H
#define TOKENRING_DAEMON_ENGINE_GUARD_H

/* Looks for the preloaded guard. */
void guard_init(void);

/* From here on the calling thread must not allocate. */
void guard_enter(void);
void guard_leave(void);

#endif
