/* A program around one transport: orders on standard input, results on standard output. What the transport's
 * library prints goes to standard error. */
#include <fcntl.h>
#include <unistd.h>

#include "tools/bench/peer.h"

int main(void)
{
	int results = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	if (results < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return 1;
	return pair_serve(&pair_peer, STDIN_FILENO, results);
}
