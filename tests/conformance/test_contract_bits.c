/* The bits of this version of the contract, pinned: the same from every compiler, optimisation level and
 * sanitizer, with and without FMA instructions. Whoever changes them on purpose changes CONTRACT_VERSION. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "tests/conformance/player.h"

static const struct synthetic_spec dense = {.name = "dense",
					    .layers = 3,
					    .width = 256,
					    .heads = 4,
					    .kv_heads = 2,
					    .dk = 64,
					    .dv = 64,
					    .hidden = 512,
					    .vocab = 97,
					    .context = 64,
					    .embed = TYPE_F32,
					    .window = 24,
					    .head_norms = true};

static uint64_t fnv(uint64_t hash, const void *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
	return hash;
}

static uint64_t bits_of(const struct synthetic_spec *spec, bool portable)
{
	struct synthetic model;
	struct player player;
	struct played played;
	struct play what = {.sequences = 1, .n = {50}, .chunk = 13};
	uint32_t tokens[50];
	char why[256] = "";

	synthetic_create(&model, spec, 1);
	for (uint32_t i = 0; i < 50; i++)
		tokens[i] = i * 37 % (spec->vocab - 1);
	what.tokens[0] = tokens;
	assert_int_equal(player_open(&player, &model, "ref-int8", "auto", 1, 32, why, sizeof why), 0);
	if (portable)
		((struct ref_backend *)player.backend)->step = ref_step_portable;
	play(&player, &what, &played);
	uint64_t hash = fnv(0xcbf29ce484222325u, played.logits[0], sizeof(float) * 50 * spec->vocab);
	played_free(&played);
	player_close(&player);
	synthetic_destroy(&model);
	return hash;
}

static void check(const struct synthetic_spec *spec, uint64_t want)
{
	uint64_t chosen = bits_of(spec, false), portable = bits_of(spec, true);

	if (chosen != want || portable != want)
		fail_msg("%s, %s: chosen build 0x%016llx, portable build 0x%016llx, wanted 0x%016llx",
			 spec->name, CONTRACT_VERSION, (unsigned long long)chosen,
			 (unsigned long long)portable, (unsigned long long)want);
}

static void dense_models_have_these_bits(void **state)
{
	static const struct {
		enum weight_type type;
		enum tape_act act;
		uint64_t bits;
	} want[] = {
	    {TYPE_Q4_1, ACT_SILU, 0xb4adb272dfd9936du},     {TYPE_Q6_K, ACT_GELU_TANH, 0xcc6763c9f0146c7au},
	    {TYPE_Q2_K, ACT_GELU_ERF, 0x9e9a3c4b9c9f95d3u}, {TYPE_Q4_K, ACT_RELU2, 0x49aaa82e10f5cf9eu},
	    {TYPE_BF16, ACT_SILU, 0xc5723870aaf19d9fu},
	};

	for (unsigned i = 0; i < sizeof want / sizeof want[0]; i++) {
		struct synthetic_spec spec = dense;
		spec.name = weight_type_info[want[i].type].name;
		spec.matrix = want[i].type;
		spec.act = want[i].act;
		check(&spec, want[i].bits);
	}
}

static void other_operations_have_these_bits(void **state)
{
	struct synthetic_spec experts = dense, layers = dense;

	experts.name = "experts";
	experts.matrix = TYPE_Q5_0;
	experts.experts = 8;
	experts.used = 3;
	experts.renormalise = true;
	experts.softcap = 20.0f;
	layers.name = "layer norms";
	layers.matrix = TYPE_Q8_0;
	layers.layer_norms = layers.ungated = true;
	check(&experts, 0xb2a6a15993dc32d7u);
	check(&layers, 0x57731ef2d4f5e7d1u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(dense_models_have_these_bits),
	    cmocka_unit_test(other_operations_have_these_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
