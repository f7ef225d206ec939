/* The life of a client: open, reconnect, close. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/client.h"

int copy_versioned(void *to, size_t to_bytes, const void *from, size_t least_bytes)
{
	const unsigned char *bytes = from;
	uint32_t size;

	memcpy(&size, from, sizeof size);
	if (size < least_bytes || size > 1 << 16)
		return -EINVAL;
	for (size_t i = to_bytes; i < size; i++)
		if (bytes[i])
			return -EINVAL;
	memset(to, 0, to_bytes);
	memcpy(to, from, size < to_bytes ? size : to_bytes);
	return 0;
}

int client_closed(const struct tr_client *client)
{
	return client_forked(client) ? -ESTALE : client->error;
}

void client_shut(struct tr_client *client)
{
	client->gate.open = 0;
	client->gate.n_free = 0;
}

int client_die(struct tr_client *client, int error, uint32_t reason, bool drain)
{
	client_shut(client);
	client->error = error;
	client->end_reason = reason;
	client->drain = drain;
	return error;
}

/* Ones, then zeros: where a mask begins tells how many tokens it keeps. */
static const uint32_t tokens_kept[2 * TR_INLINE_TOKENS] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
							   UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};

int client_create(struct tr_client **ret, const struct tr_open_options *options)
{
	struct tr_open_options known = {0};
	struct tr_client *client;

	if (options && copy_versioned(&known, sizeof known, options, sizeof known.size) < 0)
		return -EINVAL;
	if (known.flags || (known.why_bytes && !known.why))
		return -EINVAL;
	client = client_allocate();
	if (!client)
		return -ENOMEM;
	client->socket = -1;
	client->segment.fd = -1;
	client->error = -ECONNRESET;
	for (int n = 0; n <= TR_INLINE_TOKENS; n++)
		client->token_masks[n] = &tokens_kept[TR_INLINE_TOKENS - n];
	client->why = (struct why){known.why_bytes ? known.why : NULL, known.why_bytes};
	client->spin_ns = known.spin_ns ? known.spin_ns : DEFAULT_SPIN_NS;
	client->spin_now_ns = client->spin_ns;
	client->timeout_ms = known.timeout_ms ? known.timeout_ms : DEFAULT_TIMEOUT_MS;
	*ret = client;
	return 0;
}

static int tables_create(struct tr_client *client, uint32_t n)
{
	client->flights = calloc(n, sizeof *client->flights);
	client->table = calloc(2 * (size_t)n, sizeof *client->table);
	client->ended = calloc(n, sizeof *client->ended);
	client->cancels = calloc(client->layout.sq_slots - n, sizeof *client->cancels);
	if (!client->flights || !client->table || !client->ended || !client->cancels)
		return -ENOMEM;
	/* The lowest index comes first, so that a client with few requests touches few lines. */
	for (uint32_t i = 0; i < n; i++) {
		client->table[i] = 2 * (uint64_t)n - 1 - i;
		client->table[n + i] = NO_ID;
	}
	client->ids = client->table + n;
	client->id_base = (client->id_base | ID_INDEX) + 1 - n;
	client->n_ended = 0;
	client->first_cancel = client->n_cancels = 0;
	return arena_init(&client->arena, client->layout.arena_bytes / ARENA_UNIT_BYTES);
}

static void tables_destroy(struct tr_client *client)
{
	free(client->flights);
	free(client->table);
	free(client->ended);
	free(client->cancels);
	client->flights = NULL;
	client->table = client->ids = NULL;
	client->ended = NULL;
	client->cancels = NULL;
	arena_destroy(&client->arena);
	for (int i = 0; i < PROFILES; i++) {
		free(client->profiles[i]);
		client->profiles[i] = NULL;
	}
}

/* Everything of the channel except the object, which tr_reconnect fills again. */
static void channel_leave(struct tr_client *client)
{
	client_shut(client);
	client->drain = false;
	segment_destroy(&client->segment);
	if (client->socket >= 0)
		close(client->socket);
	client->socket = -1;
	tables_destroy(client);
}

int client_adopt(struct tr_client *client, struct channel *channel)
{
	struct wire_header *header = segment_header(&channel->segment);
	int error;

	client->socket = channel->socket;
	client->segment = channel->segment;
	client->layout = channel->layout;
	/* Each table entry has a slot of its own, and one at least is left for a cancel. */
	if (client->layout.max_inflight >= client->layout.sq_slots)
		client->layout.max_inflight = client->layout.sq_slots - 1;
	*channel = (struct channel){.socket = -1, .segment.fd = -1};
	error = tables_create(client, client->layout.max_inflight);
	if (error < 0) {
		channel_leave(client);
		return error;
	}
	segment_client_rings(&client->segment, &client->layout, &client->submissions, &client->completions);
	client->waker = (struct waker){.word = &header->daemon_sleep, .fd = client->socket};
	client->sleeper = (struct sleeper){0};
	client_fences(client);
	client->judged = client->completions.index;
	client->drain = false;
	client->polls_left = client->polls_a_clock = 1;
	client->clock_ns = client->quiet_since_ns = client->looked_ns = clock_now_ns();
	client->end_reason = WIRE_REASON_NONE;
	client->gate.n_free = client->layout.max_inflight;
	client->gate.open = 1;
	return 0;
}

static int connect_client(struct tr_client *client)
{
	struct channel channel;
	int error = channel_connect(&channel, client->address, client->timeout_ms, client->why);

	return error < 0 ? error : client_adopt(client, &channel);
}

int tr_open(struct tr_client **ret, const char *address, const struct tr_open_options *options)
{
	struct tr_client *client;
	int error;

	if (!ret)
		return -EINVAL;
	error = client_create(&client, options);
	if (error < 0)
		return error;
	if (address && !(client->address = strdup(address)))
		error = -ENOMEM;
	if (error == 0)
		error = connect_client(client);
	if (error < 0) {
		tr_close(client);
		return error;
	}
	client->why = (struct why){NULL, 0};
	*ret = client;
	return 0;
}

int tr_reconnect(struct tr_client *client)
{
	if (client_forked(client))
		return -ESTALE;
	channel_leave(client);
	client->error = -ECONNRESET;
	return connect_client(client);
}

void tr_close(struct tr_client *client)
{
	if (!client)
		return;
	/* In a forked child the mapping does not exist, and something else may lie at its address. */
	if (client_forked(client))
		client->segment.base = NULL;
	channel_leave(client);
	free(client->address);
	client_free(client);
}

int tr_fd(const struct tr_client *client)
{
	if (client_forked(client))
		return -ESTALE;
	return client->socket >= 0 ? client->socket : client->error;
}

uint32_t tr_max_inflight(const struct tr_client *client)
{
	return client->layout.max_inflight;
}

uint32_t tr_end_reason(const struct tr_client *client)
{
	return client->end_reason;
}
