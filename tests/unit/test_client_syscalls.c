/* No system call a message between two busy ends: the client's thread runs under a seccomp filter by which
 * the first one kills it. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/client_fixture.h"

/* On a busy machine the daemon's thread may lose its CPU for the 2 ms after which the client looks at its
 * socket; so the run is short and tried often. A call a message fails every try. */
enum { MESSAGES = 2000, WARM_UP = 200, TRIES = 100 };

struct run {
	struct tr_client *client;
	uint32_t n_tokens; /* 0: echo; else generate so many from a long prompt */
	long faults;
	shared_u32 finished;
};

static bool one_message(struct run *run, uint32_t i)
{
	static const uint32_t prompt[40];
	struct tr_request_extra extra = {
	    .size = sizeof extra, .tokens = prompt, .n_tokens = 40, .max_new = run->n_tokens};
	struct tr_request request = {.size = sizeof request, .op = TR_ECHO, .n_tokens = 1, .tokens = {i}};
	struct tr_event event = {.size = sizeof event, .kind = TR_EVENT_TOKENS};
	uint64_t id;
	int n = 0;

	if (run->n_tokens) {
		request.op = TR_GENERATE;
		request.extra = &extra;
	}
	if (tr_submit(run->client, &request, &id) < 0)
		return false;
	while (event.kind == TR_EVENT_TOKENS) {
		while (n == 0)
			n = i % 2 ? tr_poll(run->client, &event, 1) : tr_wait(run->client, &event, 1, -1);
		if (n < 0 || event.id != id)
			return false;
		n = 0;
	}
	return true;
}

static long minor_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_minflt;
}

/* From here on any call but the thread's exit ends the thread. (Strict mode would forbid the time-stamp
 * counter, too.) */
static bool forbid_system_calls(void)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
	};
	struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void *client_thread(void *argument)
{
	struct run *run = argument;
	bool is_right = true;

	for (uint32_t i = 0; i < WARM_UP; i++)
		is_right &= one_message(run, i);
	run->faults = minor_faults();
	for (uint32_t i = 0; i < MESSAGES / 4; i++)
		is_right &= one_message(run, i);
	run->faults = minor_faults() - run->faults;
	is_right = is_right && forbid_system_calls();
	for (uint32_t i = 0; is_right && i < MESSAGES; i++)
		is_right &= one_message(run, i);
	store_release_u32(&run->finished, is_right);
	/* pthread_exit would unmap its stack, which is a system call. */
	syscall(SYS_exit, 0);
	return NULL;
}

/* Whether one run of the client's thread came to its end. */
static bool try_once(uint32_t n_tokens, long *ret_faults)
{
	struct fake_daemon fake = {0};
	struct tr_open_options options = {.size = sizeof options, .spin_ns = UINT32_MAX};
	struct run run = {.n_tokens = n_tokens};
	pthread_t thread;
	bool is_done;

	fake_set(&fake, FAKE_AWAKE);
	run.client = fake_start_shared(&fake, &options);
	assert_int_equal(pthread_create(&thread, NULL, client_thread, &run), 0);
	pthread_join(thread, NULL);
	is_done = load_acquire_u32(&run.finished);
	*ret_faults = run.faults;
	fake_stop(&fake);
	tr_close(run.client);
	return is_done;
}

static void expect_no_system_call(uint32_t n_tokens)
{
	long faults = 0;

	for (int i = 0; i < TRIES; i++) {
		if (try_once(n_tokens, &faults)) {
			assert_int_equal(faults, 0);
			return;
		}
	}
	fail_msg("in each of %d tries the client made a system call", TRIES);
}

static void echoes_make_none(void **state)
{
	expect_no_system_call(0);
}

static void streams_from_blocks_make_none(void **state)
{
	expect_no_system_call(20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(echoes_make_none),
	    cmocka_unit_test(streams_from_blocks_make_none),
	};

	if (getenv("TOKENRING_SANITIZER") && *getenv("TOKENRING_SANITIZER")) {
		printf("SKIP: a sanitizer's runtime makes system calls of its own\n");
		return 77;
	}
	if (access("/proc/sys/kernel/seccomp", F_OK) < 0) {
		printf("SKIP: the kernel has no seccomp\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
