#include "daemon/engine/front_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/resident.h"

enum { FILL_BYTES = 2 << 20 /* at once */ };

/* ---- lists ---- */

static struct lookout lookout_of(const struct ring_reader *ring)
{
	return (struct lookout){.word = &ring->slots[ring->index & ring->mask].word[0],
				.seq = (uint32_t)(ring->index + 1)};
}

void channels_add(struct channel_list *list, struct channel *channel)
{
	if (list->lookouts)
		list->lookouts[list->n] = lookout_of(&channel->submissions);
	channel->position = list->n;
	list->items[list->n++] = channel;
}

void channels_remove(struct channel_list *list, struct channel *channel)
{
	struct channel *last = list->items[--list->n];

	if (list->lookouts)
		list->lookouts[channel->position] = list->lookouts[list->n];
	list->items[channel->position] = last;
	last->position = channel->position;
}

void requests_add(struct front *front, struct request_list *list, uint32_t request)
{
	front->pending[request].place = list->n;
	list->items[list->n++] = request;
}

void requests_remove(struct front *front, struct request_list *list, uint32_t request)
{
	struct pending *pending = &front->pending[request];
	uint32_t last = list->items[--list->n];

	list->items[pending->place] = last;
	front->pending[last].place = pending->place;
	pending->place = NOWHERE;
}

/* ---- the life of a front ---- */

static int list_allocate(struct channel_list *list, uint32_t n)
{
	list->items = resident_calloc(n, sizeof(struct channel *));
	return list->items ? 0 : -ENOMEM;
}

static uint32_t power_of_two(uint32_t least)
{
	uint32_t n = 16;

	while (n < least)
		n *= 2;
	return n;
}

static int allocate_tables(struct front *front)
{
	uint32_t clients = front->config.max_clients, requests = front->link->n_requests;
	struct channel_list *lists[] = {&front->active, &front->parked, &front->unwoken, &front->doomed};

	for (unsigned i = 0; i < sizeof lists / sizeof lists[0]; i++)
		if (list_allocate(lists[i], clients) < 0)
			return -ENOMEM;
	front->parked.lookouts = resident_calloc(clients, sizeof *front->parked.lookouts);
	front->pending = resident_calloc(requests, sizeof *front->pending);
	front->held.items = resident_calloc(requests, sizeof(uint32_t));
	front->outbox.items = resident_calloc(requests, sizeof(uint32_t));
	if (!front->parked.lookouts || !front->pending || !front->held.items || !front->outbox.items)
		return -ENOMEM;
	for (uint32_t i = 0; i < requests; i++) {
		front->pending[i].next = i + 1 < requests ? i + 1 : NOWHERE;
		front->pending[i].place = NOWHERE;
	}
	if (tenants_init(&front->tenants, requests) < 0)
		return -ENOMEM;
	/* An attach and an end for each channel. */
	return queue_init(&front->messages, power_of_two(2 * clients), sizeof(struct front_message));
}

/* A page fault in a turn would be a system call by another name. Piece by piece, because who maps memory
 * waits for the kernel to be done with one. What is in use already stays as it is. */
static void *fill_blocks(void *data)
{
	struct front *front = data;
	uint64_t bytes = front->config.block_bytes, piece;

	pthread_setname_np(pthread_self(), "front-memory");
	for (uint64_t at = 0; at < bytes; at += piece) {
		piece = bytes - at < FILL_BYTES ? bytes - at : FILL_BYTES;
		if (madvise(front->block_memory + at, piece, MADV_POPULATE_WRITE) < 0)
			for (uint64_t i = 0; i < piece; i += 4096) /* before Linux 5.14 */
				add_relaxed_u64((shared_u64 *)(front->block_memory + at + i), 0);
	}
	return NULL;
}

static int allocate_blocks(struct front *front)
{
	uint64_t bytes = front->config.block_bytes & ~(uint64_t)4095;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -ENOMEM;
	if (front->config.huge_pages)
		madvise(memory, bytes, MADV_HUGEPAGE); /* a wish: they are there four times as soon */
	front->block_memory = memory;
	front->config.block_bytes = bytes;
	return arena_init(&front->blocks, bytes / BLOCK_UNIT_BYTES);
}

void front_fill(struct front *front)
{
	front->filling = !pthread_create(&front->filler, NULL, fill_blocks, front);
	if (!front->filling)
		fill_blocks(front);
}

void front_settle(struct front *front)
{
	if (front->filling)
		pthread_join(front->filler, NULL);
	front->filling = false;
}

static int open_descriptors(struct front *front)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

	front->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	front->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (front->epoll_fd < 0 || front->wake_fd < 0 ||
	    epoll_ctl(front->epoll_fd, EPOLL_CTL_ADD, front->wake_fd, &event) < 0)
		return -errno;
	return 0;
}

static int build(struct front *front, char *why, size_t why_bytes)
{
	int error = allocate_tables(front);

	if (error == 0)
		error = allocate_blocks(front);
	if (error < 0) {
		snprintf(why, why_bytes,
			 "no memory for %u clients, %u requests and %llu bytes of request blocks; lower "
			 "max_clients or max_queue",
			 front->config.max_clients, front->link->n_requests,
			 (unsigned long long)front->config.block_bytes);
		return error;
	}
	error = open_descriptors(front);
	if (error < 0)
		snprintf(why, why_bytes,
			 "cannot open an epoll and an event descriptor: %s; raise LimitNOFILE",
			 strerror(-error));
	return error;
}

int front_create(struct front **ret, const struct front_config *config, struct engine_link *link, char *why,
		 size_t why_bytes)
{
	struct front *front;
	int error;

	if (config->max_clients == 0 || link->n_requests == 0 || config->block_bytes < WIRE_BLOCK_BYTES_MAX) {
		snprintf(why, why_bytes,
			 "the front needs a client, a request and %d bytes of block memory at least",
			 WIRE_BLOCK_BYTES_MAX);
		return -EINVAL;
	}
	front = aligned_alloc(64, (sizeof *front + 63) & ~(size_t)63);
	if (!front) {
		snprintf(why, why_bytes, "no memory for the front");
		return -ENOMEM;
	}
	memset(front, 0, sizeof *front);
	front->config = *config;
	front->link = link;
	front->epoll_fd = front->wake_fd = front->control_fd = -1;
	front->turns_to_clock = 1;
	front_reload(front, config->spin_ns, config->client_stall_ns, &config->shares);
	error = build(front, why, why_bytes);
	if (error < 0) {
		front_free(front);
		return error;
	}
	*ret = front;
	return 0;
}

void front_free(struct front *front)
{
	if (!front)
		return;
	if (front->epoll_fd >= 0)
		close(front->epoll_fd);
	if (front->wake_fd >= 0)
		close(front->wake_fd);
	front_settle(front);
	if (front->block_memory)
		munmap(front->block_memory, front->config.block_bytes);
	arena_destroy(&front->blocks);
	tenants_destroy(&front->tenants);
	queue_free(&front->messages);
	free(front->held.items);
	free(front->outbox.items);
	free(front->pending);
	free(front->active.items);
	free(front->parked.items);
	free(front->parked.lookouts);
	free(front->unwoken.items);
	free(front->doomed.items);
	free(front);
}

/* ---- messages of the control thread ---- */

static void attach(struct front *front, struct channel *channel)
{
	/* The client may have submitted already: the channel starts active, so that the next poll sees it. */
	store_relaxed_u32(&channel->header->daemon_sleep, front->sleeper.value);
	store_relaxed_u64(&channel->header->heartbeat_ns, front_now(front));
	channel->active = channel->served = true;
	channels_add(&front->active, channel);
	count(&front->counts.channels_opened, 1);
	count(&front->counts.channels, 1);
	if (sockets_watch(front, channel) < 0)
		channel_doom(front, channel, WIRE_REASON_NO_MEMORY);
	else if (front->draining)
		channel_doom(front, channel, drain_reason(front));
}

static void take_end(struct front *front, struct channel *channel, uint32_t reason)
{
	if (load_relaxed_u32(&channel->ended_reason) == 0)
		channel_doom(front, channel, reason);
	bury_doomed(front);
	/* Release: pairs with the control thread's acquire, which may then free the channel. */
	store_release_u32(&channel->end_taken, 1);
	front->control_wanted = true;
}

static unsigned take_messages(struct front *front)
{
	struct front_message message;
	unsigned n = 0;

	for (; queue_pop(&front->messages, &message); n++) {
		if (message.kind == FRONT_ATTACH)
			attach(front, message.channel);
		else
			take_end(front, message.channel, message.reason);
		bury_doomed(front);
	}
	return n;
}

static int send_message(struct front *front, const struct front_message *message)
{
	if (!queue_push(&front->messages, message))
		return -EAGAIN;
	front_wake(front);
	return 0;
}

int front_attach(struct front *front, struct channel *channel)
{
	return send_message(front, &(struct front_message){.kind = FRONT_ATTACH, .channel = channel});
}

int front_end_channel(struct front *front, struct channel *channel, uint32_t reason)
{
	return send_message(front,
			    &(struct front_message){.kind = FRONT_END, .channel = channel, .reason = reason});
}

void front_set_control_fd(struct front *front, int eventfd)
{
	front->control_fd = eventfd;
}

/* ---- the turn ---- */

static void activate(struct front *front, struct channel *channel)
{
	channels_remove(&front->parked, channel);
	channel->active = true;
	channels_add(&front->active, channel);
}

/* Each channel in turn goes first, so that the turn's budget starves nobody. */
static unsigned poll_active(struct front *front)
{
	struct channel_list *active = &front->active;
	unsigned served = 0;

	if (active->next >= active->n)
		active->next = 0;
	for (uint32_t i = 0, at = active->next; i < active->n && front->slots_left; i++) {
		struct channel *channel = active->items[at];

		if (channel_has_work(channel))
			served += pickup_channel(front, channel);
		at = at + 1 < active->n ? at + 1 : 0;
	}
	active->next++;
	return served;
}

static unsigned poll_parked(struct front *front, uint32_t n)
{
	struct channel_list *parked = &front->parked;
	unsigned served = 0;

	n = n < parked->n ? n : parked->n;
	for (uint32_t i = 0; i < n && front->slots_left; i++) {
		struct channel *channel;

		if (parked->next >= parked->n)
			parked->next = 0;
		if (!lookout_ready(&parked->lookouts[parked->next])) {
			parked->next++;
			continue;
		}
		/* [D20] The last parked channel takes the place of this one. */
		channel = parked->items[parked->next];
		activate(front, channel);
		served += pickup_channel(front, channel);
	}
	return served;
}

static void park_idle(struct front *front)
{
	for (uint32_t i = front->active.n; i-- > 0;) {
		struct channel *channel = front->active.items[i];

		/* [D21] One whose ring is full must stay where front_idle sees that it waits. */
		if (!channel->served && !channel_has_work(channel)) {
			channels_remove(&front->active, channel);
			channel->active = false;
			channels_add(&front->parked, channel);
		}
		channel->served = false;
	}
}

static void beat(struct front *front, uint64_t now_ns)
{
	struct channel_list *lists[] = {&front->active, &front->parked};

	for (int list = 0; list < 2; list++)
		for (uint32_t i = 0; i < lists[list]->n; i++)
			store_relaxed_u64(&lists[list]->items[i]->header->heartbeat_ns, now_ns);
	front->next_beat_ns = now_ns + WIRE_HEARTBEAT_NS;
}

/* What the clock asks for; at least every TURNS_A_CLOCK turns. */
static unsigned periodic(struct front *front)
{
	uint64_t now_ns = front_now(front);
	unsigned did = 0;

	front->turns_to_clock = TURNS_A_CLOCK;
	if (now_ns >= front->next_scan_ns) {
		front->next_scan_ns = now_ns + SCAN_NS;
		did += poll_parked(front, front->parked.n); /* [D17] */
		if (front->held.n)
			did += pickup_held(front);
		if (front->ends_owed)
			request_end_owed(front);
		if (load_relaxed_u64(&front->drain_deadline_ns))
			drain_step(front);
	}
	if (now_ns >= front->next_sockets_ns) {
		front->next_sockets_ns = now_ns + SOCKETS_NS;
		park_idle(front);
		sockets_look(front);
	}
	if (now_ns >= front->next_beat_ns)
		beat(front, now_ns);
	return did;
}

static void wake_others(struct front *front)
{
	if (front->commands_pushed && front->config.engine_wake)
		front->config.engine_wake(front->config.engine);
	front->commands_pushed = false;
	if (front->control_wanted)
		control_notify(front);
}

/* Parked channels by rotation: the more was served, the longer the turn may take anyway. */
static unsigned poll_rings(struct front *front, bool is_rare)
{
	unsigned served = poll_active(front);

	if (front->parked.n)
		served += poll_parked(front, is_rare ? RARE_PARKED + front->parked.n / 2
						     : 2 + front->parked.n * served / 128);
	return served;
}

static unsigned turn(struct front *front, bool is_rare)
{
	unsigned did = 0;

	front->turn++;
	front->now_ns = 0;
	front->slots_left = TURN_SLOTS;
	front->block_bytes_left = TURN_BLOCK_BYTES;
	front->pickup_waits = false;
	if (!queue_empty(&front->messages))
		did += take_messages(front);
	did += poll_rings(front, is_rare);
	if (!queue_empty(&front->link->events))
		did += deliver_events(front);
	if (front->outbox.n)
		did += deliver_outbox(front);
	/* Before what takes system calls of its own. */
	if (front->unwoken.n)
		wake_clients(front, false); /* [D11] */
	if (--front->turns_to_clock == 0 || is_rare)
		did += periodic(front);
	if (front->doomed.n)
		bury_doomed(front);
	/* Off the busy path: a turn that did nothing pays the fence that the busy ones left out. */
	if ((did == 0 || is_rare) && front->unwoken.n) {
		fence_full(); /* [D10] pairs with the fence of the client's sleep_begin */
		wake_clients(front, true);
	}
	wake_others(front);
	/* Only now: a store to each channel's header takes longer than the answer that this thread was woken
	 * for. */
	if (sleeper_asleep(&front->sleeper))
		end_sleep(front);
	front->did_something |= did > 0;
	return did;
}

unsigned front_turn(struct front *front)
{
	return turn(front, false);
}

void front_poll(struct front *front)
{
	turn(front, true);
}

/* ---- what other threads ask ---- */

static uint32_t share_or(uint32_t asked, uint64_t otherwise)
{
	return asked ? asked : otherwise ? (uint32_t)otherwise : 1;
}

void front_reload(struct front *front, uint64_t spin_ns, uint64_t client_stall_ns,
		  const struct front_shares *shares)
{
	uint64_t requests = front->link->n_requests;

	store_relaxed_u32(&front->queue_per_uid, share_or(shares->queue_per_uid, requests * 3 / 4));
	store_relaxed_u32(&front->queue_per_tenant, share_or(shares->queue_per_tenant, requests / 4));
	store_relaxed_u64(&front->spin_ns, spin_ns);
	store_relaxed_u64(&front->client_stall_ns, client_stall_ns);
}

void front_drain(struct front *front, uint64_t deadline_ns)
{
	store_relaxed_u64(&front->drain_deadline_ns, deadline_ns ? deadline_ns : 1);
	front_wake(front);
}

bool front_drained(const struct front *front)
{
	/* Acquire: pairs with the release in drain_step. */
	return load_acquire_u32(&front->drained);
}

const struct front_counts *front_counts(const struct front *front)
{
	return &front->counts;
}
