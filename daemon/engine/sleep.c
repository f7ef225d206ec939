/* Sockets, sleeping and waking. */
#include "daemon/engine/front_internal.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/engine/receive.h"

/* ---- sockets ---- */

int sockets_watch(struct front *front, struct channel *channel)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = channel};

	return epoll_ctl(front->epoll_fd, EPOLL_CTL_ADD, channel->fd, &event) < 0 ? -errno : 0;
}

void sockets_forget(struct front *front, struct channel *channel)
{
	epoll_ctl(front->epoll_fd, EPOLL_CTL_DEL, channel->fd, NULL);
	if (channel->muted)
		front->n_muted--;
	channel->muted = false;
}

/* A hang-up is still reported for a muted socket. */
static void mute(struct front *front, struct channel *channel, bool muted)
{
	struct epoll_event event = {.events = muted ? 0 : EPOLLIN | EPOLLRDHUP, .data.ptr = channel};

	epoll_ctl(front->epoll_fd, EPOLL_CTL_MOD, channel->fd, &event);
	channel->muted = muted;
	front->n_muted += muted ? 1U : (uint32_t)-1;
}

static void unmute_list(struct front *front, struct channel_list *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (list->items[i]->muted && !queue_full(&list->items[i]->mailbox))
			mute(front, list->items[i], false);
}

/* One byte is a wake-up, more is control, which goes to the control thread unread. False: no more for now. */
static bool read_message(struct front *front, struct channel *channel)
{
	struct control_envelope *envelope = &front->envelope;
	ssize_t got;

	if (queue_full(&channel->mailbox)) {
		mute(front, channel, true);
		return false;
	}
	got = receive_message(channel->fd, envelope->data, sizeof envelope->data, channel->peek_first);
	if (got == -EAGAIN)
		return false;
	if (got <= 0 || got > (ssize_t)sizeof envelope->data) { /* [X4] */
		channel_doom(front, channel,
			     got > 0 || got == -EBADMSG ? WIRE_REASON_BAD_CONTROL : WIRE_REASON_PEER_GONE);
		return false;
	}
	if (got > 1) {
		envelope->bytes = (uint32_t)got;
		queue_push(&channel->mailbox, envelope);
		front->control_wanted = true;
	}
	return true;
}

static void socket_event(struct front *front, struct channel *channel, uint32_t events)
{
	unsigned left = SOCKET_MESSAGES;

	if (channel->doomed)
		return;
	if (events & EPOLLIN && !channel->muted) {
		while (left && read_message(front, channel))
			left--;
	} else if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) { /* [X5] */
		channel_doom(front, channel, WIRE_REASON_PEER_GONE);
	}
}

void sockets_look(struct front *front)
{
	struct epoll_event events[SOCKET_EVENTS];
	int n;

	if (front->n_muted) {
		unmute_list(front, &front->active);
		unmute_list(front, &front->parked);
	}
	n = epoll_wait(front->epoll_fd, events, SOCKET_EVENTS, 0);
	for (int i = 0; i < n; i++) {
		uint64_t value;

		if (events[i].data.ptr)
			socket_event(front, events[i].data.ptr, events[i].events);
		else if (read(front->wake_fd, &value, sizeof value) < 0)
			continue; /* another look has taken it */
	}
}

/* Until a socket or wake_fd has something, which the next turn reads after the rings: what woke this thread
 * lies there. */
static void sockets_wait(struct front *front, uint64_t timeout_ns)
{
	struct epoll_event ignored;
	struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000),
				   .tv_nsec = (long)(timeout_ns % 1000000000)};

	epoll_pwait2(front->epoll_fd, &ignored, 1, &timeout, NULL);
	front->next_sockets_ns = 0;
}

/* ---- waking clients ---- */

/* Not the time of day: the client that is woken may take this thread's CPU at once. */
static uint64_t thread_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* A wake walks whatever the client hung on its socket: a slow one is left to the control thread. False: the
 * kernel had no memory for the byte. */
static bool wake_timed(struct front *front, struct channel *channel)
{
	uint64_t before_ns, took_ns;
	int woke;

	if (channel->slow_until_ns && clock_ns() < channel->slow_until_ns) {
		channel->waker.woken = load_relaxed_u32(channel->waker.word);
		/* Release: pairs with the control thread's acquire; what was published is visible. */
		store_release_u32(&channel->wakes_asked, load_relaxed_u32(&channel->wakes_asked) + 1);
		front->control_wanted = true;
		count(&front->counts.slow_wakes, 1);
		return true;
	}
	fence_full(); /* [D22] what was published is seen by who gets the byte */
	before_ns = thread_ns();
	woke = wake_look(&channel->waker);
	if (woke < 0)
		channel_doom(front, channel, WIRE_REASON_PEER_GONE);
	count(&front->counts.wakes, 1);
	took_ns = thread_ns() - before_ns;
	/* A hypervisor that took the CPU away looks like an attack once, hardly twice in a row. */
	if (took_ns > HOSTILE_WAKE_NS || (took_ns > SLOW_WAKE_NS && channel->slow_before))
		channel->slow_until_ns = clock_ns() + SLOW_FORGIVEN_S * UINT64_C(1000000000);
	channel->slow_before = took_ns > SLOW_WAKE_NS;
	return woke != 0 || !wake_wanted(&channel->waker);
}

void wake_clients(struct front *front, bool fenced)
{
	for (uint32_t i = front->unwoken.n; i-- > 0;) {
		struct channel *channel = front->unwoken.items[i];
		bool wanted = !channel->doomed && wake_wanted(&channel->waker);

		/* [D9] Once: a client that got the byte has seen what was published, and if it sleeps again
		 * already, it knows that nothing came since. */
		if (wanted ? wake_timed(front, channel) : fenced) {
			channel->unwoken = false;
			front->unwoken.items[i] = front->unwoken.items[--front->unwoken.n];
		}
	}
}

void control_notify(struct front *front)
{
	uint64_t one = 1;

	front->control_wanted = false;
	/* A full counter is readable, which is all that matters. */
	if (write(front->control_fd, &one, sizeof one) < 0)
		return;
}

/* ---- sleeping ---- */

void front_wake(struct front *front)
{
	uint64_t one = 1;

	fence_full(); /* [D18] pairs with the fence in begin_sleep: either it sees what was pushed or taken,
			 or this sees `asleep` */
	if (load_relaxed_u32(&front->asleep) && write(front->wake_fd, &one, sizeof one) < 0)
		return; /* full: readable */
}

static void store_sleep(struct front *front, uint32_t value)
{
	struct channel_list *lists[] = {&front->active, &front->parked};

	for (int list = 0; list < 2; list++)
		for (uint32_t i = 0; i < lists[list]->n; i++)
			store_relaxed_u32(&lists[list]->items[i]->header->daemon_sleep, value);
}

static void begin_sleep(struct front *front)
{
	store_relaxed_u32(&front->asleep, 1);
	store_sleep(front, sleeper_next_odd(&front->sleeper)); /* [D13] */
	fence_full(); /* [D14] pairs with the fences of front_wake and of each client's wake_fence */
	if (front->unwoken.n)
		wake_clients(front, true); /* [D15] */
}

void end_sleep(struct front *front)
{
	store_sleep(front, sleeper_next_even(&front->sleeper)); /* [D19] */
}

/* Room is looked for as a turn does it: a client that made room and submitted since then has seen nobody
 * asleep, and sends no byte. A bad cq_consumed is found by the turn, too. */
static bool rings_ready(struct front *front, const struct channel_list *list)
{
	for (uint32_t i = 0; i < list->n; i++) {
		bool bad = false;

		if (!ring_ready(&list->items[i]->submissions)) /* [D12] */
			continue;
		if (channel_has_room(list->items[i], &bad) || bad)
			return true;
		front->pickup_waits = true;
	}
	return false;
}

/* Whether a socket that is not read for its full mailbox may be read again, which the next turn does. */
static bool muted_ready(struct front *front, const struct channel_list *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (list->items[i]->muted && !queue_full(&list->items[i]->mailbox)) {
			front->next_sockets_ns = 0;
			return true;
		}
	return false;
}

static bool something_to_do(struct front *front)
{
	if (front->n_muted && (muted_ready(front, &front->active) || muted_ready(front, &front->parked)))
		return true;
	return front->doomed.n || front->control_wanted || !queue_empty(&front->messages) ||
	       !queue_empty(&front->link->events) || rings_ready(front, &front->active) ||
	       rings_ready(front, &front->parked) ||
	       (load_relaxed_u64(&front->drain_deadline_ns) && !front->draining);
}

/* How long nothing can be due. */
static uint64_t longest_sleep(const struct front *front, uint64_t now_ns, uint64_t until_ns)
{
	uint64_t end_ns = front->next_beat_ns;

	if (until_ns && until_ns < end_ns)
		end_ns = until_ns;
	if ((front->pickup_waits || front->ends_owed || front->outbox.n || front->held.n ||
	     front->draining) &&
	    end_ns > now_ns + WAITING_SLEEP_NS)
		end_ns = now_ns + WAITING_SLEEP_NS; /* [D16] */
	return end_ns > now_ns ? end_ns - now_ns : 0;
}

/* Until something may be there for a turn, or for some hundred nanoseconds: nothing but loads of lines that
 * lie in this core's cache until somebody writes them. A message is found within a few nanoseconds, where a
 * whole turn would let it wait for half of its own time. */
static void look_closely(struct front *front)
{
	const struct channel_list *active = &front->active;
	struct channel_list *parked = &front->parked;

	spin_pause();
	for (uint32_t looks = CLOSE_LOOKS / (active->n + 2) + 1; looks; looks--) {
		for (uint32_t i = 0; i < active->n; i++)
			if (ring_ready(&active->items[i]->submissions))
				return;
		if (!queue_empty(&front->messages) || !queue_empty(&front->link->events))
			return;
		if (parked->n == 0)
			continue;
		parked->next = parked->next < parked->n ? parked->next : 0;
		/* The rotation stays at one that is ready: the turn begins with it. */
		if (lookout_ready(&parked->lookouts[parked->next]))
			return;
		parked->next++;
	}
}

/* Whether the spin is over. Looks at the clock once in a few calls. */
static bool spun_out(struct front *front, uint64_t *ret_now_ns)
{
	if (front->turns_to_clock > 1) {
		look_closely(front);
		return false;
	}
	*ret_now_ns = clock_ns();
	if (front->did_something)
		front->last_active_ns = *ret_now_ns;
	front->did_something = false;
	return *ret_now_ns - front->last_active_ns >= load_relaxed_u64(&front->spin_ns);
}

void front_idle(struct front *front, uint64_t until_ns)
{
	uint64_t now_ns = 0, sleep_ns = 0;

	if (!spun_out(front, &now_ns))
		return;
	begin_sleep(front);
	if (!something_to_do(front))
		sleep_ns = longest_sleep(front, now_ns, until_ns);
	if (sleep_ns) {
		count(&front->counts.sleeps, 1);
		sockets_wait(front, sleep_ns);
	}
	store_relaxed_u32(&front->asleep, 0);
	/* The clock moved: what is due is found by the next turn. */
	front->turns_to_clock = 1;
}
