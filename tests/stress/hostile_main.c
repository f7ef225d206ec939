/* hostile_client SOCKET SEED SECONDS: torments the daemon from one short-lived process after the other, and
 * prints how often it did what. Exits with 3 if something succeeded that must be impossible. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/stress/hostile.h"

enum { EPISODES_A_PROCESS = 80, ROUNDS_MAX = 30, PROCESS_SECONDS = 30 };

static const struct {
	const char *name;
	void (*torment)(struct hostile *hostile);
} torments[] = {
    {"messages", hostile_messages},
    {"descriptors", hostile_descriptors},
    {"system calls", hostile_system_calls},
    {"scribbles", hostile_scribble},
    {"requests", hostile_requests},
    {"races", hostile_race},
    {"hoards", hostile_hoard},
};

enum { TORMENTS = sizeof torments / sizeof torments[0] };

/* Counted over all processes. */
struct tally {
	shared_u64 done[TORMENTS], connects, refused, live, ended, crowds;
};

static struct tally *tally;

uint32_t hostile_random(struct hostile *hostile)
{
	uint64_t x = hostile->seed += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (uint32_t)((x ^ x >> 31) >> 16);
}

uint32_t hostile_below(struct hostile *hostile, uint32_t bound)
{
	return hostile_random(hostile) % bound;
}

/* It writes to the header itself: only what the daemon alone can know is believed. */
bool hostile_ended(const struct hostile *hostile)
{
	return hostile->live &&
	       load_relaxed_u32(&segment_header(&hostile->segment)->state) == WIRE_STATE_ENDED;
}

void hostile_breach(const char *what)
{
	fprintf(stderr, "BREACH: %s\n", what);
	_exit(BREACH);
}

static void torment(struct hostile *hostile)
{
	for (uint32_t round = hostile_below(hostile, ROUNDS_MAX); round > 0; round--) {
		uint32_t which = hostile_below(hostile, TORMENTS);

		if (!hostile->live && which > 2)
			which = hostile_below(hostile, 3);
		if (hostile->live && which < 2 && hostile_below(hostile, 3))
			which = 4; /* most messages end the channel */
		torments[which].torment(hostile);
		add_relaxed_u64(&tally->done[which], 1);
		if (hostile_ended(hostile)) {
			add_relaxed_u64(&tally->ended, 1);
			return;
		}
	}
}

static void episode(struct hostile *hostile)
{
	if (hostile_below(hostile, 40) == 0) {
		hostile_crowd(hostile);
		add_relaxed_u64(&tally->crowds, 1);
		return;
	}
	add_relaxed_u64(&tally->connects, 1);
	if (!hostile_connect(hostile)) {
		add_relaxed_u64(&tally->refused, 1);
	} else if (hostile_below(hostile, 6) == 0) {
		torment(hostile); /* never mapped, as far as it says */
	} else if (hostile_go_live(hostile)) {
		add_relaxed_u64(&tally->live, 1);
		torment(hostile);
	}
	hostile_leave(hostile);
}

static void process(const char *path, uint64_t seed)
{
	struct hostile hostile = {.path = path, .seed = seed, .fd = -1, .memory = -1};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(PROCESS_SECONDS); /* what it does may hang itself */
	for (int i = 0; i < EPISODES_A_PROCESS; i++)
		episode(&hostile);
	_exit(0);
}

static uint64_t clock_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec;
}

static void print(unsigned processes, unsigned died)
{
	printf("{\"processes\": %u, \"died\": %u, \"connects\": %lu, \"refused\": %lu, \"live\": %lu, "
	       "\"ended\": %lu, "
	       "\"crowds\": %lu",
	       processes, died, (unsigned long)load_relaxed_u64(&tally->connects),
	       (unsigned long)load_relaxed_u64(&tally->refused),
	       (unsigned long)load_relaxed_u64(&tally->live), (unsigned long)load_relaxed_u64(&tally->ended),
	       (unsigned long)load_relaxed_u64(&tally->crowds));
	for (unsigned i = 0; i < TORMENTS; i++)
		printf(", \"%s\": %lu", torments[i].name, (unsigned long)load_relaxed_u64(&tally->done[i]));
	printf("}\n");
}

int main(int argc, char **argv)
{
	unsigned processes = 0, died = 0;
	uint64_t seed, end_s;

	if (argc != 4) {
		fprintf(stderr, "usage: hostile_client SOCKET SEED SECONDS\n");
		return 2;
	}
	seed = strtoull(argv[2], NULL, 0);
	end_s = clock_s() + strtoull(argv[3], NULL, 0);
	tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN); /* its children make it the owner of files, and leases on them are broken */
	for (; clock_s() < end_s; processes++) {
		int status = 0;
		pid_t child = fork();

		if (child == 0)
			process(argv[1], seed + ((uint64_t)processes << 32));
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
		if (WIFEXITED(status) && WEXITSTATUS(status) == BREACH) {
			fprintf(stderr, "process %u of seed %llu\n", processes, (unsigned long long)seed);
			return BREACH;
		}
		died += WIFSIGNALED(status);
	}
	print(processes, died);
	return 0;
}
