/* A stream's logits, its hidden states and its cached keys and values have the same bits whatever its
 * company: alone or among 47 others, on 1 to 4 threads, in chunks of 1, 7, 32 and 500 tokens, on every
 * instruction set that is here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/player.h"

enum { STREAMS = 48, LONGEST = 520, THREADS = 4, CASES = 4 };

static const struct synthetic_spec base = {.layers = 2,
					   .width = 96,
					   .heads = 6,
					   .kv_heads = 2,
					   .dk = 16,
					   .dv = 32,
					   .hidden = 160,
					   .vocab = 131,
					   .context = 544,
					   .embed = TYPE_F32};

static struct synthetic_spec spec_of(unsigned which)
{
	static const enum weight_type type[CASES] = {TYPE_Q4_1, TYPE_Q4_0, TYPE_Q8_0, TYPE_BF16};
	static const enum weight_type cache[CASES] = {TYPE_F16, TYPE_Q8_0, TYPE_F16, TYPE_BF16};
	struct synthetic_spec spec = base;

	spec.name = weight_type_info[type[which]].name;
	spec.matrix = type[which];
	spec.kv = cache[which];
	spec.window = which == 1 ? 40 : 0;
	spec.half_rope = spec.head_norms = which == 2;
	spec.experts = which == 3 ? 8 : 0;
	spec.used = 2;
	return spec;
}

/* The first stream is long, the others are of many lengths; what a stream says depends on nothing else. */
static void make_streams(const struct synthetic *model, struct play *ret)
{
	static uint32_t tokens[STREAMS][LONGEST];
	uint64_t random = 12;

	*ret = (struct play){.sequences = STREAMS, .keep_kv = true};
	for (uint32_t q = 0; q < STREAMS; q++) {
		ret->n[q] = q ? 1 + q * 7 % 41 : LONGEST;
		ret->tokens[q] = tokens[q];
		for (uint32_t i = 0; i < ret->n[q]; i++)
			tokens[q][i] = (uint32_t)(synthetic_random(&random) % (model->spec.vocab - 1));
	}
}

/* False where the machine lacks the instruction set. */
static bool run(const struct synthetic *model, const char *kind, const char *isa, uint32_t threads,
		const struct play *what, struct played *ret)
{
	uint32_t blocks = LONGEST / TAPE_KV_BLOCK + 2 + STREAMS * 2;
	struct player player;
	char why[256] = "";
	int r = player_open_wide(&player, model, kind, isa, threads, 4096, PLAY_ROWS_MAX, blocks, why,
				 sizeof why);

	if (r == -ENODEV) {
		print_message("%s: %s\n", isa, why);
		return false;
	}
	play(&player, what, ret);
	player_close(&player);
	return true;
}

static void compare(const struct synthetic *model, const struct play *what, const struct played *got,
		    const struct played *want, const char *how)
{
	const struct tape *tape = &model->tape;
	size_t columns = what->hidden ? tape->width : tape->vocab;

	for (uint32_t q = 0; q < what->sequences; q++) {
		for (uint32_t i = 0; i < what->n[q]; i++)
			if (!got->have[q][i] || got->faults[q][i] ||
			    memcmp(got->logits[q] + i * columns, want->logits[q] + i * columns,
				   columns * sizeof(float)))
				fail_msg("%s, %s: other outputs at position %u of stream %u",
					 model->spec.name, how, i, q);
		for (uint32_t g = 0; g < tape->n_groups; g++) {
			const struct tape_group *group = &tape->groups[g];
			size_t n =
			    (size_t)group->layers * what->n[q] * group->kv_heads * (group->dk + group->dv);
			if (memcmp(got->kv[q][g], want->kv[q][g], n * sizeof(float)))
				fail_msg("%s, %s: other keys or values of stream %u in group %u",
					 model->spec.name, how, q, g);
		}
	}
}

/* False where the machine lacks the instruction set. */
static bool check(const struct synthetic *model, const char *isa, uint32_t threads, struct play what,
		  const struct played *want)
{
	struct played got;
	char how[96];

	snprintf(how, sizeof how, "%s, %u streams, %u threads, chunks of %u", isa, what.sequences, threads,
		 what.chunk);
	what.seed = threads + what.chunk;
	what.drop_old_block = what.chunk != 7;
	if (!run(model, "cpu", isa, threads, &what, &got))
		return false;
	compare(model, &what, &got, want, how);
	played_free(&got);
	return true;
}

/* Hidden states: the streams share steps with each other, as embeddings do. */
static void check_hidden(const struct synthetic *model, struct play what)
{
	struct played want;

	what.hidden = true;
	what.sequences = STREAMS;
	what.chunk = 32;
	assert_true(run(model, "ref-int8", "auto", 1, &what, &want));
	assert_true(want.logits[0][0] != 0);
	for (uint32_t threads = 1; threads <= THREADS; threads++) {
		static const uint32_t chunks[] = {7, 32, 1, 500};
		what.sequences = threads == 1 ? 1 : STREAMS;
		what.chunk = chunks[threads - 1];
		assert_true(check(model, "auto", threads, what, &want));
	}
	played_free(&want);
}

/* Over all cases every thread count meets every chunk with every number of streams. */
static void check_case(unsigned which)
{
	static const uint32_t streams[] = {1, 3, 17, STREAMS}, chunks[] = {1, 7, 32, 500};
	struct synthetic_spec spec = spec_of(which);
	struct synthetic model;
	struct played want;
	struct play what;

	synthetic_create(&model, &spec, 21);
	make_streams(&model, &what);
	what.chunk = 32;
	assert_true(run(&model, "ref-int8", "auto", 1, &what, &want));
	assert_true(want.kv[0][0][0] != 0.0f);
	for (uint32_t threads = 1; threads <= THREADS; threads++)
		for (uint32_t c = 0; c < 4; c++) {
			what.sequences = streams[(threads + c + which) % 4];
			what.chunk = chunks[c];
			assert_true(check(&model, "auto", threads, what, &want));
		}
	played_free(&want);
	check_hidden(&model, what);
	synthetic_destroy(&model);
}

static void four_bits_with_a_minimum(void **state)
{
	check_case(0);
}

static void four_bits_and_windows(void **state)
{
	check_case(1);
}

static void eight_bits_and_head_norms(void **state)
{
	check_case(2);
}

static void sixteen_bits_and_experts(void **state)
{
	check_case(3);
}

/* All streams on three threads; false where the machine lacks the instruction set. */
static bool check_cache(const char *isa, enum weight_type kv)
{
	struct synthetic_spec spec = spec_of(0);
	struct synthetic model;
	struct played want;
	struct play what;

	spec.kv = kv;
	synthetic_create(&model, &spec, 22);
	make_streams(&model, &what);
	what.chunk = 7;
	assert_true(run(&model, "ref-int8", "auto", 1, &what, &want));
	bool here = check(&model, isa, 3, what, &want);
	played_free(&want);
	synthetic_destroy(&model);
	return here;
}

static void check_isa(const char *isa)
{
	if (!check_cache(isa, TYPE_F16) || !check_cache(isa, TYPE_Q8_0))
		skip();
}

static void on_generic(void **state)
{
	check_isa("generic");
}

static void on_avx2(void **state)
{
	check_isa("avx2");
}

static void on_avx512vnni(void **state)
{
	check_isa("avx512vnni");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(four_bits_with_a_minimum),
	    cmocka_unit_test(four_bits_and_windows),
	    cmocka_unit_test(eight_bits_and_head_norms),
	    cmocka_unit_test(sixteen_bits_and_experts),
	    cmocka_unit_test(on_generic),
	    cmocka_unit_test(on_avx2),
	    cmocka_unit_test(on_avx512vnni),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
