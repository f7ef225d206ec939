/* Another user: a child process that does something as one, and reports a small number.
 *
 * Thread rule: the calling thread waits. Needs root; a test that cannot be two users skips. */
#ifndef TOKENRING_TESTS_HARNESS_STRANGER_H
#define TOKENRING_TESTS_HARNESS_STRANGER_H

#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/harness/witness.h"

enum { STRANGER = 4321, STRANGER_GROUP = 4322, STRANGER_OTHER_GROUP = 4323 };

static inline void need_two_users(void)
{
	if (getuid() == 0)
		return;
	print_message("needs root to be two users\n");
	skip();
}

/* Lets others reach the socket, as far as the file system is concerned. */
static inline void let_strangers_in(void)
{
	chmod(served.folder, 0711);
	chmod(served.path, 0666);
}

/* Runs `act` in a child of the user STRANGER with both groups; returns what it returns (0 to 255). */
static inline int as_stranger(int (*act)(void *argument), void *argument)
{
	gid_t other = STRANGER_OTHER_GROUP;
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		if (setgroups(1, &other) < 0 || setgid(STRANGER_GROUP) < 0 || setuid(STRANGER) < 0)
			_exit(255);
		_exit(act(argument));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Connects; 0: it got a live channel, else the reason why not. */
static inline int stranger_connect(void *nothing)
{
	struct raw_client client = {.segment.fd = -1};
	struct raw_message message;
	struct wire_end end;
	unsigned type;

	(void)nothing;
	client.fd = raw_connect(served.path);
	if (client.fd < 0)
		return 254;
	type = raw_receive(client.fd, &message, NULL);
	if (type == WIRE_CONTROL_OFFER) {
		raw_send(client.fd, WIRE_CONTROL_MAPPED, 0, NULL, 0);
		return raw_receive(client.fd, &message, NULL) == WIRE_CONTROL_LIVE ? 0 : 253;
	}
	memcpy(&end, message.payload, sizeof end);
	return type == WIRE_CONTROL_END ? (int)end.reason : 252;
}

#endif
