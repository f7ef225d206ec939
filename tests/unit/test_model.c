/* From a model file to its tape: operations, weights and where they lie, RoPE scalings, and what is refused.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/model/model.h"
#include "tests/unit/gguf_builder.h"
#include "tests/harness/scratch.h"

enum { LAYERS = 2, WIDTH = 32, HEADS = 2, KV_HEADS = 1, HEAD_DIM = 16, FFN = 96, VOCAB = 5, EXPERTS = 4 };

static char path[128];
static char why[512];

/* How a test's file differs from a plain one. */
struct variant {
	const char *architecture; /* NULL: llama */
	const char *without;      /* this key or tensor is left out */
	const char *wide;         /* this tensor has 32 more rows */
	const char *extra;        /* one more tensor of WIDTH floats */
	const char *quantised;    /* this tensor is Q8_0 */
	const char *scaling;      /* llama.rope.scaling.type */
	const char *key;          /* one more key, a u32 */
	uint32_t value;
	bool tied, experts, factors;
};

struct file {
	struct builder keys, tensors;
	uint64_t n_keys, n_tensors, data_bytes;
	const struct variant *variant;
};

static int is(const char *a, const char *b)
{
	return a && strcmp(a, b) == 0;
}

static void key_u32(struct file *f, const char *name, uint32_t value)
{
	if (is(f->variant->without, name))
		return;
	put_key_u32(&f->keys, name, value);
	f->n_keys++;
}

static void key_f32(struct file *f, const char *name, float value)
{
	if (is(f->variant->without, name))
		return;
	put_key_f32(&f->keys, name, value);
	f->n_keys++;
}

static void tensor(struct file *f, const char *name, uint64_t columns, uint64_t rows, uint64_t experts)
{
	uint64_t dims[3] = {columns, rows + (is(f->variant->wide, name) ? 32 : 0), experts};
	bool q8 = is(f->variant->quantised, name);
	if (is(f->variant->without, name))
		return;
	put_tensor(&f->tensors, name, experts > 1 ? 3 : rows ? 2 : 1, dims, q8 ? 8 : 0, f->data_bytes);
	uint64_t weights = columns * (rows ? dims[1] : 1) * experts;
	f->data_bytes += (q8 ? weights / 32 * 34 : weights * 4) + 31;
	f->data_bytes -= f->data_bytes % 32;
	f->n_tensors++;
}

static void layer_tensor(struct file *f, int layer, const char *part, uint64_t columns, uint64_t rows,
			 uint64_t experts)
{
	char name[64];
	snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
	tensor(f, name, columns, rows, experts);
}

static void add_layer(struct file *f, int l)
{
	layer_tensor(f, l, "attn_norm", WIDTH, 0, 1);
	layer_tensor(f, l, "attn_q", WIDTH, HEADS * HEAD_DIM, 1);
	layer_tensor(f, l, "attn_k", WIDTH, KV_HEADS * HEAD_DIM, 1);
	layer_tensor(f, l, "attn_v", WIDTH, KV_HEADS * HEAD_DIM, 1);
	layer_tensor(f, l, "attn_output", HEADS * HEAD_DIM, WIDTH, 1);
	layer_tensor(f, l, "ffn_norm", WIDTH, 0, 1);
	if (f->variant->experts) {
		layer_tensor(f, l, "ffn_gate_inp", WIDTH, EXPERTS, 1);
		layer_tensor(f, l, "ffn_gate_exps", WIDTH, FFN, EXPERTS);
		layer_tensor(f, l, "ffn_up_exps", WIDTH, FFN, EXPERTS);
		layer_tensor(f, l, "ffn_down_exps", FFN, WIDTH, EXPERTS);
		return;
	}
	layer_tensor(f, l, "ffn_gate", WIDTH, FFN, 1);
	layer_tensor(f, l, "ffn_up", WIDTH, FFN, 1);
	layer_tensor(f, l, "ffn_down", FFN, WIDTH, 1);
}

static void add_keys(struct file *f)
{
	const struct variant *v = f->variant;
	put_key_text(&f->keys, "general.architecture", v->architecture ? v->architecture : "llama");
	put_key_text(&f->keys, "general.name", "tiny");
	f->n_keys = 2;
	key_u32(f, "llama.context_length", 64);
	key_u32(f, "llama.block_count", LAYERS);
	key_u32(f, "llama.embedding_length", WIDTH);
	key_u32(f, "llama.feed_forward_length", FFN);
	key_u32(f, "llama.attention.head_count", HEADS);
	key_u32(f, "llama.attention.head_count_kv", KV_HEADS);
	key_f32(f, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	key_f32(f, "llama.rope.freq_base", 10000);
	if (v->experts) {
		key_u32(f, "llama.expert_count", EXPERTS);
		key_u32(f, "llama.expert_used_count", 2);
	}
	if (v->scaling) {
		put_key_text(&f->keys, "llama.rope.scaling.type", v->scaling);
		f->n_keys++;
		key_f32(f, "llama.rope.scaling.factor", 4);
		key_u32(f, "llama.rope.scaling.original_context_length", 512);
	}
	if (v->key)
		key_u32(f, v->key, v->value);
}

static void write_file(const struct variant *v)
{
	struct file f = {.variant = v};
	struct builder whole = {0};
	add_keys(&f);
	tensor(&f, "token_embd.weight", WIDTH, VOCAB, 1);
	for (int l = 0; l < LAYERS; l++)
		add_layer(&f, l);
	tensor(&f, "output_norm.weight", WIDTH, 0, 1);
	if (!v->tied)
		tensor(&f, "output.weight", WIDTH, VOCAB, 1);
	if (v->extra)
		tensor(&f, v->extra, WIDTH, 0, 1);
	uint64_t factors_at = f.data_bytes;
	if (v->factors)
		tensor(&f, "rope_freqs.weight", HEAD_DIM / 2, 0, 1);
	put_header(&whole, 3, f.n_tensors, f.n_keys);
	put(&whole, f.keys.data, f.keys.bytes);
	put(&whole, f.tensors.data, f.tensors.bytes);
	put_padding(&whole, 32);
	size_t data = whole.bytes;
	put_zeros(&whole, f.data_bytes);
	for (int i = 0; i < HEAD_DIM / 2 && v->factors; i++)
		memcpy(whole.data + data + factors_at + 4 * i, &(float){(float)(1 << i)}, 4);
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(whole.data, 1, whole.bytes, file), whole.bytes);
	fclose(file);
	free(f.keys.data);
	free(f.tensors.data);
	free(whole.data);
}

static struct model *open_variant(const struct variant *v)
{
	struct model *m = NULL;
	write_file(v);
	if (model_open(path, &m, why, sizeof why))
		fail_msg("%s", why);
	return m;
}

static void refuse(struct variant v, int error, const char *part)
{
	struct model *m = NULL;
	write_file(&v);
	assert_int_equal(model_open(path, &m, why, sizeof why), error);
	assert_null(m);
	if (!strstr(why, part) || !strstr(why, path))
		fail_msg("expected '%s' and the path in '%s'", part, why);
}

static void expect_ops(const struct tape *t, const uint8_t *kinds, size_t n)
{
	assert_int_equal(t->n_ops, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(t->ops[i].kind, kinds[i]);
}

#define LAYER_ATTENTION                                                                                   \
	TAPE_NORM, TAPE_MATMUL, TAPE_MATMUL, TAPE_MATMUL, TAPE_ROPE, TAPE_ROPE, TAPE_KV_WRITE, TAPE_ATTN, \
	    TAPE_MATMUL, TAPE_ADD
#define LAYER_DENSE   LAYER_ATTENTION, TAPE_NORM, TAPE_MATMUL, TAPE_MATMUL, TAPE_ACT, TAPE_MATMUL, TAPE_ADD
#define LAYER_EXPERTS LAYER_ATTENTION, TAPE_NORM, TAPE_ROUTE, TAPE_EXPERTS, TAPE_ADD

static void test_dense(void **state)
{
	static const uint8_t kinds[] = {TAPE_EMBED, LAYER_DENSE, LAYER_DENSE, TAPE_NORM, TAPE_LOGITS};
	struct model *m = open_variant(&(struct variant){0});
	const struct tape *t = model_tape(m);
	expect_ops(t, kinds, sizeof kinds);
	assert_int_equal(t->vocab, VOCAB);
	assert_int_equal(t->context, 64);
	assert_int_equal(t->n_weights, 3 + 9 * LAYERS);
	assert_int_equal(t->n_groups, 1);
	assert_int_equal(t->groups[0].kind, KV_FULL);
	assert_int_equal(t->groups[0].layers, LAYERS);
	assert_int_equal(t->groups[0].kv_heads, KV_HEADS);
	const struct tape_op *rope = &t->ops[5], *attention = &t->ops[8], *last = &t->ops[t->n_ops - 1];
	assert_int_equal(rope->u.rope.style, ROPE_PAIR);
	assert_int_equal(rope->u.rope.heads, HEADS);
	assert_int_equal(attention->u.attn.heads, HEADS);
	assert_true(attention->u.attn.scale == 0.25f);
	assert_int_equal(t->ops[8 + 16].u.attn.layer, 1);
	assert_string_equal(t->weights[last->weight].name, "output.weight");
	model_close(m);
}

static void test_tied(void **state)
{
	struct model *m = open_variant(&(struct variant){.tied = true});
	const struct tape *t = model_tape(m);
	assert_int_equal(t->ops[t->n_ops - 1].weight, t->ops[0].weight);
	assert_int_equal(t->n_weights, 2 + 9 * LAYERS);
	model_close(m);
}

static void test_experts(void **state)
{
	static const uint8_t kinds[] = {TAPE_EMBED, LAYER_EXPERTS, LAYER_EXPERTS, TAPE_NORM, TAPE_LOGITS};
	struct model *m = open_variant(&(struct variant){.experts = true});
	const struct tape *t = model_tape(m);
	expect_ops(t, kinds, sizeof kinds);
	const struct tape_op *route = &t->ops[12], *experts = &t->ops[13];
	assert_int_equal(route->u.route.experts, EXPERTS);
	assert_int_equal(route->u.route.used, 2);
	assert_true(route->u.route.renormalise && !route->u.route.sigmoid);
	assert_string_equal(t->weights[experts->weights[2]].name, "blk.0.ffn_down_exps.weight");
	assert_int_equal(t->weights[experts->weights[2]].experts, EXPERTS);
	assert_int_equal(t->weights[experts->weights[2]].k, FFN);
	model_close(m);
}

static void test_where_weights_lie(void **state)
{
	struct model *m = open_variant(&(struct variant){.quantised = "blk.1.ffn_down.weight"});
	const struct tape *t = model_tape(m);
	uint64_t total = 0;
	for (uint32_t i = 0; i < t->n_weights; i++) {
		const struct model_weight *w = &model_weights(m)[i];
		const struct gguf_tensor *tensor = gguf_find_tensor(model_gguf(m), t->weights[i].name);
		assert_int_equal(w->offset, tensor->offset);
		assert_int_equal(w->bytes, w->row_bytes * t->weights[i].n * t->weights[i].experts);
		if (strcmp(t->weights[i].name, "blk.1.ffn_down.weight") == 0)
			assert_int_equal(w->row_bytes, FFN / 32 * 34);
		total += w->bytes;
	}
	assert_int_equal(model_weight_bytes(m), total);
	model_close(m);
}

static void expect_frequencies(const struct variant *v, const double *wanted, double scale)
{
	struct model *m = open_variant(v);
	const struct tape *t = model_tape(m);
	assert_int_equal(t->n_tables, 1);
	assert_int_equal(t->tables[0].n, HEAD_DIM / 2);
	for (int i = 0; i < HEAD_DIM / 2; i++)
		assert_true(fabs(t->tables[0].values[i] - wanted[i]) <= 2e-7 * wanted[i]);
	assert_true(fabs(t->ops[8].u.attn.scale - scale) < 1e-6);
	model_close(m);
}

/* What transformers 5.24 computes for the same configuration. */
static void test_rope_scalings(void **state)
{
	static const double linear[] = {0.25,          0.079056941,    0.0250000004,   0.00790569466,
					0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05};
	static const double yarn[] = {1.0,           0.25693506,     0.0625,         0.0138349654,
				      0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05};
	double plain[8], factored[8];
	for (int i = 0; i < 8; i++) {
		plain[i] = 4 * linear[i];
		factored[i] = plain[i] / (1 << i);
	}
	expect_frequencies(&(struct variant){0}, plain, 0.25);
	expect_frequencies(&(struct variant){.scaling = "none"}, plain, 0.25);
	expect_frequencies(&(struct variant){.scaling = "linear"}, linear, 0.25);
	expect_frequencies(&(struct variant){.scaling = "yarn"}, yarn,
			   0.25 * 1.138629436111989 * 1.138629436111989);
	expect_frequencies(&(struct variant){.factors = true}, factored, 0.25);
}

static void test_refusals(void **state)
{
	struct model *m = NULL;
	refuse((struct variant){.architecture = "mamba"}, -ENOTSUP,
	       "'mamba' is not supported; known are gemma3, gpt2, llama, qwen2, qwen3");
	refuse((struct variant){.without = "llama.block_count"}, -EINVAL, "'llama.block_count' is absent");
	refuse((struct variant){.without = "llama.attention.layer_norm_rms_epsilon"}, -EINVAL,
	       "rms_epsilon' is absent");
	refuse((struct variant){.without = "token_embd.weight"}, -EINVAL, "'token_embd.weight' is absent");
	refuse((struct variant){.without = "blk.1.attn_k.weight"}, -EINVAL,
	       "'blk.1.attn_k.weight' is absent");
	refuse((struct variant){.without = "output_norm.weight"}, -EINVAL, "'output_norm.weight' is absent");
	refuse((struct variant){.wide = "blk.0.ffn_up.weight"}, -EINVAL,
	       "'blk.0.ffn_up.weight' has the shape (32, 128, 1), but (32, 96, 1) is wanted");
	refuse((struct variant){.quantised = "blk.0.attn_norm.weight"}, -ENOTSUP,
	       "vector 'blk.0.attn_norm.weight'");
	refuse((struct variant){.extra = "blk.0.attn_sub_norm.weight"}, -ENOTSUP,
	       "'blk.0.attn_sub_norm.weight' is not part");
	refuse((struct variant){.scaling = "longrope"}, -ENOTSUP, "'longrope'; none, linear and yarn");
	refuse((struct variant){.key = "llama.attention.sliding_window", .value = 7}, -ENOTSUP,
	       "sliding_window'");
	refuse((struct variant){.key = "llama.expert_count", .value = 5000}, -EINVAL,
	       "'llama.expert_count' is 5000");
	refuse((struct variant){.key = "llama.rope.dimension_count", .value = 15}, -EINVAL,
	       "15 rotated dimensions");
	/* Without the key there are as many key heads as heads, which these tensors do not have. */
	refuse((struct variant){.without = "llama.attention.head_count_kv"}, -EINVAL,
	       "'blk.0.attn_k.weight' has the shape (32, 16, 1), but (32, 32, 1) is wanted");
	assert_int_equal(model_open("/nonexistent", &m, why, sizeof why), -ENOENT);
	model_close(NULL);
}

static void test_describe(void **state)
{
	struct model_description d;
	struct model *m = open_variant(&(struct variant){.experts = true});
	model_describe(model_gguf(m), &d);
	assert_int_equal(d.name.bytes, 4);
	assert_memory_equal(d.name.data, "tiny", 4);
	assert_true(d.supported);
	assert_int_equal(d.layers, LAYERS);
	assert_int_equal(d.head_dim, HEAD_DIM);
	assert_int_equal(d.kv_heads, KV_HEADS);
	assert_int_equal(d.vocab, VOCAB);
	assert_int_equal(d.experts_used, 2);
	uint64_t layer = 2 * WIDTH + 2 * 32 * 32 + 2 * 16 * 32 + 4 * 32 + 3 * 96 * 32 * 4;
	assert_int_equal(d.parameters, 2 * 5 * 32 + 32 + LAYERS * layer);
	assert_int_equal(d.bytes, 4 * d.parameters);
	assert_int_equal(d.bytes_of_type[TYPE_F32], d.bytes);
	model_close(m);
}

static int make_file(void **state)
{
	close(mkstemp(scratch_path(path, sizeof path, "tokenring-model")));
	return 0;
}

static int remove_file(void **state)
{
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_dense),         cmocka_unit_test(test_tied),
	    cmocka_unit_test(test_experts),       cmocka_unit_test(test_where_weights_lie),
	    cmocka_unit_test(test_rope_scalings), cmocka_unit_test(test_refusals),
	    cmocka_unit_test(test_describe),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
