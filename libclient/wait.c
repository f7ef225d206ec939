/* Waiting for an event: spin, then sleep; or leave the sleeping to the caller's epoll. */
#include <errno.h>
#include <poll.h>

#include "libclient/client.h"

enum {
	SPINS_A_CLOCK = 16,   /* looks at the ring between two reads of the clock */
	LEAST_SPIN_NS = 1000, /* that fruitless waits leave of the spinning */
};

/* Looks at the ring until the clock says `until_ns`: 1 ready, 0 not, or an error. */
static int spin(struct tr_client *client, uint64_t until_ns)
{
	for (;;) {
		uint64_t now_ns;
		int error;

		for (int i = 0; i < SPINS_A_CLOCK; i++)
			if (ring_ready(&client->completions))
				return 1;
		spin_pause();
		now_ns = clock_now_ns();
		error = client_look_at_health(client, now_ns);
		if (error < 0)
			return error;
		if (now_ns >= until_ns)
			return 0;
	}
}

static int sleep_in_poll(struct tr_client *client, uint64_t deadline_ns)
{
	uint64_t slice_ns = clock_now_ns() + SLEEP_SLICE_NS;

	/* [C11] */
	return socket_wait(client->socket, POLLIN, slice_ns < deadline_ns ? slice_ns : deadline_ns);
}

/* One sleep, of one slice at most: 1 events are ready, 0 not, or an error. */
static int sleep_slice(struct tr_client *client, uint64_t deadline_ns)
{
	shared_u32 *word = &segment_header(&client->segment)->client_sleep;
	/* What ended the last sleep is read before the next one, when nobody waits for an answer. */
	int error = client_drain(client);

	if (error < 0)
		return error;
	sleep_begin(&client->sleeper, word);
	/* [C6] The same fence serves what was submitted. */
	client_fences(client);
	if (wake_look(&client->waker) < 0)
		error = client_hung_up(client);
	if (error == 0 && !ring_ready(&client->completions)) /* [C10] */
		error = sleep_in_poll(client, deadline_ns);
	sleep_end(&client->sleeper, word);
	if (ring_ready(&client->completions))
		return 1;
	return error < 0 ? error : client_heartbeat(client, clock_now_ns());
}

/* A client of slow answers does not take the CPU, again and again, from whoever computes them: each wait that
 * was longer than all of spin_ns halves what the next one spins, a shorter one gives it back. */
static void learn_spin(struct tr_client *client, bool found, uint64_t waited_ns)
{
	if (waited_ns > client->spin_ns && client->spin_now_ns / 2 >= LEAST_SPIN_NS)
		client->spin_now_ns /= 2;
	else if (found && waited_ns <= client->spin_ns)
		client->spin_now_ns = client->spin_ns;
}

int tr_wait(struct tr_client *client, struct tr_event *events, unsigned max, int64_t timeout_ns)
{
	int n = tr_poll(client, events, max), ready;
	uint64_t start_ns, deadline_ns, spin_end_ns;

	if (n != 0 || timeout_ns == 0)
		return n;
	start_ns = clock_now_ns();
	deadline_ns = timeout_ns < 0 ? UINT64_MAX : start_ns + (uint64_t)timeout_ns;
	spin_end_ns = client->spin_ns == UINT32_MAX ? UINT64_MAX : start_ns + client->spin_now_ns;
	ready = spin(client, spin_end_ns < deadline_ns ? spin_end_ns : deadline_ns);
	while (ready == 0 && clock_now_ns() < deadline_ns)
		ready = sleep_slice(client, deadline_ns);
	if (client->spin_ns != UINT32_MAX)
		learn_spin(client, ready == 1, clock_now_ns() - start_ns);
	if (!client->gate.open)
		return client_poll_closed(client, events, max);
	return ready == 1 ? client_collect(client, events, 0, max) : ready;
}

int tr_arm(struct tr_client *client)
{
	int error;

	if (!client_open(client))
		return client_closed(client);
	/* [C13] A wake-up byte that nobody took makes epoll return at once, for ever. */
	error = client_drain(client);
	if (error == 0)
		error = client_heartbeat(client, clock_now_ns());
	if (error == 0) {
		sleep_begin(&client->sleeper, &segment_header(&client->segment)->client_sleep);
		client_fences(client);
		if (wake_look(&client->waker) < 0)
			error = client_hung_up(client);
	}
	client->polls_left = client->polls_a_clock = 1;
	if (ring_ready(&client->completions)) { /* [C14] */
		sleep_end(&client->sleeper, &segment_header(&client->segment)->client_sleep);
		return 1;
	}
	return error;
}
