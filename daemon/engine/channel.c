#include "daemon/engine/channel.h"

#include <stdlib.h>

static const int16_t reason_errors[] = {
#define X(number, name, error, sentence) [number] = error,
    WIRE_REASONS(X)
#undef X
};

int32_t channel_status(uint32_t reason)
{
	return reason < sizeof reason_errors / sizeof reason_errors[0] ? -reason_errors[reason] : -EPROTO;
}

int channel_create(struct channel **ret, struct segment_layout *layout, enum segment_pages pages, char *why,
		   size_t why_bytes)
{
	struct channel *channel = aligned_alloc(64, (sizeof *channel + 63) & ~(size_t)63);
	int error = -ENOMEM;

	if (!channel)
		return -ENOMEM;
	memset(channel, 0, sizeof *channel);
	channel->fd = channel->segment.fd = -1;
	channel->table = malloc(layout->max_inflight * sizeof *channel->table);
	if (channel->table)
		error = queue_init(&channel->mailbox, CHANNEL_MAILBOX_SLOTS, sizeof(struct control_envelope));
	if (error == 0)
		error = segment_create(&channel->segment, layout, pages, why, why_bytes);
	if (error < 0) {
		channel_free(channel);
		return error;
	}
	channel->layout = *layout;
	channel->max_in_flight = layout->max_inflight;
	channel->first_request = channel->copy.request = CHANNEL_NO_REQUEST;
	for (uint32_t i = 0; i < layout->max_inflight; i++)
		channel->table[i] = CHANNEL_NO_REQUEST;
	*ret = channel;
	return 0;
}

void channel_free(struct channel *channel)
{
	if (!channel)
		return;
	segment_destroy(&channel->segment);
	queue_free(&channel->mailbox);
	for (int i = 0; i < PROFILE_COUNT; i++)
		free(channel->profiles[i]);
	free(channel->table);
	free(channel);
}

void channel_open(struct channel *channel)
{
	channel->header = segment_header(&channel->segment);
	segment_publish(&channel->segment, &channel->layout);
	segment_daemon_rings(&channel->segment, &channel->layout, &channel->submissions,
			     &channel->completions);
	channel->waker = (struct waker){.word = &channel->header->client_sleep, .fd = channel->fd};
}
