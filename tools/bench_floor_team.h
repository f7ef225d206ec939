/* Threads that do the same thing at the same time on CPUs of their own. */
#ifndef TOKENRING_TOOLS_BENCH_FLOOR_TEAM_H
#define TOKENRING_TOOLS_BENCH_FLOOR_TEAM_H

/* Does one portion of work and returns how much it was, in the caller's unit. */
typedef double (*team_work)(void *context, unsigned thread, unsigned threads);

/* Runs `work` on each thread over and over until `seconds` have passed since the common start. Returns the
 * sum over threads of work by time: a rate. Negative: a negative errno. */
double team_rate(team_work work, void *context, unsigned threads, double seconds);

#endif
