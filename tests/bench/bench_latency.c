/* Echo round trips with a pause between them, each waited for with tr_wait.
 *
 *   bench_latency SOCKET TRIPS PAUSE_US SPIN_NS [CHANNELS]      one JSON object, in nanoseconds
 *
 * PAUSE_US lies between an answer and the next request: 0 keeps the daemon awake. SPIN_NS is how long tr_wait
 * polls before it sleeps; 4294967295 never sleeps. tests/bench/latency.py runs it under taskset, chrt and
 * many daemons. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <tokenring/tokenring.h>

enum { TRIPS_MAX = 16000000, WARM_UP = 1000, CHANNELS_MAX = 256 };

struct crowd {
	unsigned n;
	struct tr_client *client[CHANNELS_MAX];
};

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* The time of one round trip; 0 if it failed. */
static uint64_t trip(struct tr_client *client)
{
	struct tr_request request = {.size = sizeof request, .op = TR_ECHO, .n_tokens = 8};
	struct tr_event event = {.size = sizeof event};
	uint64_t id, start = now_ns();
	if (tr_submit(client, &request, &id) || tr_wait(client, &event, 1, -1) != 1 || event.id != id ||
	    event.kind != TR_EVENT_ECHO)
		return 0;
	return now_ns() - start;
}

static int measure(const struct crowd *crowd, uint64_t *ns, size_t trips, unsigned pause_us)
{
	for (size_t i = 0; i < trips + WARM_UP; i++) {
		uint64_t taken = trip(crowd->client[i % crowd->n]);
		if (!taken)
			return -1;
		if (i >= WARM_UP)
			ns[i - WARM_UP] = taken;
		if (pause_us && i >= WARM_UP)
			usleep(pause_us);
	}
	return 0;
}

/* `wanted` channels, or an error. */
static int open_crowd(struct crowd *crowd, unsigned wanted, const char *socket, uint32_t spin_ns)
{
	struct tr_open_options options = {.size = sizeof options, .spin_ns = spin_ns};
	int r = 0;
	while (!r && crowd->n < wanted) {
		r = tr_open(&crowd->client[crowd->n], socket, &options);
		crowd->n += !r;
	}
	return r;
}

static void print(const uint64_t *ns, size_t n)
{
	printf("{\"p50\":%llu,\"p99\":%llu,\"p999\":%llu,\"max\":%llu,\"n\":%zu}\n",
	       (unsigned long long)ns[n / 2], (unsigned long long)ns[n * 99 / 100],
	       (unsigned long long)ns[n * 999 / 1000], (unsigned long long)ns[n - 1], n);
}

static int run(const char *socket, size_t trips, unsigned pause_us, uint32_t spin_ns, unsigned channels)
{
	struct crowd crowd = {0};
	uint64_t *ns = calloc(trips, sizeof *ns);
	int r = ns ? open_crowd(&crowd, channels, socket, spin_ns) : -1;
	if (!r)
		r = measure(&crowd, ns, trips, pause_us);
	while (crowd.n)
		tr_close(crowd.client[--crowd.n]);
	if (!r) {
		qsort(ns, trips, sizeof *ns, ascending);
		print(ns, trips);
	}
	free(ns);
	return r;
}

int main(int argc, char **argv)
{
	size_t trips = argc >= 5 ? strtoul(argv[2], NULL, 10) : 0;
	unsigned channels = argc == 6 ? (unsigned)strtoul(argv[5], NULL, 10) : 1;
	if (!trips || trips > TRIPS_MAX || !channels || channels > CHANNELS_MAX || argc > 6) {
		fprintf(stderr, "usage: bench_latency SOCKET TRIPS PAUSE_US SPIN_NS [CHANNELS]\n");
		return 2;
	}
	int r = run(argv[1], trips, (unsigned)strtoul(argv[3], NULL, 10),
		    (uint32_t)strtoul(argv[4], NULL, 10), channels);
	if (r)
		fprintf(stderr, "bench_latency: the daemon at %s does not answer: %d\n", argv[1], r);
	return r ? 1 : 0;
}
