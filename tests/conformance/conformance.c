#include "tests/conformance/conformance.h"

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

const char *subject_kind, *subject_isa;

enum { TOKENS_MAX = 640 };

/* Token lists of the given lengths, none of them the poison. */
static void random_tokens(const struct synthetic *model, const uint32_t *n, uint32_t sequences, uint64_t seed,
			  struct play *ret)
{
	static uint32_t tokens[PLAY_SEQUENCES_MAX][TOKENS_MAX];

	*ret = (struct play){.sequences = sequences, .seed = seed};
	for (uint32_t q = 0; q < sequences; q++) {
		assert_true(n[q] <= TOKENS_MAX && n[q] <= model->spec.context);
		for (uint32_t i = 0; i < n[q]; i++)
			tokens[q][i] = (uint32_t)(synthetic_random(&seed) % (model->spec.vocab - 1));
		ret->tokens[q] = tokens[q];
		ret->n[q] = n[q];
	}
}

static struct player open_subject(const struct synthetic *model, uint32_t threads, uint32_t load_rows)
{
	struct player player;
	char why[256] = "";

	if (player_open(&player, model, subject_kind, subject_isa, threads, load_rows, why, sizeof why) < 0)
		fail_msg("%s", why);
	return player;
}

static struct played reference(const struct synthetic *model, const struct play *what)
{
	struct player player;
	struct played played;
	char why[256] = "";
	struct play whole = *what;

	whole.chunk = PLAY_ROWS;
	whole.seed = 5;
	assert_int_equal(player_open(&player, model, "ref-int8", "auto", 1, 4096, why, sizeof why), 0);
	play(&player, &whole, &played);
	player_close(&player);
	return played;
}

/* All positions that both computed, and no faults in `got`. Sequence q of got is sequence want_q of want. */
static void compare(const struct synthetic *model, const struct play *what, const struct played *got,
		    uint32_t q, const struct played *want, uint32_t want_q, const char *how)
{
	size_t vocab = model->tape.vocab;

	for (uint32_t i = 0; i < what->n[q]; i++) {
		if (got->faults[q][i])
			fail_msg("%s (%s): a fault at position %u of sequence %u", model->spec.name, how, i,
				 q);
		if (!got->have[q][i] || !want->have[want_q][i])
			continue;
		const float *a = got->logits[q] + i * vocab, *b = want->logits[want_q] + i * vocab;
		for (size_t t = 0; t < vocab; t++)
			if (memcmp(&a[t], &b[t], sizeof *a))
				fail_msg("%s (%s): sequence %u, position %u, token %zu: %a, reference %a",
					 model->spec.name, how, q, i, t, (double)a[t], (double)b[t]);
	}
}

/* One play of the subject against the reference, in one chunking. */
static void play_and_compare(struct player *player, const struct synthetic *model, struct play what,
			     uint32_t chunk, const struct played *want)
{
	struct played got;
	char how[64];

	what.chunk = chunk;
	what.seed += chunk;
	what.drop_old_block = chunk != 7;
	snprintf(how, sizeof how, "chunks of %u", chunk);
	play(player, &what, &got);
	for (uint32_t q = 0; q < what.sequences; q++)
		compare(model, &what, &got, q, want, q, how);
	played_free(&got);
}

static void check_finite(const struct synthetic *model, const struct play *what, const struct played *want)
{
	double sum = 0;

	for (uint32_t q = 0; q < what->sequences; q++)
		for (size_t i = 0; i < what->n[q] * (size_t)model->tape.vocab; i++)
			sum += want->logits[q][i] * want->logits[q][i];
	if (!(sum > 1e-3 && sum < 1e12))
		fail_msg("%s: the reference's logits are degenerate", model->spec.name);
}

/* Chunks of 1, 7, 32 and random; threads 1 to 3; stale NaN everywhere; a sequence alone. */
static void run_spec(const struct synthetic_spec *spec, const uint32_t *n, uint32_t sequences)
{
	static const uint32_t chunks[] = {1, 7, 32, 0};
	struct synthetic model;
	struct play what;

	synthetic_create(&model, spec, 11 + (uint64_t)spec->matrix);
	random_tokens(&model, n, sequences, 3, &what);
	struct played want = reference(&model, &what);
	check_finite(&model, &what, &want);
	uint32_t most = strncmp(subject_kind, "ref", 3) ? 3 : 1; /* ref has one thread */
	for (uint32_t threads = 1; threads <= most; threads++) {
		struct player player = open_subject(&model, threads, threads == 2 ? 32 : 4096);
		if (spec->embed == TYPE_F32 && !spec->tied)
			player_poison(&player, synthetic_poison(&model));
		for (uint32_t c = 0; c < 4; c++)
			if (threads == 1 || c == threads)
				play_and_compare(&player, &model, what, chunks[c], &want);
		struct play alone = {.sequences = 1,
				     .tokens = {what.tokens[sequences - 1]},
				     .n = {n[sequences - 1]},
				     .chunk = 5,
				     .seed = threads};
		struct played got;
		play(&player, &alone, &got);
		compare(&model, &alone, &got, 0, &want, sequences - 1, "alone");
		played_free(&got);
		player_close(&player);
	}
	played_free(&want);
	synthetic_destroy(&model);
}

/* ---- the models ---- */

static const struct synthetic_spec base = {.name = "base",
					   .layers = 2,
					   .width = 256,
					   .heads = 4,
					   .kv_heads = 2,
					   .dk = 64,
					   .dv = 64,
					   .hidden = 512,
					   .vocab = 97,
					   .context = 64,
					   .matrix = TYPE_Q4_1,
					   .embed = TYPE_F32};

static void every_type_equals_the_reference(void **state)
{
	static const uint32_t n[] = {45, 1, 34};

	for (unsigned type = 0; type < TYPE_COUNT; type++) {
		struct synthetic_spec spec = base;
		spec.name = weight_type_info[type].name;
		spec.matrix = (enum weight_type)type;
		run_spec(&spec, n, 3);
	}
}

static void every_type_can_be_embedded_and_tied(void **state)
{
	static const uint32_t n[] = {9, 17};

	for (unsigned type = 0; type < TYPE_COUNT; type++) {
		struct synthetic_spec spec = base;
		spec.name = weight_type_info[type].name;
		spec.matrix = spec.embed = (enum weight_type)type;
		spec.tied = true;
		spec.layers = 1;
		spec.embed_scale = 15.75f;
		spec.logit_scale = 0.25f;
		run_spec(&spec, n, 2);
	}
}

/* Widths that fill no vector: 96 and 160 for the legacy types, 44 and 84 for floats; odd vocabularies. */
static void odd_shapes_equal_the_reference(void **state)
{
	static const uint32_t n[] = {33, 20, 3};

	for (unsigned type = 0; type < TYPE_COUNT; type++) {
		uint32_t block = weight_type_info[type].block_weights;
		if (block > 32)
			continue;
		struct synthetic_spec spec = base;
		spec.name = weight_type_info[type].name;
		spec.matrix = (enum weight_type)type;
		spec.width = block == 1 ? 44 : 96;
		spec.hidden = block == 1 ? 83 : 160;
		spec.heads = 6;
		spec.kv_heads = 2;
		spec.dk = block == 1 ? 14 : 48;
		spec.dv = block == 1 ? 6 : 16;
		spec.vocab = 131;
		run_spec(&spec, n, 3);
	}
}

static const struct synthetic_spec small = {.name = "small",
					    .layers = 2,
					    .width = 64,
					    .heads = 4,
					    .kv_heads = 1,
					    .dk = 16,
					    .dv = 32,
					    .hidden = 96,
					    .vocab = 61,
					    .context = 640,
					    .matrix = TYPE_Q8_0,
					    .embed = TYPE_F32};

static void contexts_cross_tiles_and_segments(void **state)
{
	static const uint32_t n[] = {530, 290, 33, 257};
	struct synthetic_spec spec = small;

	spec.name = "long contexts";
	run_spec(&spec, n, 4);
}

static void windows_equal_the_reference(void **state)
{
	static const uint32_t n[] = {330, 70};
	static const uint32_t windows[] = {1, 31, 32, 100, 256, 512};

	for (unsigned i = 0; i < sizeof windows / sizeof windows[0]; i++) {
		struct synthetic_spec spec = small;
		char name[32];
		snprintf(name, sizeof name, "window of %u", windows[i]);
		spec.name = name;
		spec.window = windows[i];
		spec.half_rope = true;
		run_spec(&spec, n, 2);
	}
}

/* Head sizes that fill no vector and no group of a scale, past tiles and segments, with and without windows.
 */
static void every_cache_type_equals_the_reference(void **state)
{
	static const uint32_t n[] = {290, 45}, sizes[][2] = {{14, 6}, {33, 17}, {40, 72}, {64, 64}};
	static const enum weight_type types[] = {TYPE_BF16, TYPE_Q8_0, TYPE_F16};

	for (unsigned type = 0; type < 3; type++)
		for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			struct synthetic_spec spec = small;
			char name[48];
			snprintf(name, sizeof name, "%s cache, heads of %u and %u",
				 weight_type_info[types[type]].name, sizes[i][0], sizes[i][1]);
			spec.name = name;
			spec.kv = types[type];
			spec.matrix = TYPE_F16; /* of any width */
			spec.dk = sizes[i][0];
			spec.dv = sizes[i][1];
			spec.rotated = 8;
			spec.heads = 4 + i % 2 * 2;
			spec.kv_heads = 2;
			spec.window = i % 2 ? 100 : 0;
			run_spec(&spec, n, 2);
		}
}

static void query_groups_equal_the_reference(void **state)
{
	static const uint32_t n[] = {50, 40}, ratios[][2] = {{1, 1}, {3, 3}, {9, 3}, {8, 1}, {16, 2}};

	for (unsigned i = 0; i < 5; i++) {
		struct synthetic_spec spec = small;
		char name[32];
		snprintf(name, sizeof name, "%u heads on %u", ratios[i][0], ratios[i][1]);
		spec.name = name;
		spec.heads = ratios[i][0];
		spec.kv_heads = ratios[i][1];
		spec.dv = 32;
		run_spec(&spec, n, 2);
	}
}

static void shapes_of_architectures_equal_the_reference(void **state)
{
	static const uint32_t n[] = {70, 21};
	struct synthetic_spec gemma = small, gpt2 = small, capped = small, partial = small;

	gemma.name = "gemma3-like";
	gemma.window = 40;
	gemma.half_rope = gemma.head_norms = gemma.post_norms = true;
	gemma.act = ACT_GELU_TANH;
	gemma.embed_scale = 8.0f;
	gemma.dk = gemma.dv = 256;
	gpt2.name = "layer norms and biases";
	gpt2.layer_norms = gpt2.ungated = true;
	gpt2.act = ACT_GELU_ERF;
	capped.name = "softcaps, plus one, limit";
	capped.softcap = 5.0f;
	capped.logit_softcap = 3.0f;
	capped.plus_one = true;
	capped.act = ACT_GELU_TANH;
	capped.limit = 0.75f;
	partial.name = "partial rotation, relu2";
	partial.rotated = 8;
	partial.half_rope = partial.ungated = true;
	partial.act = ACT_RELU2;
	run_spec(&gemma, n, 2);
	run_spec(&gpt2, n, 2);
	run_spec(&capped, n, 2);
	run_spec(&partial, n, 2);
}

static void experts_equal_the_reference(void **state)
{
	static const uint32_t n[] = {40, 13};
	static const enum weight_type types[] = {TYPE_Q4_0, TYPE_F16, TYPE_Q8_0};

	for (unsigned i = 0; i < 3; i++) {
		struct synthetic_spec spec = small;
		spec.name = i == 2 ? "experts, sigmoid and bias" : "experts, softmax";
		spec.matrix = types[i];
		spec.experts = i == 1 ? 20 : 8;
		spec.used = i == 1 ? 5 : 2;
		spec.sigmoid = i == 2;
		spec.renormalise = i != 1;
		run_spec(&spec, n, 2);
	}
}

/* ---- faults ---- */

/* A NaN token in one sequence is a fault from its position on; its mate's bits and flags do not change. */
static void a_poisoned_row_is_a_fault_of_its_own(void **state)
{
	static const uint32_t n[] = {40, 36};
	static const enum weight_type types[] = {TYPE_Q4_1, TYPE_F32};
	enum { AT = 19 };

	for (unsigned i = 0; i < 2; i++) {
		struct synthetic model;
		struct synthetic_spec spec = small;
		struct play what;
		struct played got;
		uint32_t poisoned[TOKENS_MAX];

		spec.name = "poison";
		spec.matrix = types[i];
		synthetic_create(&model, &spec, 8);
		random_tokens(&model, n, 2, 4, &what);
		struct played want = reference(&model, &what);
		memcpy(poisoned, what.tokens[1], sizeof poisoned[0] * n[1]);
		poisoned[AT] = synthetic_poison(&model);
		what.tokens[1] = poisoned;
		what.chunk = 9;
		struct player player = open_subject(&model, 2, 4096);
		play(&player, &what, &got);
		compare(&model, &what, &got, 0, &want, 0, "mate of a poisoned sequence");
		for (uint32_t p = 0; p < n[1]; p++)
			assert_int_equal(got.faults[1][p], p >= AT);
		what.n[1] = AT;
		compare(&model, &what, &got, 1, &want, 1, "before the poison");
		player_close(&player);
		played_free(&got);
		played_free(&want);
		synthetic_destroy(&model);
	}
}

/* Whether keys of some `size` are faults; all of them or none. */
static bool are_faults(enum weight_type kv, float size)
{
	static const uint32_t n[] = {5};
	struct synthetic model;
	struct synthetic_spec spec = small;
	struct play what;
	struct played got;
	uint32_t faults = 0;

	spec.name = "overflow";
	spec.matrix = TYPE_F32;
	spec.kv = kv;
	synthetic_create(&model, &spec, 9);
	for (uint32_t i = 0; i < model.tape.n_ops; i++) /* the first norm feeds queries, keys and values */
		if (model.tape.ops[i].kind == TAPE_NORM) {
			((float *)model.raw[model.tape.ops[i].weight])[0] = size;
			break;
		}
	random_tokens(&model, n, 1, 4, &what);
	what.chunk = 5;
	struct player player = open_subject(&model, 1, 4096);
	play(&player, &what, &got);
	for (uint32_t p = 0; p < n[0]; p++)
		faults += got.faults[0][p];
	assert_true(faults == 0 || faults == n[0]);
	player_close(&player);
	played_free(&got);
	synthetic_destroy(&model);
	return faults;
}

/* Keys past 65,504, or 127 times that, do not fit: a fault, not an infinity. */
static void keys_too_large_for_the_cache_are_a_fault(void **state)
{
	assert_true(are_faults(TYPE_F16, 1e9f));
	assert_true(are_faults(TYPE_Q8_0, 1e12f));
	assert_false(are_faults(TYPE_Q8_0, 1e7f));
	assert_true(are_faults(TYPE_F16, 1e7f));
	assert_false(are_faults(TYPE_BF16, 1e12f));
}

/* ---- blocks and refusals ---- */

/* A copied block answers as its original does, a zeroed one does not. */
static void check_copies(enum weight_type kv)
{
	struct synthetic model;
	struct synthetic_spec spec = small;
	uint32_t token[33], position[33], sequence[33] = {0}, output = 32, table[2] = {3, 4};
	struct batch_sequence seq = {.rows = 33, .kv_len = 33};
	struct batch batch = {.rows = 33,
			      .sequences = 1,
			      .outputs = 1,
			      .token = token,
			      .position = position,
			      .sequence = sequence,
			      .seq = &seq,
			      .table = {table},
			      .table_stride = 2,
			      .output_row = &output};
	float want[61];

	spec.kv = kv;
	synthetic_create(&model, &spec, 2);
	struct player player = open_subject(&model, 1, 4096);
	for (uint32_t i = 0; i < 33; i++) {
		token[i] = i;
		position[i] = i;
	}
	assert_int_equal(program_step(player.program, &batch), STEP_DONE);
	memcpy(want, program_logits(player.program), sizeof want);
	assert_int_equal(program_copy_block(player.program, 0, 3, 7), 0);
	assert_int_equal(program_zero_block(player.program, 0, 3), 0);
	/* the last token again, over the copy */
	batch.rows = seq.rows = 1;
	batch.token = token + 32;
	batch.position = position + 32;
	output = 0;
	table[0] = 7;
	assert_int_equal(program_step(player.program, &batch), STEP_DONE);
	assert_memory_equal(want, program_logits(player.program), sizeof want);
	table[0] = 3;
	assert_int_equal(program_step(player.program, &batch), STEP_DONE);
	assert_memory_not_equal(want, program_logits(player.program), sizeof want);
	assert_int_equal(program_copy_block(player.program, 0, 3, player.limits.blocks[0]), -EINVAL);
	assert_int_equal(program_zero_block(player.program, 1, 3), -EINVAL);
	player_close(&player);
	synthetic_destroy(&model);
}

static void blocks_are_copied_and_zeroed(void **state)
{
	check_copies(TYPE_F16);
	check_copies(TYPE_BF16);
	check_copies(TYPE_Q8_0);
}

static void bad_batches_and_weights_are_refused(void **state)
{
	struct synthetic model;
	uint32_t token = 0, position = 0, sequence = 0, output = 0, table = 1;
	struct batch_sequence seq = {.rows = 1, .kv_len = 1};
	struct batch batch = {.rows = 1,
			      .sequences = 1,
			      .outputs = 1,
			      .token = &token,
			      .position = &position,
			      .sequence = &sequence,
			      .seq = &seq,
			      .table = {&table},
			      .table_stride = 1,
			      .output_row = &output};

	synthetic_create(&model, &small, 2);
	struct player player = open_subject(&model, 1, 4096);
	assert_int_equal(program_step(player.program, &batch), STEP_DONE);
	token = small.vocab;
	assert_int_equal(program_step(player.program, &batch), -EINVAL);
	token = 0;
	table = player.limits.blocks[0];
	assert_int_equal(program_step(player.program, &batch), -EINVAL);
	table = 1;
	seq.kv_len = small.context + 1;
	assert_int_equal(program_step(player.program, &batch), -EINVAL);
	for (uint32_t i = 0; i < model.tape.n_weights; i++) /* a Q8_0 matrix with an infinite scale */
		if (model.tape.weights[i].type == TYPE_Q8_0) {
			memcpy(model.raw[i], &(uint16_t){0x7c00}, 2);
			assert_int_equal(program_load(player.program, i, 0, 32, model.raw[i]), -EDOM);
			assert_int_equal(program_load(player.program, i, 3, 32, model.raw[i]), -EINVAL);
			break;
		}
	assert_int_equal(program_load(player.program, model.tape.n_weights, 0, 32, model.raw[0]), -EINVAL);
	player_close(&player);
	synthetic_destroy(&model);
}

static int isa_is_absent(const char *kind, const char *isa)
{
	struct backend_config config = {.kind = kind, .isa = isa, .threads = 1};
	struct backend *backend;
	char why[256] = "";
	int err = backend_open(&config, &backend, why, sizeof why);

	if (err == -ENODEV)
		printf("SKIP: %s %s: %s\n", kind, isa, why);
	if (!err)
		backend_close(backend);
	return err == -ENODEV;
}

int conformance_main(const char *kind, const char *isa)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_type_equals_the_reference),
	    cmocka_unit_test(every_type_can_be_embedded_and_tied),
	    cmocka_unit_test(odd_shapes_equal_the_reference),
	    cmocka_unit_test(products_stay_in_bounds),
	    cmocka_unit_test(rows_stay_in_bounds),
	    cmocka_unit_test(halves_stay_in_bounds),
	    cmocka_unit_test(attention_stays_in_bounds),
	    cmocka_unit_test(products_of_odd_shapes_equal_the_reference),
	    cmocka_unit_test(logits_of_odd_vocabularies_equal_the_reference),
	    cmocka_unit_test(outputs_get_what_they_want),
	    cmocka_unit_test(of_equal_logits_the_lowest_id_is_best),
	    cmocka_unit_test(logits_that_are_not_finite_are_faults_of_who_asks),
	    cmocka_unit_test(hidden_states_make_the_logits),
	    cmocka_unit_test(impossible_wants_are_refused),
	    cmocka_unit_test(contexts_cross_tiles_and_segments),
	    cmocka_unit_test(windows_equal_the_reference),
	    cmocka_unit_test(windows_skip_blocks_that_they_cannot_see),
	    cmocka_unit_test(every_cache_type_equals_the_reference),
	    cmocka_unit_test(query_groups_equal_the_reference),
	    cmocka_unit_test(shapes_of_architectures_equal_the_reference),
	    cmocka_unit_test(experts_equal_the_reference),
	    cmocka_unit_test(a_poisoned_row_is_a_fault_of_its_own),
	    cmocka_unit_test(keys_too_large_for_the_cache_are_a_fault),
	    cmocka_unit_test(blocks_are_copied_and_zeroed),
	    cmocka_unit_test(bad_batches_and_weights_are_refused),
	};

	subject_kind = kind;
	subject_isa = isa;
	if (isa_is_absent(kind, isa))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
