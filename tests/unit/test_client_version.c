/* Versions that differ: a daemon of another major or minor version, and structs of other sizes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/unit/client_fixture.h"

static int open_why(struct fake_daemon *fake, struct tr_client **ret, char *why, size_t why_bytes)
{
	struct tr_open_options options = {
	    .size = sizeof options, .timeout_ms = 2000, .why = why, .why_bytes = why_bytes};

	fake_start(fake);
	return tr_open(ret, fake->path, &options);
}

static void expect_refusal(struct fake_daemon *fake, int error, const char *part, const char *other_part)
{
	struct tr_client *client = NULL;
	char why[256] = "unchanged";

	assert_int_equal(open_why(fake, &client, why, sizeof why), error);
	assert_null(client);
	if (!strstr(why, part) || !strstr(why, other_part))
		fail_msg("'%s' lacks '%s' or '%s'", why, part, other_part);
	fake_stop(fake);
}

static void another_major_is_refused_with_both_versions(void **state)
{
	struct fake_daemon newer = {.later_major = 1, .later_minor = 3, .offer_bytes = 24};
	struct fake_daemon older = {.later_major = UINT32_MAX};
	char own[64];

	snprintf(own, sizeof own, "libtokenring %s) version %d.%d", tr_version(), WIRE_MAJOR, WIRE_MINOR);
	expect_refusal(&newer, -EPROTONOSUPPORT, "daemon speaks version 2.3", own);
	expect_refusal(&older, -EPROTONOSUPPORT, "daemon speaks version 0.0", own);
}

static void another_minor_works(void **state)
{
	struct fake_daemon fake = {.later_minor = 7, .offer_bytes = 40};
	struct tr_client *client = NULL;
	struct tr_request request = request_of(TR_ECHO, 3, 5);
	char why[8] = "";

	assert_int_equal(open_why(&fake, &client, why, sizeof why), 0);
	submit_ok(client, &request);
	assert_int_equal(wait_one(client).tokens[2], 7);
	tr_close(client);
	fake_stop(&fake);
}

static void an_offer_cut_short_is_refused(void **state)
{
	struct fake_daemon fake = {.offer_bytes = -8};

	expect_refusal(&fake, -EPROTO, "does not add up", "install");
}

static void a_refusal_of_a_later_version_keeps_its_sentence(void **state)
{
	struct fake_daemon known = {.flags.value = FAKE_REFUSE, .end_reason = WIRE_REASON_MEMORY_LIMIT};
	struct fake_daemon later = {.flags.value = FAKE_REFUSE, .end_reason = 4711};

	expect_refusal(&known, -EDQUOT, "refused", "for a test");
	expect_refusal(&later, -ECONNRESET, "refused", "for a test");
}

static void a_sentence_is_cut_to_its_room(void **state)
{
	struct fake_daemon fake = {.later_major = 1};
	struct tr_client *client = NULL;
	char why[12] = "";

	assert_int_equal(open_why(&fake, &client, why, sizeof why), -EPROTONOSUPPORT);
	assert_string_equal(why, "the daemon ");
	fake_stop(&fake);
	assert_int_equal(tr_open(&client, "/nonexistent/socket",
				 &(struct tr_open_options){
				     .size = sizeof(struct tr_open_options), .why = why, .why_bytes = 12}),
			 -ENOENT);
	assert_string_equal(why, "there is no");
	assert_int_equal(
	    tr_open(&client, "/nonexistent/socket",
		    &(struct tr_open_options){.size = sizeof(struct tr_open_options), .why_bytes = 12}),
	    -EINVAL);
}

static void options_of_other_sizes_are_understood(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = NULL;
	struct {
		struct tr_open_options options;
		uint64_t later;
	} newer = {.options = {.size = sizeof newer, .timeout_ms = 2000}};
	struct tr_open_options older = {.size = offsetof(struct tr_open_options, flags), .flags = 77};

	fake_start(&fake);
	assert_int_equal(tr_open(&client, fake.path, &newer.options), 0);
	tr_close(client);
	assert_int_equal(tr_open(&client, fake.path, &older), 0); /* flags lie beyond its size */
	tr_close(client);
	client = NULL;
	newer.later = 1;
	assert_int_equal(tr_open(&client, fake.path, &newer.options), -EINVAL);
	assert_null(client);
	fake_stop(&fake);
}

static void structs_of_requests_are_understood_in_other_sizes(void **state)
{
	struct fake_daemon fake = {0};
	struct tr_client *client = open_client(&fake);
	struct tr_request request = request_of(TR_GENERATE, 1, 5);
	struct {
		struct tr_sampling sampling;
		uint64_t later;
	} sampling = {.sampling = {.size = sizeof sampling, .top_p = 1, .penalty = 1}};
	struct {
		struct tr_request_extra extra;
		uint64_t later;
	} extra = {.extra = {.size = sizeof extra, .sampling = &sampling.sampling, .max_new = 1}};
	uint64_t id;

	request.extra = &extra.extra;
	submit_ok(client, &request);
	assert_int_equal(wait_one(client).tokens[0], 6);
	extra.later = 1;
	assert_int_equal(tr_submit(client, &request, &id), -EINVAL);
	extra.later = 0;
	sampling.later = 1;
	assert_int_equal(tr_submit(client, &request, &id), -EINVAL);
	/* An older program's: what lies behind its end is not read. */
	sampling.sampling.size = offsetof(struct tr_sampling, ignore_eos);
	sampling.sampling.ignore_eos = 99;
	extra.extra.size = offsetof(struct tr_request_extra, reserved);
	extra.extra.reserved = 99;
	submit_ok(client, &request);
	assert_int_equal(wait_one(client).tokens[0], 6);
	tr_close(client);
	fake_stop(&fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(another_major_is_refused_with_both_versions),
	    cmocka_unit_test(another_minor_works),
	    cmocka_unit_test(an_offer_cut_short_is_refused),
	    cmocka_unit_test(a_refusal_of_a_later_version_keeps_its_sentence),
	    cmocka_unit_test(a_sentence_is_cut_to_its_room),
	    cmocka_unit_test(options_of_other_sizes_are_understood),
	    cmocka_unit_test(structs_of_requests_are_understood_in_other_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
