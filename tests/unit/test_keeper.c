/* The keeper, ended by somebody at the moments that no other process could hit: before it is ready, and just
 * after. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int start_it(int (*function)(void *), void *stack, int flags, void *argument);
#define clone start_it
#include "daemon/keeper.c"
#undef clone

int clone(int (*function)(void *), void *stack, int flags, void *argument, ...);

static int started, to_end;
static bool let_it_get_ready;

/* Stands for a keeper that has not come far yet. */
static int hang(void *nothing)
{
	while (nothing == NULL)
		syscall(SYS_pause);
	return 0;
}

static int start_it(int (*function)(void *), void *stack, int flags, void *argument)
{
	bool end = to_end > 0;
	int pid = clone(end && !let_it_get_ready ? hang : function, stack, flags, argument);
	siginfo_t info;

	started++;
	if (!end)
		return pid;
	to_end--;
	while (let_it_get_ready && load_acquire_u32(&keeper.state) != READY)
		sched_yield();
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	return pid;
}

static bool runs(void)
{
	return keeper.pid > 0 && waitpid(keeper.pid, NULL, WNOHANG) == 0;
}

static void test_ended_before_ready(void **state)
{
	(void)state;
	started = 0, to_end = 3;
	assert_int_equal(keeper_start(), 0);
	assert_true(runs());
	assert_int_equal(started, 4);
	keeper_stop();
	assert_int_equal(keeper.pid, 0);
}

/* It is noticed, at the latest by the SIGCHLD. */
static void test_ended_when_ready(void **state)
{
	(void)state;
	let_it_get_ready = true;
	to_end = 1;
	assert_int_equal(keeper_start(), 0);
	let_it_get_ready = false;
	assert_int_equal(keeper_tend(), 1);
	assert_true(runs());
	keeper_stop();
}

static void test_ended_again_and_again(void **state)
{
	(void)state;
	started = 0, to_end = INT32_MAX;
	assert_int_equal(keeper_start(), -EINTR);
	to_end = 0;
	assert_int_equal(started, STARTS);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* none is left */
	assert_int_equal(keeper_start(), 0);
	keeper_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_ended_before_ready),
	    cmocka_unit_test(test_ended_when_ready),
	    cmocka_unit_test(test_ended_again_and_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
