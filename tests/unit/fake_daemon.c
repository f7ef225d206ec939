#include "tests/unit/fake_daemon.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { IDLE_TURNS_BEFORE_SLEEP = 2000, TURN_SLOTS = 64 };

#define must(condition)                                                                                      \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno)); \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

static bool has_flag(struct fake_daemon *fake, uint32_t flag)
{
	return load_acquire_u32(&fake->flags) & flag;
}

/* Both threads change flags. */
static void change_flags(struct fake_daemon *fake, uint32_t clear, uint32_t set)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&lock);
	store_release_u32(&fake->flags, (load_acquire_u32(&fake->flags) & ~clear) | set);
	pthread_mutex_unlock(&lock);
}

void fake_set(struct fake_daemon *fake, uint32_t flags)
{
	change_flags(fake, 0, flags);
}

void fake_clear(struct fake_daemon *fake, uint32_t flags)
{
	change_flags(fake, flags, 0);
}

void fake_hang(struct fake_daemon *fake)
{
	fake_set(fake, FAKE_HANG);
	while (!has_flag(fake, FAKE_HANGS))
		usleep(100);
}

static void beat(struct fake_daemon *fake)
{
	store_relaxed_u64(&segment_header(&fake->segment)->heartbeat_ns, clock_now_ns());
}

void fake_publish(struct fake_daemon *fake, const struct wire_completion *completion)
{
	while (ring_room(&fake->completions) == 0 && !has_flag(fake, FAKE_STOP)) {
		must(ring_writer_refresh(&fake->completions));
		wake_fence(&fake->waker); /* nobody makes room who is asleep */
		beat(fake);
	}
	if (ring_room(&fake->completions))
		ring_publish(&fake->completions, completion);
}

static void refuse(struct fake_daemon *fake, const struct wire_submission *submission)
{
	struct wire_completion answer = {.kind = WIRE_KIND_REFUSED,
					 .id = submission->id,
					 .status = -EMSGSIZE,
					 .aux = WIRE_REASON_PROMPT_TOO_LONG};
	uint64_t predicted_ns = 5000000000, retry_ns = 77;

	memcpy(&answer.tok[0], &predicted_ns, 8);
	memcpy(&answer.tok[2], &retry_ns, 8);
	answer.tok[4] = 666;
	answer.tok[5] = 100;
	fake_publish(fake, &answer);
}

static const struct wire_block *block_of(struct fake_daemon *fake, const struct wire_submission *submission)
{
	const struct wire_block *block;

	if (submission->block == 0)
		return NULL;
	must((uint64_t)submission->block * 64 >= fake->layout.arena_off);
	block = (const void *)(fake->segment.base + (uint64_t)submission->block * 64);
	must((uint64_t)submission->block * 64 + block->bytes <= fake->layout.bytes);
	must(block->version == WIRE_BLOCK_VERSION && block->tokens_off % 4 == 0 && block->max_new);
	must(block->bytes == block->tokens_off + 4 * block->n_tokens);
	must(submission->n_tok == 0 && submission->profile == 0 && submission->max_new == 0);
	return block;
}

static const struct wire_tlv *option_of(const struct wire_block *block, uint16_t type)
{
	const unsigned char *at = (const unsigned char *)(block + 1);
	const unsigned char *end = (const unsigned char *)block + block->tokens_off;

	while (at < end) {
		const struct wire_tlv *option = (const void *)at;

		if (option->type == type)
			return option;
		at += sizeof *option + ((option->bytes + 7) & ~7u);
	}
	must(at == end);
	return NULL;
}

static uint32_t write_records(struct fake_daemon *fake, const struct wire_block *block, uint32_t kind,
			      const struct wire_scored *records, uint32_t count)
{
	struct wire_reply reply = {kind, count, sizeof *records, count * (uint32_t)sizeof *records};
	unsigned char *at = fake->segment.base + (uint64_t)block->reply_off * 64;

	must(sizeof reply + reply.bytes <= block->reply_cap);
	memcpy(at, &reply, sizeof reply);
	memcpy(at + sizeof reply, records, reply.bytes);
	return (uint32_t)sizeof reply + reply.bytes;
}

static void score(struct fake_daemon *fake, const struct wire_submission *submission)
{
	const struct wire_block *block = block_of(fake, submission);
	const struct wire_tlv *option = block ? option_of(block, WIRE_TLV_CANDIDATES) : NULL;
	struct wire_completion answer = {
	    .kind = WIRE_KIND_FINAL, .id = submission->id, .finish = WIRE_FINISH_DONE};
	struct wire_scored records[64];
	const uint32_t *ids;

	must(option && option->bytes / 4 <= 64);
	ids = (const void *)(option + 1);
	for (uint32_t i = 0; i < option->bytes / 4; i++)
		records[i] = (struct wire_scored){ids[i], (float)ids[i] / 2};
	answer.aux = write_records(fake, block, WIRE_REPLY_LOGITS, records, option->bytes / 4);
	fake_publish(fake, &answer);
}

/* Floats that are halves of the place, and a quarter more for the mean. */
static void embed(struct fake_daemon *fake, const struct wire_submission *submission)
{
	const struct wire_block *block = block_of(fake, submission);
	const struct wire_tlv *option = block ? option_of(block, WIRE_TLV_FLAGS) : NULL;
	struct wire_completion answer = {
	    .kind = WIRE_KIND_FINAL, .id = submission->id, .finish = WIRE_FINISH_DONE};
	struct wire_reply reply = {WIRE_REPLY_EMBEDDING, 0, sizeof(float), 0};
	float *to;

	must(block && block->reply_off && block->reply_cap > sizeof reply);
	to = (float *)(fake->segment.base + (uint64_t)block->reply_off * 64 + sizeof reply);
	reply.count = (block->reply_cap - (uint32_t)sizeof reply) / 4;
	for (uint32_t i = 0; i < reply.count; i++)
		to[i] = (float)i / 2 + (option ? 0.25f : 0);
	answer.aux = reply.bytes = (uint32_t)sizeof reply + 4 * reply.count;
	memcpy(to - 4, &reply, sizeof reply);
	fake_publish(fake, &answer);
}

/* All records of a stream at once, before its first token: a client that reads ahead of `aux` is found out.
 */
static uint32_t write_logprobs(struct fake_daemon *fake, const struct wire_block *block, uint32_t first,
			       uint32_t n)
{
	static struct wire_scored records[4096];
	uint32_t stride = 1 + block->n_logprobs;

	must(n * stride <= 4096);
	for (uint32_t i = 0; i < n * stride; i++)
		records[i] = (struct wire_scored){first + i / stride + 1000 * (i % stride), -(float)i};
	write_records(fake, block, WIRE_REPLY_LOGPROBS, records, n * stride);
	return stride;
}

static void generate(struct fake_daemon *fake, const struct wire_submission *submission)
{
	const struct wire_block *block = block_of(fake, submission);
	uint32_t n = block ? block->max_new : submission->max_new, at = 0, stride = 0;
	uint32_t last = block ? *(const uint32_t *)((const char *)block + block->bytes - 4)
			      : submission->tok[submission->n_tok - 1];
	struct wire_completion answer = {.kind = WIRE_KIND_TOKENS, .id = submission->id};

	if (last == 666) {
		refuse(fake, submission);
		return;
	}
	if (block && block->reply_off)
		stride = write_logprobs(fake, block, last + 1, n);
	for (at = 0; at < n; at += answer.n_tok) {
		answer.first = at;
		answer.n_tok = n - at < 3 ? (uint8_t)(n - at) : 3;
		for (uint32_t i = 0; i < answer.n_tok; i++)
			answer.tok[i] = last + 1 + at + i;
		if (stride)
			answer.aux = (uint32_t)sizeof(struct wire_reply) + 8 * stride * (at + answer.n_tok);
		if (at + answer.n_tok == n) {
			answer.kind = WIRE_KIND_FINAL;
			answer.finish = WIRE_FINISH_LENGTH;
		}
		fake_publish(fake, &answer);
	}
}

void fake_answer(struct fake_daemon *fake, const struct wire_submission *submission)
{
	struct wire_completion answer = {
	    .kind = WIRE_KIND_ECHO, .id = submission->id, .n_tok = submission->n_tok};

	if (submission->op == WIRE_OP_GENERATE)
		generate(fake, submission);
	else if (submission->op == WIRE_OP_SCORE)
		score(fake, submission);
	else if (submission->op == WIRE_OP_EMBED)
		embed(fake, submission);
	if (submission->op != WIRE_OP_ECHO)
		return;
	memcpy(answer.tok, submission->tok, sizeof answer.tok);
	fake_publish(fake, &answer);
}

void fake_send(struct fake_daemon *fake, const struct message *message)
{
	send(fake->socket, message, sizeof message->head + message->head.bytes, MSG_NOSIGNAL);
}

void fake_reply(struct fake_daemon *fake, const struct message *to, const void *bytes, size_t n)
{
	struct message part;
	size_t offset = 0;

	do {
		size_t now = n - offset < sizeof part.payload ? n - offset : sizeof part.payload;

		part.head = (struct wire_control){.type = to->head.type,
						  .serial = to->head.serial,
						  .flags = WIRE_CONTROL_REPLY,
						  .bytes = (uint32_t)now};
		if (offset + now < n)
			part.head.flags |= WIRE_CONTROL_MORE;
		if (now)
			memcpy(part.payload, (const char *)bytes + offset, now);
		fake_send(fake, &part);
		send(fake->socket, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* a wake-up in between */
		offset += now;
	} while (offset < n);
}

static void end_channel(struct fake_daemon *fake)
{
	struct message end = {.head = {.type = WIRE_CONTROL_END, .bytes = sizeof(struct wire_end)}};
	struct wire_end payload = {.reason = fake->end_reason, .sentence = "for a test"};

	memcpy(end.payload, &payload, sizeof payload);
	fake_send(fake, &end);
}

static void read_socket(struct fake_daemon *fake)
{
	struct message message;
	int kind;

	while ((kind = socket_receive(fake->socket, &message, NULL)) > 0)
		if (kind == RECEIVED_CONTROL && fake->on_control)
			fake->on_control(fake, &message);
	if (kind < 0) {
		close(fake->socket);
		fake->socket = -1;
	}
}

/* One turn: whether anything was done. */
static bool turn(struct fake_daemon *fake)
{
	struct wire_submission submission;
	int n = 0;

	beat(fake);
	while (!has_flag(fake, FAKE_NO_CONSUME) && n < TURN_SLOTS &&
	       ring_read(&fake->submissions, &submission)) {
		n++;
		if (fake->on_submission)
			fake->on_submission(fake, &submission);
		else
			fake_answer(fake, &submission);
	}
	ring_reader_publish(&fake->submissions);
	if (n)
		wake_fence(&fake->waker);
	return n;
}

static void sleep_briefly(struct fake_daemon *fake)
{
	shared_u32 *word = &segment_header(&fake->segment)->daemon_sleep;
	struct pollfd socket = {.fd = fake->socket, .events = POLLIN};

	sleep_begin(&fake->sleeper, word);
	if (!ring_ready(&fake->submissions) || has_flag(fake, FAKE_NO_CONSUME)) {
		add_relaxed_u64(&fake->sleeps, 1);
		poll(&socket, 1, 20);
	}
	sleep_end(&fake->sleeper, word);
	read_socket(fake);
}

static void serve(struct fake_daemon *fake)
{
	int idle = 0;

	while (fake->socket >= 0 && !has_flag(fake, FAKE_STOP)) {
		if (has_flag(fake, FAKE_HANG)) {
			fake_set(fake, FAKE_HANGS);
			usleep(1000);
			continue;
		}
		if (has_flag(fake, FAKE_END)) {
			end_channel(fake);
			break;
		}
		idle = turn(fake) ? 0 : idle + 1;
		if (idle % 64 == 63)
			read_socket(fake);
		if (idle > IDLE_TURNS_BEFORE_SLEEP && fake->socket >= 0 && !has_flag(fake, FAKE_AWAKE)) {
			sleep_briefly(fake);
			idle = IDLE_TURNS_BEFORE_SLEEP - 32;
		}
	}
	if (fake->socket >= 0)
		close(fake->socket);
	fake->socket = -1;
}

static void make_segment(struct fake_daemon *fake)
{
	must(segment_layout(&fake->layout, fake->sq_slots, fake->cq_slots, fake->max_inflight,
			    fake->arena_bytes, 7) == 0);
	fake->layout.epoch = 1;
	fake->layout.first_index = fake->first_index;
	must(segment_create(&fake->segment, &fake->layout, SEGMENT_PAGES_NEVER, NULL, 0) == 0);
}

static void publish_segment(struct fake_daemon *fake)
{
	must(segment_seal(&fake->segment, NULL, 0) == 0);
	must(segment_populate(&fake->segment) == 0);
	beat(fake);
	segment_publish(&fake->segment, &fake->layout);
	store_release_u64(&segment_header(&fake->segment)->magic, WIRE_MAGIC +
								      ((uint64_t)fake->later_major << 32) +
								      ((uint64_t)fake->later_minor << 48));
	if (has_flag(fake, FAKE_BAD_HEADER))
		segment_header(&fake->segment)->cq_off = 1;
	segment_daemon_rings(&fake->segment, &fake->layout, &fake->submissions, &fake->completions);
	fake->waker =
	    (struct waker){.word = &segment_header(&fake->segment)->client_sleep, .fd = fake->socket};
	fake->sleeper = (struct sleeper){0};
}

static void send_offer(struct fake_daemon *fake)
{
	struct {
		struct wire_control head;
		struct wire_offer offer;
		uint64_t later[8];
	} message = {.head = {.type = WIRE_CONTROL_OFFER,
			      .bytes = (uint32_t)(sizeof message.offer + (size_t)fake->offer_bytes)},
		     .offer = {.bytes = fake->layout.bytes,
			       .major = WIRE_MAJOR + fake->later_major,
			       .minor = WIRE_MINOR + fake->later_minor},
		     .later = {~UINT64_C(0)}};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {&message, sizeof message.head + message.head.bytes};
	struct msghdr header = {
	    .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *rights = CMSG_FIRSTHDR(&header);

	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(rights), &fake->segment.fd, sizeof(int));
	must(sendmsg(fake->socket, &header, MSG_NOSIGNAL) > 0);
}

static bool offer(struct fake_daemon *fake)
{
	struct message message;

	if (has_flag(fake, FAKE_REFUSE)) {
		end_channel(fake);
		return false;
	}
	make_segment(fake);
	send_offer(fake);
	if (socket_wait(fake->socket, POLLIN, clock_now_ns() + 1000000000) != 1 ||
	    socket_receive(fake->socket, &message, NULL) != RECEIVED_CONTROL ||
	    message.head.type != WIRE_CONTROL_MAPPED)
		return false;
	publish_segment(fake);
	message.head = (struct wire_control){.type = WIRE_CONTROL_LIVE};
	fake_send(fake, &message);
	return true;
}

static void *listen_thread(void *argument)
{
	struct fake_daemon *fake = argument;

	while (!has_flag(fake, FAKE_STOP)) {
		if (socket_wait(fake->listener, POLLIN, clock_now_ns() + 5000000) != 1)
			continue;
		fake->socket = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
		must(fake->socket >= 0);
		if (offer(fake))
			serve(fake);
		else
			close(fake->socket);
		fake->socket = -1;
		segment_destroy(&fake->segment);
		fake_clear(fake, FAKE_END);
	}
	return NULL;
}

static void *serve_thread(void *argument)
{
	serve(argument);
	return NULL;
}

static void defaults(struct fake_daemon *fake)
{
	fake->listener = fake->socket = -1;
	fake->segment.fd = -1;
	fake->sq_slots = fake->sq_slots ? fake->sq_slots : 64;
	fake->cq_slots = fake->cq_slots ? fake->cq_slots : 64;
	fake->max_inflight = fake->max_inflight ? fake->max_inflight : 32;
	fake->arena_bytes = fake->arena_bytes ? fake->arena_bytes : 1 << 16;
}

void fake_start(struct fake_daemon *fake)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	static int serial;

	defaults(fake);
	snprintf(fake->path, sizeof fake->path, "%s/fake-%d-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
		 (int)getpid(), serial++);
	strcpy(address.sun_path, fake->path);
	fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	must(fake->listener >= 0);
	must(bind(fake->listener, (struct sockaddr *)&address, sizeof address) == 0);
	must(listen(fake->listener, 8) == 0);
	must(pthread_create(&fake->thread, NULL, listen_thread, fake) == 0);
}

struct tr_client *fake_start_shared(struct fake_daemon *fake, const struct tr_open_options *options)
{
	struct tr_client *client;
	struct channel channel;
	int sockets[2];

	defaults(fake);
	fake->is_shared = true;
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	fake->socket = sockets[0];
	make_segment(fake);
	publish_segment(fake);
	channel = (struct channel){.socket = sockets[1], .segment = fake->segment};
	must(segment_read(&channel.segment, &channel.layout, NULL, 0) == 0);
	must(client_create(&client, options) == 0 && client_adopt(client, &channel) == 0);
	must(pthread_create(&fake->thread, NULL, serve_thread, fake) == 0);
	return client;
}

void fake_stop(struct fake_daemon *fake)
{
	fake_set(fake, FAKE_STOP);
	pthread_join(fake->thread, NULL);
	if (fake->listener < 0)
		return;
	close(fake->listener);
	unlink(fake->path);
}
