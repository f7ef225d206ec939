#include "tools/cli/interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t count;

static void on_signal(int signal_number)
{
	if (count++)
		_exit(1);
}

void interrupt_watch(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	action.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &action, NULL);
}

unsigned interrupt_count(void)
{
	return (unsigned)count;
}
