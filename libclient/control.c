/* Calls over the control socket: a request in parts, a reply in parts, in between anything else. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "libclient/client.h"

enum { PART_BYTES_MAX = WIRE_CONTROL_BYTES_MAX - sizeof(struct wire_control) };

/* Where a reply goes: as much as fits, and how much there was. */
struct sink {
	unsigned char *to;
	size_t capacity, bytes;
};

struct piece {
	const void *from;
	size_t bytes;
};

/* Copies `bytes` at `offset` of the two pieces' concatenation. */
static void gather(unsigned char *to, const struct piece pieces[2], size_t offset, size_t bytes)
{
	size_t head = offset < pieces[0].bytes ? pieces[0].bytes - offset : 0;

	if (head > bytes)
		head = bytes;
	if (head)
		memcpy(to, (const unsigned char *)pieces[0].from + offset, head);
	if (bytes > head)
		memcpy(to + head, (const unsigned char *)pieces[1].from + (offset + head - pieces[0].bytes),
		       bytes - head);
}

static int send_part(struct tr_client *client, const struct message *part, uint64_t deadline_ns)
{
	size_t bytes = sizeof part->head + part->head.bytes;

	while (send(client->socket, part, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		int ready;

		if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
			return client_hung_up(client);
		ready = socket_wait(client->socket, POLLOUT, deadline_ns);
		if (ready == 0)
			return -ETIMEDOUT;
	}
	return 0;
}

static int send_request(struct tr_client *client, uint16_t type, const struct piece pieces[2],
			uint64_t deadline_ns)
{
	size_t total = pieces[0].bytes + pieces[1].bytes, offset = 0;
	struct message part;

	do {
		size_t bytes = total - offset < PART_BYTES_MAX ? total - offset : PART_BYTES_MAX;
		int error;

		part.head = (struct wire_control){
		    .type = type,
		    .flags = offset + bytes < total ? WIRE_CONTROL_MORE : 0,
		    .serial = client->serial,
		    .bytes = (uint32_t)bytes,
		};
		gather(part.payload, pieces, offset, bytes);
		error = send_part(client, &part, deadline_ns);
		if (error < 0)
			return error;
		offset += bytes;
	} while (offset < total);
	return 0;
}

static void pour(struct sink *sink, const struct message *part)
{
	size_t room = sink->capacity > sink->bytes ? sink->capacity - sink->bytes : 0;
	size_t bytes = part->head.bytes < room ? part->head.bytes : room;

	if (bytes)
		memcpy(sink->to + sink->bytes, part->payload, bytes);
	sink->bytes += part->head.bytes;
}

/* Waits for more on the socket, looking at the heartbeat in between. */
static int wait_for_reply(struct tr_client *client, uint64_t deadline_ns)
{
	uint64_t now_ns = clock_now_ns(), slice_ns = now_ns + SLEEP_SLICE_NS;
	int error = client_heartbeat(client, now_ns);

	if (error < 0)
		return error;
	if (now_ns >= deadline_ns)
		return -ETIMEDOUT;
	error = socket_wait(client->socket, POLLIN, slice_ns < deadline_ns ? slice_ns : deadline_ns);
	return error < 0 && error != -EINTR ? error : 0;
}

/* Whether a message belongs to the reply awaited; one to an earlier call, which timed out, does not. */
static bool is_reply(const struct tr_client *client, const struct message *part, uint16_t type)
{
	return part->head.serial == client->serial && part->head.type == type &&
	       (part->head.flags & WIRE_CONTROL_REPLY);
}

static int receive_reply(struct tr_client *client, uint16_t type, struct sink *sink, uint64_t deadline_ns)
{
	struct message part;

	for (;;) {
		int kind = client_receive(client, &part);

		if (kind < 0)
			return kind;
		if (kind == RECEIVED_NOTHING) {
			int error = wait_for_reply(client, deadline_ns);

			if (error < 0)
				return error;
			continue;
		}
		if (kind != RECEIVED_CONTROL || !is_reply(client, &part, type))
			continue;
		if (part.head.status)
			return part.head.status < 0 && part.head.status > -4096 ? part.head.status : -EPROTO;
		pour(sink, &part);
		if (!(part.head.flags & WIRE_CONTROL_MORE))
			return 0;
	}
}

static int call(struct tr_client *client, uint16_t type, const struct piece pieces[2], struct sink *sink)
{
	uint64_t deadline_ns = clock_now_ns() + (uint64_t)client->timeout_ms * 1000000;
	int error;

	if (!client_open(client))
		return client_closed(client);
	client->serial++;
	error = send_request(client, type, pieces, deadline_ns);
	return error < 0 ? error : receive_reply(client, type, sink, deadline_ns);
}

static int check_profile(const struct tr_profile *profile, struct profile *ret)
{
	static const struct tr_sampling greedy = {.top_p = 1, .penalty = 1};
	struct tr_profile known;

	if (copy_versioned(&known, sizeof known, profile, sizeof known) < 0)
		return -EINVAL;
	ret->sampling = greedy;
	if (known.sampling && copy_versioned(&ret->sampling, sizeof ret->sampling, known.sampling,
					     offsetof(struct tr_sampling, ignore_eos)) < 0)
		return -EINVAL;
	if (known.reserved || ret->sampling.reserved || ret->sampling.ignore_eos > 1 || known.max_new == 0 ||
	    known.max_new > UINT16_MAX || known.n_stop_ids > PROFILE_STOP_IDS_MAX ||
	    (known.n_stop_ids && !known.stop_ids))
		return -EINVAL;
	ret->max_new = known.max_new;
	ret->n_stop_ids = known.n_stop_ids;
	if (known.n_stop_ids)
		memcpy(ret->stop_ids, known.stop_ids, known.n_stop_ids * sizeof *known.stop_ids);
	return 0;
}

static int register_profile(struct tr_client *client, const struct profile *profile, uint32_t *ret_number)
{
	const struct tr_sampling *sampling = &profile->sampling;
	struct wire_profile wire = {
	    .seed = sampling->seed,
	    .temperature = sampling->temperature,
	    .top_p = sampling->top_p,
	    .min_p = sampling->min_p,
	    .penalty = sampling->penalty,
	    .top_k = sampling->top_k,
	    .max_new = profile->max_new,
	    .flags = sampling->ignore_eos ? WIRE_BLOCK_IGNORE_EOS : 0,
	    .n_stop = profile->n_stop_ids,
	};
	struct piece pieces[2] = {{&wire, sizeof wire},
				  {profile->stop_ids, profile->n_stop_ids * sizeof profile->stop_ids[0]}};
	uint32_t number = 0;
	struct sink sink = {(unsigned char *)&number, sizeof number, 0};
	int error = call(client, WIRE_CONTROL_PROFILE, pieces, &sink);

	if (error < 0)
		return error;
	if (sink.bytes != sizeof number || number == 0 || number >= PROFILES)
		return -EPROTO;
	*ret_number = number;
	return 0;
}

int tr_profile(struct tr_client *client, const struct tr_profile *profile, uint8_t *ret_profile)
{
	struct profile *known;
	uint32_t number;
	int error;

	if (!client_open(client))
		return client_closed(client);
	known = calloc(1, sizeof *known);
	if (!known)
		return -ENOMEM;
	error = check_profile(profile, known);
	if (error == 0)
		error = register_profile(client, known, &number);
	if (error < 0) {
		free(known);
		return error;
	}
	free(client->profiles[number]);
	client->profiles[number] = known;
	*ret_profile = (uint8_t)number;
	return 0;
}

static void fill_info(struct tr_model_info *info, const struct wire_model *model)
{
	*info = (struct tr_model_info){
	    .size = sizeof *info,
	    .state = model->state,
	    .vocab = model->vocab,
	    .context = model->context,
	    .bos = model->bos,
	    .eos = model->eos,
	    .bytes = model->bytes,
	    .parameters = model->parameters,
	    .width = model->width,
	};
	memcpy(info->name, model->name, sizeof info->name - 1);
	memcpy(info->architecture, model->architecture, sizeof info->architecture - 1);
	memcpy(info->numerics, model->numerics, sizeof info->numerics - 1);
	memcpy(info->isa, model->isa, sizeof info->isa - 1);
}

int tr_model_info(struct tr_client *client, uint16_t model, struct tr_model_info *ret_info)
{
	uint32_t number = model, size = ret_info->size;
	struct {
		struct wire_model model;
		uint32_t stop_ids[32];
	} reply = {0};
	struct piece pieces[2] = {{&number, sizeof number}, {NULL, 0}};
	struct sink sink = {(unsigned char *)&reply, sizeof reply, 0};
	struct tr_model_info info;
	size_t n_stop_ids;
	int error;

	if (size < offsetof(struct tr_model_info, n_stop_ids) || size > 1 << 16)
		return -EINVAL;
	error = call(client, WIRE_CONTROL_MODEL, pieces, &sink);
	if (error < 0)
		return error;
	if (sink.bytes < sizeof reply.model)
		return -EPROTO;
	n_stop_ids = (sink.bytes - sizeof reply.model) / sizeof reply.stop_ids[0];
	fill_info(&info, &reply.model);
	info.size = size;
	info.n_stop_ids = (uint32_t)(n_stop_ids < 32 ? n_stop_ids : 32);
	memcpy(info.stop_ids, reply.stop_ids, info.n_stop_ids * sizeof info.stop_ids[0]);
	memset(ret_info, 0, size);
	memcpy(ret_info, &info, size < sizeof info ? size : sizeof info);
	return 0;
}

int tr_tokenize(struct tr_client *client, uint16_t model, const char *text, size_t bytes, uint32_t flags,
		uint32_t *tokens, size_t capacity, size_t *ret_n)
{
	struct wire_text head = {.model = model, .flags = flags};
	struct piece pieces[2] = {{&head, sizeof head}, {text, bytes}};
	struct sink sink = {(unsigned char *)tokens, 0, 0};
	int error;

	if (flags & ~(uint32_t)(TR_TEXT_BOS | TR_TEXT_SPECIAL))
		return -EINVAL;
	if (bytes > WIRE_TEXT_BYTES_MAX)
		return -EMSGSIZE;
	sink.capacity = capacity < SIZE_MAX / sizeof *tokens ? capacity * sizeof *tokens : SIZE_MAX;
	error = call(client, WIRE_CONTROL_TOKENIZE, pieces, &sink);
	if (error < 0)
		return error;
	if (sink.bytes % sizeof *tokens)
		return -EPROTO;
	*ret_n = sink.bytes / sizeof *tokens;
	return *ret_n > capacity ? -ENOSPC : 0;
}

int tr_detokenize(struct tr_client *client, uint16_t model, const uint32_t *tokens, size_t n, uint32_t flags,
		  char *text, size_t capacity, size_t *ret_bytes)
{
	struct wire_text head = {.model = model, .flags = flags};
	struct piece pieces[2] = {{&head, sizeof head}, {tokens, n * sizeof *tokens}};
	struct sink sink = {(unsigned char *)text, capacity, 0};
	int error;

	if (flags & ~(uint32_t)TR_TEXT_SPECIAL)
		return -EINVAL;
	if (n > WIRE_TEXT_BYTES_MAX / sizeof *tokens)
		return -EMSGSIZE;
	error = call(client, WIRE_CONTROL_DETOKENIZE, pieces, &sink);
	if (error < 0)
		return error;
	*ret_bytes = sink.bytes;
	return sink.bytes > capacity ? -ENOSPC : 0;
}

static int ask_json(struct tr_client *client, uint16_t type, char *json, size_t capacity, size_t *ret_bytes)
{
	struct piece pieces[2] = {{NULL, 0}, {NULL, 0}};
	struct sink sink = {(unsigned char *)json, capacity ? capacity - 1 : 0, 0};
	int error = call(client, type, pieces, &sink);

	if (error < 0)
		return error;
	*ret_bytes = sink.bytes;
	if (sink.bytes >= capacity)
		return -ENOSPC;
	json[sink.bytes] = '\0';
	return 0;
}

int tr_status(struct tr_client *client, char *json, size_t capacity, size_t *ret_bytes)
{
	return ask_json(client, WIRE_CONTROL_STATUS, json, capacity, ret_bytes);
}

int tr_topology(struct tr_client *client, char *json, size_t capacity, size_t *ret_bytes)
{
	return ask_json(client, WIRE_CONTROL_TOPOLOGY, json, capacity, ret_bytes);
}

int tr_session_open(struct tr_client *client, uint16_t model, uint32_t *ret_session)
{
	return client_open(client) ? -EOPNOTSUPP : client_closed(client);
}

int tr_session_close(struct tr_client *client, uint32_t session)
{
	return client_open(client) ? -EOPNOTSUPP : client_closed(client);
}
