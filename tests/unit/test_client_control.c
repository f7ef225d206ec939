/* Calls over the control socket: payloads of many parts, both ways, with wake-up bytes and stale replies
 * between. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/client_fixture.h"

enum { TEXT_MAX = 1 << 20 };

/* The parts of one request, put together as the daemon would. */
static unsigned char request_bytes[TEXT_MAX + 64];
static size_t n_request_bytes;
static int control_status, n_profiles;

static void reply_error(struct fake_daemon *fake, const struct message *to)
{
	struct message reply = {.head = {.type = to->head.type,
					 .serial = to->head.serial,
					 .flags = WIRE_CONTROL_REPLY,
					 .status = control_status,
					 .bytes = 5}};

	memcpy(reply.payload, "no so", 5);
	fake_send(fake, &reply);
}

static void reply_model(struct fake_daemon *fake, const struct message *message)
{
	struct {
		struct wire_model model;
		uint32_t stop_ids[2];
	} reply = {{.vocab = 49152,
		    .context = 2048,
		    .bos = UINT32_MAX,
		    .eos = 2,
		    .state = WIRE_MODEL_READY,
		    .n_stop = 2},
		   {2, 3}};

	memset(reply.model.name, 'n', sizeof reply.model.name); /* not terminated */
	fake_reply(fake, message, &reply, sizeof reply);
}

/* Each byte is a token, and back. */
static void reply_text(struct fake_daemon *fake, const struct message *message)
{
	size_t n = n_request_bytes - sizeof(struct wire_text);
	const unsigned char *payload = request_bytes + sizeof(struct wire_text);

	if (message->head.type == WIRE_CONTROL_TOKENIZE) {
		uint32_t *tokens = malloc(4 * n + 4);

		for (size_t i = 0; i < n; i++)
			tokens[i] = payload[i];
		fake_reply(fake, message, tokens, 4 * n);
		free(tokens);
	} else {
		char *text = malloc(n / 4 + 1);

		for (size_t i = 0; i < n / 4; i++)
			text[i] = (char)payload[4 * i];
		fake_reply(fake, message, text, n / 4);
		free(text);
	}
}

static void on_control(struct fake_daemon *fake, const struct message *message)
{
	struct message stale = {
	    .head = {.type = message->head.type, .serial = 12345, .flags = WIRE_CONTROL_REPLY}};
	struct wire_profile profile;

	memcpy(request_bytes + n_request_bytes, message->payload, message->head.bytes);
	n_request_bytes += message->head.bytes;
	if (message->head.flags & WIRE_CONTROL_MORE)
		return;
	send(fake->socket, "", 1, MSG_NOSIGNAL);
	fake_send(fake, &stale);
	if (control_status)
		reply_error(fake, message);
	else if (message->head.type == WIRE_CONTROL_STATUS)
		fake_reply(fake, message, "{\"a\":1}", 7);
	else if (message->head.type == WIRE_CONTROL_MODEL)
		reply_model(fake, message);
	else if (message->head.type == WIRE_CONTROL_PROFILE) {
		memcpy(&profile, request_bytes, sizeof profile);
		n_profiles += profile.n_stop == 2 && profile.temperature == 0.5f &&
			      n_request_bytes == sizeof profile + 8;
		fake_reply(fake, message, &n_profiles, 4);
	} else
		reply_text(fake, message);
	n_request_bytes = 0;
}

static struct tr_client *open_control(struct fake_daemon *fake)
{
	fake->on_control = on_control;
	n_request_bytes = 0;
	control_status = n_profiles = 0;
	return open_client(fake);
}

static void text_of_any_length_goes_both_ways(void **state)
{
	const size_t lengths[] = {0, 1, 4071, 4072, 4073, 8152, 100000, TEXT_MAX / 4};
	struct fake_daemon fake = {0};
	struct tr_client *client = open_control(&fake);
	char *text = malloc(TEXT_MAX + 1), *back = malloc(TEXT_MAX + 1);
	uint32_t *tokens = malloc(4 * TEXT_MAX);

	for (size_t i = 0; i <= TEXT_MAX; i++)
		text[i] = (char)(i * 7 + i / 251);
	for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
		size_t n = 0, bytes = 0;

		assert_int_equal(
		    tr_tokenize(client, 0, text, lengths[k], TR_TEXT_SPECIAL, tokens, TEXT_MAX, &n), 0);
		assert_int_equal(n, lengths[k]);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(tokens[i], (unsigned char)text[i]);
		assert_int_equal(tr_detokenize(client, 0, tokens, n, 0, back, TEXT_MAX, &bytes), 0);
		assert_int_equal(bytes, n);
		assert_memory_equal(back, text, n);
	}
	assert_int_equal(tr_tokenize(client, 0, text, TEXT_MAX + 1, 0, tokens, 1, &(size_t){0}), -EMSGSIZE);
	assert_int_equal(tr_tokenize(client, 0, text, 1, 4, tokens, 1, &(size_t){0}), -EINVAL);
	free(text);
	free(back);
	free(tokens);
	tr_close(client);
	fake_stop(&fake);
}

static void a_short_buffer_is_told_the_length(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_control(&fake);
	uint32_t tokens[4] = {9, 9, 9, 9};
	char json[8];
	size_t n = 0;

	assert_int_equal(tr_tokenize(client, 0, "abcdef", 6, 0, tokens, 3, &n), -ENOSPC);
	assert_int_equal(n, 6);
	assert_int_equal(tokens[3], 9);
	assert_int_equal(tr_status(client, json, 7, &n), -ENOSPC);
	assert_int_equal(n, 7);
	assert_int_equal(tr_status(client, json, 8, &n), 0);
	assert_string_equal(json, "{\"a\":1}");
	assert_int_equal(tr_status(client, NULL, 0, &n), -ENOSPC);
	tr_close(client);
	fake_stop(&fake);
}

static void a_model_is_described(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_control(&fake);
	struct tr_model_info info = {.size = sizeof info};

	assert_int_equal(tr_model_info(client, 0, &info), 0);
	assert_int_equal(info.size, sizeof info);
	assert_int_equal(info.vocab, 49152);
	assert_int_equal(info.bos, TR_NO_TOKEN);
	assert_int_equal(info.n_stop_ids, 2);
	assert_int_equal(info.stop_ids[1], 3);
	assert_int_equal(strlen(info.name), 63);
	control_status = -ENOENT;
	assert_int_equal(tr_model_info(client, 7, &info), -ENOENT);
	control_status = 5;
	assert_int_equal(tr_model_info(client, 7, &info), -EPROTO);
	assert_int_equal(info.vocab, 49152);
	tr_close(client);
	fake_stop(&fake);
}

static void a_profile_is_repeated_in_blocks(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_control(&fake);
	uint32_t stop[] = {2, 3};
	struct tr_sampling sampling = {
	    .size = sizeof sampling, .temperature = 0.5f, .top_p = 1, .penalty = 1, .seed = 4};
	struct tr_profile profile = {
	    .size = sizeof profile, .max_new = 6, .sampling = &sampling, .stop_ids = stop, .n_stop_ids = 2};
	struct tr_request_extra extra = {.size = sizeof extra};
	struct tr_request request = {
	    .size = sizeof request, .op = TR_GENERATE, .n_tokens = 1, .tokens = {1}, .extra = &extra};
	const struct wire_block *block;
	uint8_t number = 0;

	assert_int_equal(tr_profile(client, &profile, &number), 0);
	assert_int_equal(number, 1);
	request.profile = number;
	submit_ok(client, &request);
	block = (const void *)(client->segment.base + client->layout.arena_off);
	assert_int_equal(block->max_new, 6);
	assert_int_equal(block->seed, 4);
	assert_true(block->temperature == 0.5f);
	assert_int_equal(((const uint32_t *)(block + 1))[0], WIRE_TLV_STOP_IDS);
	assert_int_equal(((const uint32_t *)(block + 1))[3], 3);
	while (wait_one(client).kind != TR_EVENT_FINAL)
		;
	profile.max_new = 0;
	assert_int_equal(tr_profile(client, &profile, &number), -EINVAL);
	profile.max_new = 65536;
	assert_int_equal(tr_profile(client, &profile, &number), -EINVAL);
	tr_close(client);
	fake_stop(&fake);
}

static void say_nothing(struct fake_daemon *fake, const struct message *message)
{
}

static void a_call_without_answer_times_out(void **state)
{
	struct fake_daemon fake = {.on_control = say_nothing};
	struct tr_open_options options = {.size = sizeof options, .timeout_ms = 50};
	struct tr_client *client;
	uint64_t start_ns;
	size_t n;

	fake_start(&fake);
	assert_int_equal(tr_open(&client, fake.path, &options), 0);
	start_ns = clock_now_ns();
	assert_int_equal(tr_status(client, NULL, 0, &n), -ETIMEDOUT);
	assert_true(clock_now_ns() - start_ns >= 50 * MS_NS);
	assert_true(clock_now_ns() - start_ns < 1000 * MS_NS);
	tr_close(client);
	fake_stop(&fake);
}

static void send_malformed(struct fake_daemon *fake, const struct message *message)
{
	send(fake->socket, "garbage", 7, MSG_NOSIGNAL);
}

static void send_end(struct fake_daemon *fake, const struct message *message)
{
	fake_set(fake, FAKE_END);
}

static void garbage_and_ends_reach_the_caller(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct fake_daemon fake = {.on_control = i ? send_end : send_malformed,
					   .end_reason = WIRE_REASON_BAD_CONTROL};
		struct tr_client *client = open_client(&fake);
		size_t n;

		assert_int_equal(tr_status(client, NULL, 0, &n), -ECONNABORTED);
		assert_int_equal(tr_end_reason(client), WIRE_REASON_BAD_CONTROL);
		tr_close(client);
		fake_stop(&fake);
	}
}

static void reasons_have_sentences(void **state)
{
	assert_string_equal(tr_strreason(0), "no reason");
	assert_int_equal(tr_reason_errno(WIRE_REASON_SHUTDOWN), ESHUTDOWN);
	assert_int_equal(tr_reason_errno(31), 0);
	assert_non_null(tr_strreason(UINT32_MAX));
	assert_string_equal(tr_version(), "0.1.0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(text_of_any_length_goes_both_ways),
	    cmocka_unit_test(a_short_buffer_is_told_the_length),
	    cmocka_unit_test(a_model_is_described),
	    cmocka_unit_test(a_profile_is_repeated_in_blocks),
	    cmocka_unit_test(a_call_without_answer_times_out),
	    cmocka_unit_test(garbage_and_ends_reach_the_caller),
	    cmocka_unit_test(reasons_have_sentences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
