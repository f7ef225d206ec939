#include "daemon/keeper.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomics.h"

enum { STACK_BYTES = 16 << 10, SIGNALS_BYTES = 8 /* of the kernel's signal set */ };
enum { STARTING, READY, FAILED };
enum { STARTS = 10 /* of a keeper that somebody ends before it is ready */ };

static struct {
	_Alignas(64) unsigned char stack[STACK_BYTES];
	shared_u32 state;
	pid_t daemon, pid; /* pid: of the keeper; 0: none */
} keeper;

/* Runs in the daemon's memory and with the main thread's errno: nothing but system calls, none of which may
 * fail once the state is READY. */
static int keep(void *nothing)
{
	const uint64_t all = UINT64_MAX;
	struct pollfd gone = {.events = POLLIN};
	long error = syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, SIGNALS_BYTES);

	error |= syscall(SYS_close_range, 0, UINT32_MAX, 0);
	/* A stopped keeper would hold the memory of a dead daemon for ever. What it waits for is something
	 * else, as the signal comes when the main thread ends, before the last thread has closed the sockets.
	 */
	error |= syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGCONT, 0, 0, 0);
	syscall(SYS_prctl, PR_SET_NAME, "tokenringd-keep", 0, 0, 0);
	gone.fd = (int)syscall(SYS_pidfd_open, keeper.daemon, 0);
	if (gone.fd < 0)
		error = -1;
	/* Release: pairs with the acquire in keeper_start; errno is the main thread's own again. */
	store_release_u32(&keeper.state, error ? FAILED : READY);
	if (!error)
		syscall(SYS_ppoll, &gone, 1, NULL, NULL, 0);
	syscall(SYS_exit_group, 0);
	return nothing != NULL;
}

/* -EINTR: somebody ended it before it was ready. */
static int start_once(void)
{
	int pid, ended = 0;

	keeper.daemon = getpid();
	store_relaxed_u32(&keeper.state, STARTING);
	pid = clone(keep, keeper.stack + sizeof keeper.stack, CLONE_VM | SIGCHLD, NULL);
	if (pid < 0)
		return -errno;
	while (load_acquire_u32(&keeper.state) == STARTING && ended == 0) {
		ended = waitpid(pid, NULL, WNOHANG);
		sched_yield();
	}
	/* What has ended is waited for already, even if it was ready for a moment: its number may be
	 * another's. */
	if (load_acquire_u32(&keeper.state) == READY && ended == 0) {
		keeper.pid = pid;
		return 0;
	}
	if (ended == 0)
		waitpid(pid, NULL, 0);
	return load_acquire_u32(&keeper.state) == FAILED ? -ENOSYS : -EINTR;
}

int keeper_start(void)
{
	int error = -EINTR;

	for (int i = 0; i < STARTS && error == -EINTR; i++)
		error = start_once();
	return error;
}

int keeper_tend(void)
{
	int error;

	if (keeper.pid == 0 || waitpid(keeper.pid, NULL, WNOHANG) != keeper.pid)
		return 0;
	keeper.pid = 0;
	error = keeper_start();
	return error < 0 ? error : 1;
}

void keeper_stop(void)
{
	if (keeper.pid == 0)
		return;
	kill(keeper.pid, SIGKILL);
	waitpid(keeper.pid, NULL, 0);
	keeper.pid = 0;
}
