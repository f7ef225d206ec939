/* Control messages: envelope checks, and requests that arrive in parts. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/control/server_internal.h"

/* False: the message is malformed. */
static bool check_envelope(const struct control_envelope *envelope, struct wire_control *ret_head)
{
	uint32_t most;

	if (envelope->bytes < sizeof *ret_head)
		return false;
	memcpy(ret_head, envelope->data, sizeof *ret_head);
	return ret_head->bytes == envelope->bytes - sizeof *ret_head && ret_head->status == 0 &&
	       (ret_head->flags & ~WIRE_CONTROL_MORE) == 0 && answer_known(ret_head->type, &most);
}

static bool grow(struct incoming *incoming, uint32_t bytes)
{
	uint32_t capacity = incoming->capacity ? incoming->capacity : WIRE_CONTROL_BYTES_MAX;
	unsigned char *data;

	while (capacity < bytes)
		capacity *= 2;
	if (capacity == incoming->capacity)
		return true;
	data = realloc(incoming->data, capacity);
	if (!data)
		return false;
	incoming->data = data;
	incoming->capacity = capacity;
	return true;
}

/* Adds a part. 0; -EBADMSG: it does not continue what was begun, or is too long; -ENOMEM. */
static int add_part(struct incoming *incoming, const struct wire_control *head, const unsigned char *payload)
{
	uint32_t most;

	if (!answer_known(head->type, &most))
		return -EBADMSG;
	if (incoming->data && (incoming->type != head->type || incoming->serial != head->serial))
		return -EBADMSG;
	if (head->bytes > most || incoming->bytes > most - head->bytes)
		return -EBADMSG;
	/* A part without a byte could be repeated for ever. */
	if (head->bytes == 0 && head->flags & WIRE_CONTROL_MORE)
		return -EBADMSG;
	if (!grow(incoming, incoming->bytes + head->bytes))
		return -ENOMEM;
	incoming->type = head->type;
	incoming->serial = head->serial;
	memcpy(incoming->data + incoming->bytes, payload, head->bytes);
	incoming->bytes += head->bytes;
	return 0;
}

static void forget(struct incoming *incoming)
{
	free(incoming->data);
	*incoming = (struct incoming){0};
}

static void take(struct connection *connection, const struct control_envelope *envelope)
{
	struct incoming *incoming = &connection->incoming;
	struct wire_control head;
	int error = -EBADMSG;

	if (check_envelope(envelope, &head))
		error = add_part(incoming, &head, envelope->data + sizeof head);
	if (error == 0 && head.flags & WIRE_CONTROL_MORE)
		return;
	if (error == 0 && !answer(connection, incoming))
		error = -EBADMSG;
	if (error < 0)
		connection_end(connection,
			       error == -ENOMEM ? WIRE_REASON_NO_MEMORY : WIRE_REASON_BAD_CONTROL);
	forget(incoming);
}

void messages_take(struct connection *connection)
{
	struct queue *mailbox = &connection->channel->mailbox;
	struct control_envelope envelope;

	while (connection->state == CONNECTION_LIVE && !connection->end_sent &&
	       !connection->outgoing.active) {
		if (!queue_pop(mailbox, &envelope))
			return;
		/* The front reads the socket of a full mailbox no more, and may sleep. Whether it was full
		 * cannot be asked before: it may fill up in between. */
		front_wake(connection->server->front);
		take(connection, &envelope);
	}
}
