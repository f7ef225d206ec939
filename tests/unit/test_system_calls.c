/* No system call a message between two busy ends: a filter on the front's thread and on the client's turns
 * each call into a signal that counts it. Each end may look at its sockets once in 2 ms, and nothing else.
 *
 * The filter cannot be taken off, so that all happens in a child which ends by _exit. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/include/tokenring/tokenring.h"
#include "tests/harness/daemon.h"

#if defined(__x86_64__)

enum { MESSAGES = 20000, STREAMS = 100, STREAM_TOKENS = 100 };

static struct test_daemon served;
static shared_u64 front_calls, client_calls;
static _Thread_local shared_u64 *counter;
static shared_u32 armed;

static void on_call(int number, siginfo_t *info, void *context)
{
	ucontext_t *machine = context;

	(void)number;
	(void)info;
	add_relaxed_u64(counter, 1);
	machine->uc_mcontext.gregs[REG_RAX] = -EAGAIN; /* nothing there */
}

static void install_filter(void)
{
	struct sock_filter code[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(77);
}

static uint64_t clock_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool echo(struct tr_client *client, uint32_t token)
{
	struct tr_request request = {.size = sizeof request, .op = TR_ECHO, .n_tokens = 1, .tokens = {token}};
	struct tr_event event = {.size = sizeof event};
	uint64_t id;

	while (tr_submit(client, &request, &id) == -EAGAIN)
		;
	while (tr_poll(client, &event, 1) == 0)
		;
	return event.kind == TR_EVENT_ECHO && event.tokens[0] == token;
}

static bool stream(struct tr_client *client)
{
	struct tr_request request = {.size = sizeof request,
				     .op = TR_GENERATE,
				     .n_tokens = 1,
				     .max_new = STREAM_TOKENS,
				     .tokens = {1}};
	struct tr_event event = {.size = sizeof event};
	uint32_t n = 0;
	uint64_t id;

	if (tr_submit(client, &request, &id))
		return false;
	while (event.kind != TR_EVENT_FINAL)
		if (tr_poll(client, &event, 1) == 1)
			n += event.n_tokens;
	return n == STREAM_TOKENS;
}

struct outcome {
	struct tr_client *client;
	uint64_t took_ns;
	bool right;
};

static void *client_run(void *argument)
{
	struct outcome *outcome = argument;
	uint64_t before;

	for (uint32_t i = 0; i < 1000; i++)
		echo(outcome->client, 1);
	counter = &client_calls;
	install_filter();
	store_release_u32(&armed, 1);
	while (load_acquire_u32(&armed) != 2)
		echo(outcome->client, 1);
	before = clock_now();
	outcome->right = true;
	for (uint32_t i = 0; i < MESSAGES; i++)
		outcome->right &= echo(outcome->client, i % FAKE_VOCAB);
	for (int i = 0; i < STREAMS; i++)
		outcome->right &= stream(outcome->client);
	outcome->took_ns = clock_now() - before;
	return NULL;
}

/* The harness calls it on the front's thread each round: arms the filter when the client is ready. */
static void between_turns(void)
{
	if (load_acquire_u32(&armed) != 1)
		return;
	counter = &front_calls;
	install_filter();
	store_release_u32(&armed, 2);
}

static void count_calls(void **state)
{
	struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER};
	struct tr_open_options options = {.size = sizeof options, .spin_ns = UINT32_MAX};
	struct outcome outcome = {0};
	uint64_t allowed;
	pthread_t thread;

	(void)state;
	sigaction(SIGSYS, &action, NULL);
	test_daemon_init(&served);
	served.front_config.spin_ns = UINT64_C(60000000000);
	served.between_turns = between_turns;
	test_daemon_start(&served, false);
	assert_int_equal(tr_open(&outcome.client, served.path, &options), 0);
	pthread_create(&thread, NULL, client_run, &outcome);
	pthread_join(thread, NULL);
	assert_true(outcome.right);
	/* A look costs one call, in each 2 ms; the rest is slack for the ends of the measurement. */
	allowed = outcome.took_ns / 2000000 + 10;
	print_message("%d echoes and %d tokens in %llu ms: %llu calls of the front, %llu of the client\n",
		      MESSAGES, STREAMS * STREAM_TOKENS, (unsigned long long)outcome.took_ns / 1000000,
		      (unsigned long long)load_relaxed_u64(&front_calls),
		      (unsigned long long)load_relaxed_u64(&client_calls));
	assert_true(load_relaxed_u64(&front_calls) <= allowed);
	assert_true(load_relaxed_u64(&client_calls) <= allowed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(count_calls)};
	pid_t child;
	int status;

	if (getenv("TOKENRING_SANITIZER") && *getenv("TOKENRING_SANITIZER")) {
		printf("SKIP: a sanitizer's runtime makes system calls of its own\n");
		return 77;
	}
	child = fork();
	if (child == 0) {
		int failed = cmocka_run_group_tests(tests, NULL, NULL);

		unlink(served.path);
		strcat(served.path, ".lock");
		unlink(served.path);
		rmdir(served.folder);
		_exit(failed);
	}
	waitpid(child, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		printf("SKIP: needs seccomp filters\n");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

#else

int main(void)
{
	printf("SKIP: counts system calls by seccomp on x86-64\n");
	return 77;
}

#endif
