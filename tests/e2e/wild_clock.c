/* Preloaded: the time of day leaps by ten years at each look, forth and back. Whoever waits by it in the C
 * library is ended. */
#pragma GCC visibility push(default)
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { LEAP_S = 10 * 365 * 86400 };

static time_t leap(void)
{
	static atomic_int looks;

	return atomic_fetch_add(&looks, 1) % 2 ? LEAP_S : -LEAP_S;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	long error = syscall(SYS_clock_gettime, clock, ret);

	if (error == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
		ret->tv_sec += leap();
	return (int)error;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	*ret = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
	return 0;
}

time_t time(time_t *ret)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (ret)
		*ret = now.tv_sec;
	return now.tv_sec;
}

#define WAITS_BY_THE_TIME_OF_DAY(name, ...) \
	int name(__VA_ARGS__)               \
	{                                   \
		abort();                    \
	}

WAITS_BY_THE_TIME_OF_DAY(pthread_timedjoin_np, pthread_t thread, void **ret, const struct timespec *until)
WAITS_BY_THE_TIME_OF_DAY(pthread_mutex_timedlock, pthread_mutex_t *restrict mutex,
			 const struct timespec *restrict until)
WAITS_BY_THE_TIME_OF_DAY(sem_timedwait, sem_t *restrict semaphore, const struct timespec *restrict until)
