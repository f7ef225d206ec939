/* The short path of an echo accepts what the judge of slots accepts, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/echo.h"

static struct wire_submission plain_slot(unsigned n_tok)
{
	struct wire_submission slot = {
	    .seq = 77, .op = WIRE_OP_ECHO, .n_tok = (uint8_t)n_tok, .flags = 5, .id = 1 << 16, .max_new = 9};

	for (unsigned i = 0; i < n_tok; i++)
		slot.tok[i] = 1000 + i;
	return slot;
}

static bool is_plain(const struct wire_submission *slot)
{
	uint64_t words[8];

	memcpy(words, slot, sizeof words);
	return echo_is_plain(words);
}

/* What the short path stands for, by the judge that reads the slot as a struct. */
static bool is_plain_by_judge(const struct wire_submission *slot)
{
	struct refusal refusal = {0};

	return slot->op == WIRE_OP_ECHO && slot->profile == 0 && slot->deadline_ns == 0 &&
	       admit_slot(slot, &refusal);
}

static void test_every_bit(void **state)
{
	for (unsigned n = 1; n <= WIRE_SLOT_TOKENS; n++) {
		struct wire_submission slot = plain_slot(n);

		assert_true(is_plain(&slot));
		assert_true(is_plain_by_judge(&slot));
		for (unsigned bit = 0; bit < 8 * sizeof slot; bit++) {
			unsigned char *byte = (unsigned char *)&slot + bit / 8;

			*byte ^= 1U << bit % 8;
			if (is_plain(&slot) != is_plain_by_judge(&slot))
				fail_msg("%u tokens, bit %u", n, bit);
			*byte ^= 1U << bit % 8;
		}
	}
}

static void test_every_count(void **state)
{
	for (unsigned n = 0; n < 256; n++) {
		struct wire_submission slot = plain_slot(8);

		slot.n_tok = (uint8_t)n;
		assert_int_equal(is_plain(&slot), n == 8);
		slot = plain_slot(8);
		slot.op = (uint8_t)n;
		assert_int_equal(is_plain(&slot), n == WIRE_OP_ECHO);
		slot = plain_slot(8);
		slot.flags = (uint8_t)n;
		assert_int_equal(is_plain(&slot), n < 8);
	}
}

static void test_vocabulary(void **state)
{
	const uint32_t vocabs[] = {1, 2, 49152, 262144, 1U << 31, UINT32_MAX};

	for (unsigned v = 0; v < sizeof vocabs / sizeof vocabs[0]; v++)
		for (unsigned i = 0; i < WIRE_SLOT_TOKENS; i++) {
			const uint32_t tokens[] = {0, vocabs[v] - 1, vocabs[v], UINT32_MAX};

			for (unsigned t = 0; t < 4; t++) {
				uint32_t list[WIRE_SLOT_TOKENS] = {0};
				uint64_t words[4];

				list[i] = tokens[t];
				memcpy(words, list, sizeof words);
				assert_int_equal(echo_tokens_known(words, vocabs[v]), tokens[t] < vocabs[v]);
			}
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_bit),
	    cmocka_unit_test(test_every_count),
	    cmocka_unit_test(test_vocabulary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
