/* The datagrams that a service manager receives, on a socket in the file system and on an abstract one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/control/sd_notify.h"

static int manager = -1;

static void listen_at(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);
	if (*name == '@')
		address.sun_path[0] = '\0';
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(manager, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
			 0);
	setenv("NOTIFY_SOCKET", name, 1);
}

static const char *received(void)
{
	static char text[4096];
	ssize_t bytes = recv(manager, text, sizeof(text) - 1, MSG_DONTWAIT);

	text[bytes < 0 ? 0 : bytes] = '\0';
	return text;
}

static void nobody_asked(void **state)
{
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(notify_ready(), 1);
	setenv("NOTIFY_SOCKET", "", 1);
	assert_int_equal(notify_ready(), 1);
}

static void states_arrive_as_datagrams(void **state)
{
	char path[64];
	struct timespec before;
	long long told;

	snprintf(path, sizeof(path), "/tmp/test_sd_notify.%d", (int)getpid());
	listen_at(path);
	clock_gettime(CLOCK_MONOTONIC, &before);
	assert_int_equal(notify_ready(), 0);
	assert_string_equal(received(), "READY=1");
	assert_int_equal(notify_stopping(), 0);
	assert_string_equal(received(), "STOPPING=1");
	assert_int_equal(notify_status("loading: %d %%\nREADY=1", 40), 0);
	assert_string_equal(received(), "STATUS=loading: 40 % READY=1");
	assert_int_equal(notify_reloading(), 0);
	assert_int_equal(sscanf(received(), "RELOADING=1\nMONOTONIC_USEC=%lld", &told), 1);
	assert_true(told >= (long long)before.tv_sec * 1000000 &&
		    told < ((long long)before.tv_sec + 60) * 1000000);
	close(manager);
	unlink(path);
	assert_int_equal(notify_ready(), -ENOENT);
}

static void abstract_sockets_work(void **state)
{
	char name[64];

	snprintf(name, sizeof(name), "@test_sd_notify.%d", (int)getpid());
	listen_at(name);
	assert_int_equal(notify_service("READY=1\nSTATUS=x"), 0);
	assert_string_equal(received(), "READY=1\nSTATUS=x");
	close(manager);
}

static void wrong_addresses_are_refused(void **state)
{
	char longer[200];

	setenv("NOTIFY_SOCKET", "relative", 1);
	assert_int_equal(notify_ready(), -EINVAL);
	memset(longer, '/', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	setenv("NOTIFY_SOCKET", longer, 1);
	assert_int_equal(notify_ready(), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nobody_asked),
	    cmocka_unit_test(states_arrive_as_datagrams),
	    cmocka_unit_test(abstract_sockets_work),
	    cmocka_unit_test(wrong_addresses_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
