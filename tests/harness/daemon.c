#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/harness/allocation.h"
#include "tests/harness/daemon.h"
#include "tests/harness/scratch.h"

static int status(void *context, char *json, size_t capacity)
{
	const struct front_counts *counts = front_counts(((struct test_daemon *)context)->front);

	return snprintf(json, capacity, "{\"channels\": %u}", (unsigned)load_relaxed_u64(&counts->channels));
}

static void notice(void *context, const char *sentence)
{
	struct test_daemon *daemon = context;

	snprintf(daemon->notice, sizeof daemon->notice, "%s", sentence);
}

/* One token a byte: its value. */
static int tokenize(void *context, const char *text, size_t bytes, uint32_t flags, uint32_t **ret,
		    size_t *ret_n)
{
	uint32_t *tokens = malloc((bytes + 1) * sizeof *tokens);

	(void)context;
	(void)flags;
	for (size_t i = 0; i < bytes; i++)
		tokens[i] = (unsigned char)text[i];
	*ret = tokens;
	*ret_n = bytes;
	return 0;
}

static int detokenize(void *context, const uint32_t *tokens, size_t n, uint32_t flags, char **ret,
		      size_t *ret_bytes)
{
	char *text = malloc(n + 1);

	(void)context;
	(void)flags;
	for (size_t i = 0; i < n; i++)
		text[i] = (char)tokens[i];
	*ret = text;
	*ret_bytes = n;
	return 0;
}

void test_daemon_init(struct test_daemon *daemon)
{
	memset(daemon, 0, sizeof *daemon);
	daemon->n_requests = 256;
	daemon->front_config = (struct front_config){
	    .max_clients = 300,
	    .block_bytes = 16 << 20,
	    .spin_ns = 50000,
	    .client_stall_ns = 200000000,
	    .shares = {UINT32_MAX, UINT32_MAX}, /* tests run as one user */
	};
	daemon->server_config = (struct server_config){
	    .mode = 0600,
	    .max_clients = 300,
	    .max_clients_per_uid = 300,
	    .max_half_open_per_uid = 16,
	    .memory_per_uid_bytes = 1 << 30,
	    .map_timeout_ms = 1000,
	    .sq_slots = 64,
	    .cq_slots = 128,
	    .max_inflight = 32,
	    .arena_bytes = 1 << 20,
	    .pages = SEGMENT_PAGES_NEVER,
	    .epoch = 7,
	    .status = status,
	    .status_context = daemon,
	    .notice = notice,
	    .notice_context = daemon,
	};
}

static void *run(void *argument)
{
	struct test_daemon *daemon = argument;

	allocation_forbid(daemon->no_allocation);
	while (!front_drained(daemon->front)) {
		unsigned did = front_turn(daemon->front) + fake_engine_turn(&daemon->engine);

		if (daemon->between_turns)
			daemon->between_turns();
		if (did == 0)
			front_idle(daemon->front, 0);
	}
	allocation_forbid(false);
	return NULL;
}

void test_daemon_ready(struct test_daemon *daemon, uint32_t state)
{
	daemon->model = (struct server_model){
	    .info = {.vocab = FAKE_VOCAB,
		     .context = FAKE_CONTEXT,
		     .bos = 1,
		     .eos = 2,
		     .state = state,
		     .n_stop = 2,
		     .bytes = 12345,
		     .name = "made-up"},
	    .stop = {2, 3},
	    .tokenize = tokenize,
	    .detokenize = detokenize,
	};
	fake_engine_ready(&daemon->engine, state);
	server_set_model(daemon->server, &daemon->model);
}

void test_daemon_start(struct test_daemon *daemon, bool loading)
{
	char why[256] = "";

	assert_non_null(mkdtemp(scratch_path(daemon->folder, sizeof daemon->folder, "tokenring-test")));
	snprintf(daemon->path, sizeof daemon->path, "%s/socket", daemon->folder);
	daemon->server_config.path = daemon->path;
	assert_int_equal(fake_engine_init(&daemon->engine, daemon->n_requests), 0);
	if (daemon->command_slots)
		daemon->engine.link.commands.mask = daemon->command_slots - 1;
	if (front_create(&daemon->front, &daemon->front_config, &daemon->engine.link, why, sizeof why) < 0 ||
	    server_create(&daemon->server, &daemon->server_config, daemon->front, why, sizeof why) < 0)
		fail_msg("%s", why);
	assert_int_equal(server_start(daemon->server), 0);
	assert_int_equal(pthread_create(&daemon->thread, NULL, run, daemon), 0);
	daemon->started = true;
	if (!loading)
		test_daemon_ready(daemon, WIRE_MODEL_READY);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void test_daemon_stop(struct test_daemon *daemon, unsigned drain_ms)
{
	server_close_listener(daemon->server);
	front_drain(daemon->front, now_ns() + drain_ms * UINT64_C(1000000));
	pthread_join(daemon->thread, NULL);
	server_stop(daemon->server);
	server_free(daemon->server);
	front_free(daemon->front);
	fake_engine_destroy(&daemon->engine);
	assert_int_equal(rmdir(daemon->folder), 0); /* socket and lock are gone */
	daemon->started = false;
}

unsigned count_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* Of channels only: the C library's arenas come and go. */
unsigned count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned n = 0;

	while (fgets(line, sizeof line, maps))
		n += strstr(line, "memfd:tokenring") != NULL;
	fclose(maps);
	return n;
}

void pause_ms(unsigned ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&time, NULL);
}

void wait_for_count(const shared_u64 *counter, uint64_t value)
{
	for (int i = 0; i < 2000 && load_relaxed_u64(counter) != value; i++)
		pause_ms(1);
	assert_int_equal(load_relaxed_u64(counter), value);
}
