/* The client library against daemons that die, hang, end the channel or lie, and in a forked child. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/client_fixture.h"

static const struct tr_request echo = {.size = sizeof echo, .op = TR_ECHO, .n_tokens = 1, .tokens = {1}};

static void expect_closed(struct tr_client *client, int error)
{
	struct tr_event event = {.size = sizeof event};
	uint32_t token;
	uint64_t id = 0;
	size_t n = 0;

	assert_int_equal(tr_submit(client, &echo, &id), error);
	assert_int_equal(tr_submit_many(client, &echo, 1, &id), error);
	assert_int_equal(tr_poll(client, &event, 1), error);
	assert_int_equal(tr_wait(client, &event, 1, -1), error);
	assert_int_equal(tr_arm(client), error);
	assert_int_equal(tr_flush(client), error);
	assert_int_equal(tr_cancel(client, 1 << 16), error);
	assert_int_equal(tr_tokenize(client, 0, "a", 1, 0, &token, 1, &n), error);
	assert_int_equal(tr_session_open(client, 0, &token), error);
	assert_int_equal(id, 0);
	assert_int_equal(n, 0);
}

static void *hang_up_later(void *argument)
{
	usleep(20000);
	fake_stop(argument);
	return NULL;
}

static void a_hang_up_ends_a_wait_at_once(void **state)
{
	const uint32_t spins_ns[] = {1, 50000, UINT32_MAX};

	for (int i = 0; i < 3; i++) {
		struct tr_open_options options = {.size = sizeof options, .spin_ns = spins_ns[i]};
		struct fake_daemon fake = {0};
		struct tr_event event = {.size = sizeof event};
		struct tr_client *client;
		uint64_t start_ns;
		pthread_t thread;

		fake_start(&fake);
		assert_int_equal(tr_open(&client, fake.path, &options), 0);
		fake_set(&fake, FAKE_NO_CONSUME);
		submit_ok(client, &echo);
		start_ns = clock_now_ns();
		pthread_create(&thread, NULL, hang_up_later, &fake);
		assert_int_equal(tr_wait(client, &event, 1, -1), -ECONNRESET);
		/* The daemon's thread may take its 20 ms nap first; a sleeper that nobody woke would take
		 * 250. */
		assert_true(clock_now_ns() - start_ns < 240 * MS_NS);
		pthread_join(thread, NULL);
		expect_closed(client, -ECONNRESET);
		assert_int_equal(tr_end_reason(client), WIRE_REASON_PEER_GONE);
		tr_close(client);
	}
}

/* Leaves the wake-up for its last answer in the socket. */
static void collect_armed(struct fake_daemon *fake, struct tr_client *client)
{
	struct pollfd ready = {.fd = tr_fd(client), .events = POLLIN};
	struct tr_event event = {.size = sizeof event};

	fake_set(fake, FAKE_NO_CONSUME);
	submit_ok(client, &echo);
	assert_int_equal(tr_arm(client), 0);
	fake_clear(fake, FAKE_NO_CONSUME);
	assert_int_equal(poll(&ready, 1, 5000), 1);
	assert_int_equal(tr_poll(client, &event, 1), 1);
	/* No fence is owed any more, whose look at the daemon's word could meet the hang-up. */
	assert_int_equal(tr_poll(client, &event, 1), 0);
}

/* How long a spinning caller takes to see a hang-up. */
static uint64_t hang_up_seen_ns(bool is_armed)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_event event;
	uint64_t start_ns, took_ns;

	if (is_armed)
		collect_armed(&fake, client);
	fake_stop(&fake);
	start_ns = clock_now_ns();
	assert_int_equal(poll_until(client, &event), -ECONNRESET);
	took_ns = clock_now_ns() - start_ns;
	tr_close(client);
	return took_ns;
}

static void expect_hang_up_seen(bool is_armed)
{
	uint64_t best_ns = UINT64_MAX;

	/* The best of some: a busy machine may take the CPU away for longer than the bound. */
	for (int i = 0; i < 10 && best_ns >= 10 * MS_NS; i++) {
		uint64_t took_ns = hang_up_seen_ns(is_armed);

		best_ns = took_ns < best_ns ? took_ns : best_ns;
	}
	assert_true(best_ns < 10 * MS_NS);
}

static void a_hang_up_reaches_those_who_only_poll(void **state)
{
	expect_hang_up_seen(false);
	expect_hang_up_seen(true);
}

static void answer_and_die(struct fake_daemon *fake, const struct wire_submission *submission)
{
	fake_answer(fake, submission);
	fake_set(fake, FAKE_STOP);
}

static void answers_published_before_death_are_delivered(void **state)
{
	struct fake_daemon fake = {.on_submission = answer_and_die};
	struct tr_client *client = open_client(&fake);
	struct tr_event event = {.size = sizeof event};

	submit_ok(client, &echo);
	assert_int_equal(tr_flush(client), 0);
	while (!(load_acquire_u32(&fake.flags) & FAKE_STOP))
		usleep(100);
	fake_stop(&fake);
	assert_int_equal(tr_arm(client), 1);
	assert_int_equal(tr_wait(client, &event, 1, -1), 1);
	assert_int_equal(event.kind, TR_EVENT_ECHO);
	assert_int_equal(tr_wait(client, &event, 1, -1), -ECONNRESET);
	tr_close(client);
}

static void an_end_carries_its_reason(void **state)
{
	const struct {
		uint32_t reason;
		int error;
	} ends[] = {
	    {WIRE_REASON_ID_ORDER, -ECONNABORTED}, {WIRE_REASON_SHUTDOWN, -ECONNRESET}, {9999, -ECONNRESET}};

	for (int i = 0; i < 3; i++) {
		struct fake_daemon fake = {.end_reason = ends[i].reason};
		struct tr_client *client = open_client(&fake);
		struct tr_event event;

		fake_set(&fake, FAKE_END);
		assert_int_equal(poll_until(client, &event), ends[i].error);
		assert_int_equal(tr_end_reason(client), ends[i].reason);
		expect_closed(client, ends[i].error);
		tr_close(client);
		fake_stop(&fake);
	}
}

/* A send notices the hang-up first; what the daemon said before it is still there to read. */
static void an_end_is_heard_by_who_only_sends(void **state)
{
	struct fake_daemon fake = {.end_reason = WIRE_REASON_MODEL_FAILED};
	struct tr_client *client = open_client(&fake);
	uint32_t token;
	size_t n = 0;

	fake_set(&fake, FAKE_END);
	while (load_acquire_u32(&fake.flags) & FAKE_END)
		usleep(100);
	fake_stop(&fake);
	assert_int_equal(tr_tokenize(client, 0, "a", 1, 0, &token, 1, &n), -ECONNRESET);
	assert_int_equal(tr_end_reason(client), WIRE_REASON_MODEL_FAILED);
	tr_close(client);
}

static void a_stale_heartbeat_is_told_and_forgiven(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_event event = {.size = sizeof event};
	uint64_t beat_ns, told_ns;

	fake_hang(&fake);
	beat_ns = load_relaxed_u64(&segment_header(&fake.segment)->heartbeat_ns);
	submit_ok(client, &echo);
	assert_int_equal(tr_wait(client, &event, 1, -1), -EHOSTDOWN);
	told_ns = clock_now_ns();
	assert_true(told_ns - beat_ns >= 1000ull * MS_NS);
	assert_true(told_ns - beat_ns < 10000ull * MS_NS); /* a busy machine takes longer than the second */
	assert_int_equal(poll_until(client, &event), -EHOSTDOWN);
	assert_int_equal(tr_arm(client), -EHOSTDOWN);
	fake_clear(&fake, FAKE_HANG);
	usleep(5000);
	assert_int_equal(tr_wait(client, &event, 1, SECOND_NS), 1);
	assert_int_equal(event.kind, TR_EVENT_ECHO);
	tr_close(client);
	fake_stop(&fake);
}

/* One completion with one thing wrong; `lie` counts through them. */
static int lie;

static void answer_with_a_lie(struct fake_daemon *fake, const struct wire_submission *submission)
{
	struct wire_completion answer = {.kind = WIRE_KIND_FINAL, .n_tok = 1, .id = submission->id};

	switch (lie) {
	case 0:
		answer.id += 1 << 16;
		break;
	case 1:
		answer.id = 0;
		break;
	case 2:
		answer.id |= 0xffff;
		break;
	case 3:
		answer.kind = 0;
		break;
	case 4:
		answer.kind = 6;
		break;
	case 5:
		answer.n_tok = 9;
		break;
	case 6:
		answer.finish = 9;
		break;
	case 7:
		answer.status = 1;
		break;
	case 8: /* a reply where none was asked */
		answer.aux = 16;
		break;
	case 9:
		answer.kind = WIRE_KIND_REFUSED;
		break;
	case 10: /* the same answer twice: the second is for an id that is free */
		fake_publish(fake, &answer);
		break;
	}
	fake_publish(fake, &answer);
}

static void lying_answers_end_the_channel(void **state)
{
	for (lie = 0; lie <= 10; lie++) {
		struct fake_daemon fake = {.on_submission = answer_with_a_lie};
		struct tr_client *client = open_client(&fake);
		struct tr_event event;

		submit_ok(client, &echo);
		if (lie == 10)
			assert_int_equal(poll_until(client, &event), 1);
		if (poll_until(client, &event) != -ECONNABORTED)
			fail_msg("lie %d was believed", lie);
		assert_int_equal(tr_end_reason(client), WIRE_REASON_BAD_COMPLETION);
		expect_closed(client, -ECONNABORTED);
		tr_close(client);
		fake_stop(&fake);
	}
}

static void reply_with_a_lie(struct fake_daemon *fake, const struct wire_submission *submission)
{
	struct wire_completion answer = {
	    .kind = WIRE_KIND_FINAL, .finish = WIRE_FINISH_DONE, .id = submission->id, .aux = 32};
	const struct wire_block *block = (void *)(fake->segment.base + submission->block * 64ull);
	struct wire_reply *reply = (void *)(fake->segment.base + block->reply_off * 64ull);

	*reply = (struct wire_reply){WIRE_REPLY_LOGITS, 2, 8, 16};
	switch (lie) {
	case 0:
		answer.aux = 33;
		break;
	case 1:
		answer.aux = UINT32_MAX;
		break;
	case 2:
		answer.aux = 15;
		break;
	case 3:
		reply->count = 3;
		break;
	case 4:
		reply->count = UINT32_MAX;
		break;
	case 5:
		reply->stride = 4;
		break;
	case 6:
		reply->kind = 77;
		break;
	case 7:
		answer.kind = WIRE_KIND_TOKENS;
		answer.first = UINT32_MAX;
		answer.n_tok = 8;
		break;
	}
	fake_publish(fake, &answer);
}

static void lying_replies_end_the_channel(void **state)
{
	for (lie = 0; lie <= 8; lie++) {
		struct fake_daemon fake = {.on_submission = reply_with_a_lie};
		struct tr_client *client = open_client(&fake);
		struct tr_request request = request_of(TR_SCORE, 1, 1);
		uint32_t candidates[] = {1, 2};
		struct tr_request_extra extra = {
		    .size = sizeof extra, .candidates = candidates, .n_candidates = 2};
		struct tr_event event;

		request.extra = &extra;
		submit_ok(client, &request);
		if (poll_until(client, &event) != (lie == 8 ? 1 : -ECONNABORTED))
			fail_msg("lie %d was believed", lie);
		tr_close(client);
		fake_stop(&fake);
	}
}

static void garbage_in_the_ring_never_crashes(void **state)
{
	for (unsigned seed = 0; seed < 200; seed++) {
		struct fake_daemon fake = {0};
		struct tr_client *client = fake_start_shared(&fake, NULL);
		struct tr_event events[8] = {{.size = sizeof events[0]}};
		uint64_t id;

		fake_set(&fake, FAKE_STOP);
		pthread_join(fake.thread, NULL);
		srand(seed);
		for (int i = 0; i < 8; i++)
			tr_submit(client, &echo, &id);
		for (int i = 0; i < 64; i++) {
			struct wire_completion noise;

			for (size_t k = 0; k < sizeof noise; k++)
				((unsigned char *)&noise)[k] = (unsigned char)rand();
			if (rand() % 2)
				noise.id = client->ids[rand() % 8];
			noise.kind %= 7;
			noise.n_tok %= 10;
			noise.finish %= 10;
			noise.status = -(noise.status & 0xff);
			noise.aux = rand() % 2 ? 0 : noise.aux;
			if (ring_room(&fake.completions))
				ring_publish(&fake.completions, &noise);
		}
		while (tr_poll(client, events, 8) > 0)
			events[0].size = sizeof events[0];
		tr_close(client);
	}
}

static void a_lying_consumed_ends_the_channel(void **state)
{
	struct fake_daemon fake = {.sq_slots = 8};
	struct tr_client *client = open_client(&fake);
	uint64_t id;
	int error = 0;

	fake_set(&fake, FAKE_NO_CONSUME);
	usleep(30000);
	store_release_u64(&segment_header(&client->segment)->sq_consumed, 100);
	assert_int_equal(tr_submit(client, &echo, &id), 0);
	for (int i = 0; i < 20 && error == 0; i++)
		error = tr_cancel(client, id);
	assert_int_equal(error, -ECONNABORTED);
	assert_int_equal(tr_end_reason(client), WIRE_REASON_BAD_CONSUMED);
	tr_close(client);
	fake_stop(&fake);
}

static void a_forked_child_may_only_close(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_event event;
	int status;
	pid_t child;

	submit_ok(client, &echo);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct tr_event own = {.size = sizeof own};
		uint64_t id;
		int right = tr_poll(client, &own, 1) == -ESTALE && tr_submit(client, &echo, &id) == -ESTALE &&
			    tr_wait(client, &own, 1, -1) == -ESTALE && tr_arm(client) == -ESTALE &&
			    tr_reconnect(client) == -ESTALE && tr_fd(client) == -ESTALE;
		/* Something else lies where the channel was: closing must leave it alone. */
		volatile unsigned char *there =
		    mmap(client->segment.base, 4096, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (there == MAP_FAILED)
			_exit(3);
		tr_close(client);
		*there = 1;
		_exit(right ? 0 : 4);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The parent goes on. */
	assert_int_equal(poll_until(client, &event), 1);
	submit_ok(client, &echo);
	wait_one(client);
	tr_close(client);
	fake_stop(&fake);
}

static void reconnecting_opens_a_new_channel(void **state)
{
	struct fake_daemon fake = {.end_reason = WIRE_REASON_SHUTDOWN};
	struct tr_client *client = open_client(&fake);
	struct tr_event event = {.size = sizeof event};
	uint64_t before, after;

	for (int i = 0; i < 3; i++) {
		before = submit_ok(client, &echo);
		wait_one(client);
		fake_set(&fake, FAKE_END);
		while (tr_wait(client, &event, 1, 5ll * SECOND_NS) != -ECONNRESET)
			;
		assert_int_equal(tr_reconnect(client), 0);
		after = submit_ok(client, &echo);
		assert_true(after > before);
		wait_one(client);
		assert_int_equal(tr_end_reason(client), 0);
	}
	fake_stop(&fake);
	assert_int_equal(tr_reconnect(client), -ENOENT);
	expect_closed(client, -ECONNRESET);
	tr_close(client);
}

static void opening_says_why_not(void **state)
{
	struct tr_open_options options = {.size = sizeof options, .timeout_ms = 50};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct fake_daemon fake = {.end_reason = WIRE_REASON_TOO_MANY_CHANNELS};
	struct tr_client *client = NULL;
	char lengthy[200];
	int listener;

	memset(lengthy, 'a', sizeof lengthy - 1);
	lengthy[sizeof lengthy - 1] = 0;
	assert_int_equal(tr_open(&client, "udp://127.0.0.1:7000", NULL), -EPROTONOSUPPORT);
	assert_int_equal(tr_open(&client, "/nonexistent/socket", NULL), -ENOENT);
	assert_int_equal(tr_open(&client, lengthy, NULL), -ENAMETOOLONG);
	options.flags = 1;
	assert_int_equal(tr_open(&client, "/nonexistent/socket", &options), -EINVAL);
	options.flags = 0;
	fake_start(&fake);
	fake_set(&fake, FAKE_REFUSE);
	assert_int_equal(tr_open(&client, fake.path, &options), -EUSERS);
	fake_clear(&fake, FAKE_REFUSE);
	fake_set(&fake, FAKE_BAD_HEADER);
	assert_int_equal(tr_open(&client, fake.path, &options), -EPROTO);
	fake_clear(&fake, FAKE_BAD_HEADER);
	setenv("TOKENRING_SOCKET", fake.path, 1);
	assert_int_equal(tr_open(&client, NULL, NULL), 0);
	tr_close(client);
	client = NULL;
	unsetenv("TOKENRING_SOCKET");
	fake_stop(&fake);
	/* A socket whose daemon is gone, then one that listens but never answers. */
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	strcpy(address.sun_path, fake.path);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(tr_open(&client, fake.path, &options), -ECONNREFUSED);
	assert_int_equal(listen(listener, 0), 0);
	assert_int_equal(tr_open(&client, fake.path, &options), -ETIMEDOUT);
	close(listener);
	unlink(fake.path);
	assert_null(client);
	tr_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_hang_up_ends_a_wait_at_once),
	    cmocka_unit_test(a_hang_up_reaches_those_who_only_poll),
	    cmocka_unit_test(answers_published_before_death_are_delivered),
	    cmocka_unit_test(an_end_carries_its_reason),
	    cmocka_unit_test(an_end_is_heard_by_who_only_sends),
	    cmocka_unit_test(a_stale_heartbeat_is_told_and_forgiven),
	    cmocka_unit_test(lying_answers_end_the_channel),
	    cmocka_unit_test(lying_replies_end_the_channel),
	    cmocka_unit_test(garbage_in_the_ring_never_crashes),
	    cmocka_unit_test(a_lying_consumed_ends_the_channel),
	    cmocka_unit_test(a_forked_child_may_only_close),
	    cmocka_unit_test(reconnecting_opens_a_new_channel),
	    cmocka_unit_test(opening_says_why_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
