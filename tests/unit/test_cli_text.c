/* What a terminal sees of a text that arrives in pieces: stop strings over borders, whole characters. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tools/cli/chat.h"
#include "tools/cli/text_stream.h"

static char seen[4096];
static size_t n_seen;

static bool ends_in_whole_character(const char *text, size_t n)
{
	size_t back = 0;
	while (back < n && back < 4 && ((unsigned char)text[n - 1 - back] & 0xc0) == 0x80)
		back++;
	unsigned char lead = (unsigned char)text[n - 1 - back];
	size_t wanted = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
	return back == wanted;
}

static int collect(void *context, const char *text, size_t n)
{
	assert_true(n > 0 && ends_in_whole_character(text, n));
	memcpy(seen + n_seen, text, n);
	n_seen += n;
	seen[n_seen] = 0;
	return 0;
}

/* Feeds `text` in pieces of `piece` bytes and returns what left. */
static const char *feed(const char *text, size_t bytes, size_t piece, const char *const *stops,
			size_t n_stops)
{
	struct text_stream stream = {.stops = stops, .n_stops = n_stops, .sink = collect};
	n_seen = 0;
	seen[0] = 0;
	for (size_t i = 0; i < bytes; i += piece) {
		size_t n = bytes - i < piece ? bytes - i : piece;
		assert_int_equal(text_stream_push(&stream, text + i, n), 0);
	}
	assert_int_equal(text_stream_end(&stream), 0);
	text_stream_free(&stream);
	return seen;
}

static void expect(const char *text, const char *wanted, const char *const *stops, size_t n_stops)
{
	for (size_t piece = 1; piece <= strlen(text); piece++)
		assert_string_equal(feed(text, strlen(text), piece, stops, n_stops), wanted);
}

static void test_characters_stay_whole(void **state)
{
	expect("na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80!", "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80!",
	       NULL, 0);
}

static void test_broken_characters_are_replaced(void **state)
{
	expect("a\xff\xe2\x82z", "a\xef\xbf\xbd\xef\xbf\xbdz", NULL, 0);
	expect("end \xf0\x9f", "end \xef\xbf\xbd", NULL, 0);
}

static void test_stop_over_every_border(void **state)
{
	const char *stops[] = {"\n\nUser:", "</s>"};
	expect("Hello.\n\nUser: more", "Hello.", stops, 2);
	expect("Hello</s>\n\nUser:", "Hello", stops, 2);
	expect("</s>", "", stops, 2);
}

static void test_almost_a_stop_leaves_at_last(void **state)
{
	const char *stops[] = {"\n\nUser:"};
	expect("Hello.\n\nUses\n\nUser", "Hello.\n\nUses\n\nUser", stops, 1);
}

static void test_overlapping_beginnings(void **state)
{
	const char *stops[] = {"aab"};
	expect("xaaab yz", "xa", stops, 1);
	expect("aaaa", "aaaa", stops, 1);
}

static void test_the_earliest_stop_counts(void **state)
{
	const char *stops[] = {"later", "soon"};
	expect("it is soon or later", "it is ", stops, 2);
}

static void test_stop_after_half_a_character(void **state)
{
	const char *stops[] = {"STOP"};
	expect("\xe2\x82STOP", "\xef\xbf\xbd", stops, 1);
}

static void test_nothing_waits_without_need(void **state)
{
	const char *stops[] = {"STOP"};
	struct text_stream stream = {.stops = stops, .n_stops = 1, .sink = collect};
	n_seen = 0;
	text_stream_push(&stream, "word S", 6);
	assert_string_equal(seen, "word ");
	text_stream_push(&stream, "o", 1);
	assert_string_equal(seen, "word So");
	text_stream_free(&stream);
}

static int closed(void *context, const char *text, size_t n)
{
	return -EPIPE;
}

static void test_the_sinks_error_comes_back(void **state)
{
	struct text_stream stream = {.sink = closed};
	assert_int_equal(text_stream_push(&stream, "x", 1), -EPIPE);
	text_stream_free(&stream);
}

static void test_long_text(void **state)
{
	static char text[3001];
	memset(text, 'x', 3000);
	expect(text, text, NULL, 0);
}

static void join(const struct chat_part *parts, size_t n, char *text)
{
	text[0] = 0;
	for (size_t i = 0; i < n; i++)
		strcat(text, parts[i].text);
}

static void test_chat_prompts(void **state)
{
	struct chat_part parts[CHAT_PARTS_MAX];
	char text[512];
	join(parts, chat_prompt(chat_find("smollm2"), NULL, "Hi", parts), text);
	/* transformers: apply_chat_template of SmolLM2-135M-Instruct, add_generation_prompt */
	assert_string_equal(
	    text, "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by "
		  "Hugging Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
	join(parts, chat_prompt(chat_find("chatml"), NULL, "Hi", parts), text);
	assert_string_equal(text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
	join(parts, chat_prompt(chat_find("gemma"), "Be brief.", "Hi", parts), text);
	/* apply_chat_template of gemma-3-270m-it, without its BOS */
	assert_string_equal(text,
			    "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n");
}

static void test_the_users_text_is_never_marks(void **state)
{
	struct chat_part parts[CHAT_PARTS_MAX];
	size_t n = chat_prompt(chat_find("chatml"), "S<|im_end|>", "U<|im_end|>", parts);
	for (size_t i = 0; i < n; i++)
		if (parts[i].text[0] == 'S' || parts[i].text[0] == 'U')
			assert_false(parts[i].marks);
}

static void test_chat_by_model(void **state)
{
	assert_string_equal(chat_for_model("SmolLM2 135M Instruct", "llama")->name, "smollm2");
	assert_string_equal(chat_for_model("Gemma-3 270M It", "gemma3")->name, "gemma");
	assert_string_equal(chat_for_model("renamed", "gemma3")->name, "gemma");
	assert_null(chat_for_model("tiny", "llama"));
	assert_null(chat_find("nothing"));
	assert_string_equal(chat_names(), "smollm2, chatml, gemma");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_characters_stay_whole),
	    cmocka_unit_test(test_broken_characters_are_replaced),
	    cmocka_unit_test(test_stop_over_every_border),
	    cmocka_unit_test(test_almost_a_stop_leaves_at_last),
	    cmocka_unit_test(test_overlapping_beginnings),
	    cmocka_unit_test(test_the_earliest_stop_counts),
	    cmocka_unit_test(test_stop_after_half_a_character),
	    cmocka_unit_test(test_nothing_waits_without_need),
	    cmocka_unit_test(test_the_sinks_error_comes_back),
	    cmocka_unit_test(test_long_text),
	    cmocka_unit_test(test_chat_prompts),
	    cmocka_unit_test(test_the_users_text_is_never_marks),
	    cmocka_unit_test(test_chat_by_model),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
