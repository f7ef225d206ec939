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

static struct {
	_Alignas(64) unsigned char stack[STACK_BYTES];
	shared_u32 state;
	pid_t daemon;
} keeper;

/* Runs in the daemon's memory and with the main thread's errno: nothing but system calls, none of which may
 * fail once the state is READY. */
static int keep(void *nothing)
{
	const uint64_t all = UINT64_MAX;
	struct pollfd gone = {.events = POLLIN};
	long error = syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, SIGNALS_BYTES);

	error |= syscall(SYS_close_range, 0, UINT32_MAX, 0);
	/* Not PR_SET_PDEATHSIG, which comes when the main thread ends, before the last thread has closed the
	 * sockets. */
	gone.fd = (int)syscall(SYS_pidfd_open, keeper.daemon, 0);
	syscall(SYS_prctl, PR_SET_NAME, "tokenringd-keep", 0, 0, 0);
	if (gone.fd < 0)
		error = -1;
	/* Release: pairs with the acquire in keeper_start; errno is the main thread's own again. */
	store_release_u32(&keeper.state, error ? FAILED : READY);
	if (!error)
		syscall(SYS_ppoll, &gone, 1, NULL, NULL, 0);
	syscall(SYS_exit_group, 0);
	return nothing != NULL;
}

int keeper_start(void)
{
	int pid;

	keeper.daemon = getpid();
	store_relaxed_u32(&keeper.state, STARTING);
	/* No exit signal: nobody waits for it but keeper_stop. */
	pid = clone(keep, keeper.stack + sizeof keeper.stack, CLONE_VM, NULL);
	if (pid < 0)
		return -errno;
	while (load_acquire_u32(&keeper.state) == STARTING)
		sched_yield();
	if (load_relaxed_u32(&keeper.state) == READY)
		return pid;
	waitpid(pid, NULL, __WALL);
	return -ENOSYS;
}

void keeper_stop(int pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, __WALL);
}
