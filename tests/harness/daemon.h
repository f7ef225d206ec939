/* A whole daemon but for the model, inside the test's process: front, control thread and an engine that makes
 * tokens up, on two threads. Clients connect to its socket like to any daemon's.
 *
 * Thread rule: one thread starts and stops it; the knobs of the engine may be turned from any. */
#ifndef TOKENRING_TESTS_HARNESS_DAEMON_H
#define TOKENRING_TESTS_HARNESS_DAEMON_H

#include <pthread.h>

#include "daemon/control/server.h"
#include "daemon/engine/front.h"
#include "tests/harness/fake_engine.h"

struct test_daemon {
	struct fake_engine engine;
	struct front_config front_config;
	struct server_config server_config;
	struct front *front;
	struct server *server;
	struct server_model model;
	pthread_t thread;
	uint32_t n_requests;
	uint32_t command_slots; /* 0: as many as engine/request.h promises */
	bool started;
	void (*between_turns)(void); /* before the start: runs on the front's thread after each turn */
	bool no_allocation; /* before the start: the front's thread asserts that it allocates nothing */
	char folder[64], path[96];
	char notice[256]; /* the last one; read it after the daemon has stopped, or under a wait */
};

/* Fills in options that a test may change before test_daemon_start. */
void test_daemon_init(struct test_daemon *daemon);

/* Fails the test (cmocka) if it does not start. The model is ready unless `loading`. */
void test_daemon_start(struct test_daemon *daemon, bool loading);

/* Drains for at most drain_ms, stops, and removes everything. */
void test_daemon_stop(struct test_daemon *daemon, unsigned drain_ms);

/* The model is there, or failed. */
void test_daemon_ready(struct test_daemon *daemon, uint32_t state);

/* Open descriptors and mappings of this process, to compare before and after. */
unsigned count_descriptors(void);
unsigned count_mappings(void);

/* Waits until `counter` has the value, at most two seconds; fails the test otherwise. */
void wait_for_count(const shared_u64 *counter, uint64_t value);

/* Sleeps. */
void pause_ms(unsigned ms);

#endif
