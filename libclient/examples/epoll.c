/* An event loop that sleeps in epoll while the daemon works, and sees a daemon that hangs: three requests in
 * flight beside a timer. */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <tokenring/tokenring.h>

enum { REQUESTS = 3 };

static int add(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/* A tick every half second: tr_poll must run at least once a second to notice a stale heartbeat. */
static int timer(void)
{
	struct itimerspec half = {.it_interval.tv_nsec = 500000000, .it_value.tv_nsec = 500000000};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

	timerfd_settime(fd, 0, &half, NULL);
	return fd;
}

static int submit_all(struct tr_client *client)
{
	for (uint32_t i = 0; i < REQUESTS; i++) {
		struct tr_request request = {.size = sizeof request, .op = TR_GENERATE, .max_new = 4 + 4 * i};
		uint64_t id;
		int error;

		request.n_tokens = 1;
		request.tokens[0] = 504 + i;
		error = tr_submit(client, &request, &id);
		if (error < 0)
			return error;
	}
	return 0;
}

/* Handles all events that are there: how many requests ended, or an error. */
static int handle(struct tr_client *client)
{
	struct tr_event events[16];
	int n, ended = 0;

	for (events[0].size = sizeof events[0]; (n = tr_poll(client, events, 16)) > 0;) {
		for (int i = 0; i < n; i++) {
			printf("request %llx: kind %u, %u tokens, %s\n", (unsigned long long)events[i].id,
			       events[i].kind, events[i].n_tokens, tr_strreason(events[i].reason));
			ended += events[i].kind != TR_EVENT_TOKENS;
		}
	}
	return n < 0 ? n : ended;
}

static int run(struct tr_client *client, int epoll, int tick)
{
	int left = REQUESTS, n = 0;

	while (left > 0) {
		struct epoll_event ready;
		unsigned long long ticks;

		n = handle(client);
		if (n < 0)
			return n;
		left -= n;
		/* 1: something arrived while arming. */
		n = tr_arm(client);
		if (n < 0)
			return n;
		if (n == 0 && left > 0 && epoll_wait(epoll, &ready, 1, -1) == 1 && ready.data.fd == tick)
			n = (int)read(tick, &ticks, sizeof ticks);
	}
	return 0;
}

int main(void)
{
	struct tr_client *client;
	int error = tr_open(&client, NULL, NULL), epoll = epoll_create1(EPOLL_CLOEXEC), tick = timer();

	if (error == 0) {
		add(epoll, tick);
		add(epoll, tr_fd(client));
		error = submit_all(client);
		if (error == 0)
			error = run(client, epoll, tick);
		tr_close(client);
	}
	if (error < 0)
		fprintf(stderr, "epoll: %s\n", tr_strerror(error));
	close(tick);
	close(epoll);
	return error < 0;
}
