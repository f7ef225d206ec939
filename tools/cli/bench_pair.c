#include "tools/cli/bench_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

struct pair {
	pid_t pid;
	int orders, results;
};

/* In the child: the two pipes become its standard input and output, and nothing else stays open but standard
 * error; a copy of the client's socket would keep the channel alive. */
static _Noreturn void serve(const struct pair_transport *transport, const char *path, int orders, int results)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (dup2(orders, STDIN_FILENO) < 0 || dup2(results, STDOUT_FILENO) < 0)
		_exit(1);
	close_range(STDERR_FILENO + 1, ~0u, 0);
	if (!path)
		_exit(pair_serve(transport, STDIN_FILENO, STDOUT_FILENO));
	execl(path, path, (char *)NULL);
	_exit(127);
}

static int start(const struct pair_transport *transport, const char *path, struct pair **ret)
{
	int orders[2], results[2];
	struct pair *pair = calloc(1, sizeof *pair);
	if (!pair)
		return -ENOMEM;
	if (pipe2(orders, O_CLOEXEC)) {
		free(pair);
		return -EMFILE;
	}
	if (pipe2(results, O_CLOEXEC)) {
		close(orders[0]);
		close(orders[1]);
		free(pair);
		return -EMFILE;
	}
	pair->pid = fork();
	if (pair->pid == 0)
		serve(transport, path, orders[0], results[1]);
	close(orders[0]);
	close(results[1]);
	pair->orders = orders[1];
	pair->results = results[0];
	if (pair->pid < 0) {
		pair_stop(pair);
		return -EAGAIN;
	}
	*ret = pair;
	return 0;
}

int pair_start(const struct pair_transport *transport, struct pair **ret)
{
	return start(transport, NULL, ret);
}

int pair_start_program(const char *path, struct pair **ret)
{
	return access(path, X_OK) ? -errno : start(NULL, path, ret);
}

int pair_run(struct pair *pair, const struct pair_order *order, struct floor_trips *ret)
{
	char *to = (char *)ret;
	size_t left = sizeof *ret;
	if (write(pair->orders, order, sizeof *order) != (ssize_t)sizeof *order)
		return -EPIPE;
	while (left) {
		struct pollfd readable = {.fd = pair->results, .events = POLLIN};
		int r = poll(&readable, 1, PATIENCE_MS);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r ? -errno : -ETIMEDOUT;
		ssize_t n = read(pair->results, to, left);
		if (n <= 0)
			return -EPIPE;
		to += n;
		left -= (size_t)n;
	}
	return 0;
}

void pair_stop(struct pair *pair)
{
	if (!pair)
		return;
	close(pair->orders);
	close(pair->results);
	if (pair->pid > 0) {
		kill(pair->pid, SIGTERM);
		waitpid(pair->pid, NULL, 0);
	}
	free(pair);
}
