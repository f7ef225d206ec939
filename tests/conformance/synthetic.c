#include "tests/conformance/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/formats.h"

/* ---- weights ---- */

/* Offsets of a block's f16 scale and minimum (-1: none), and the root mean square of what the scale
 * multiplies when all other bits are random. */
static const struct {
	int d, m;
	float spread;
} halves[TYPE_COUNT] = {
    [TYPE_Q4_0] = {0, -1, 4.6f},     [TYPE_Q4_1] = {0, 2, 8.8f},   [TYPE_Q5_0] = {0, -1, 9.2f},
    [TYPE_Q5_1] = {0, 2, 18.0f},     [TYPE_Q8_0] = {0, -1, 74.0f}, [TYPE_Q2_K] = {80, 82, 16.0f},
    [TYPE_Q3_K] = {108, -1, 43.0f},  [TYPE_Q4_K] = {0, 2, 320.0f}, [TYPE_Q5_K] = {0, 2, 660.0f},
    [TYPE_Q6_K] = {208, -1, 1370.0f}};

void synthetic_halves(enum weight_type type, int *ret_d, int *ret_m)
{
	*ret_d = halves[type].d;
	*ret_m = halves[type].m;
}

/* Uniform in [-1, 1). */
static float uniform(uint64_t *random)
{
	return (float)((int64_t)(synthetic_random(random) >> 40) - (1 << 23)) / (float)(1 << 23);
}

static void put_half(uint8_t *at, float value)
{
	uint16_t half = f16_from_f32(value);
	memcpy(at, &half, sizeof half);
}

static void fill_blocks(enum weight_type type, uint8_t *raw, uint64_t bytes, float size, uint64_t *random)
{
	uint32_t block_bytes = weight_type_info[type].block_bytes;

	for (uint64_t i = 0; i < bytes; i++)
		raw[i] = (uint8_t)synthetic_random(random);
	for (uint8_t *block = raw; block < raw + bytes; block += block_bytes) {
		float d = size / halves[type].spread * (1.0f + 0.5f * uniform(random));
		/* Legacy minima lie below zero, those of K-quants are subtracted. */
		float m = halves[type].m == 2 && type < TYPE_Q2_K ? -0.8f * size : d;
		put_half(block + halves[type].d, d);
		if (halves[type].m >= 0)
			put_half(block + halves[type].m, m);
	}
}

static void fill_floats(enum weight_type type, uint8_t *raw, uint64_t n, float size, float middle,
			uint64_t *random)
{
	for (uint64_t i = 0; i < n; i++) {
		float value = middle + 1.7f * size * uniform(random);
		uint16_t half = type == TYPE_F16 ? f16_from_f32(value) : bf16_from_f32(value);
		if (type == TYPE_F32)
			memcpy(raw + 4 * i, &value, sizeof value);
		else
			memcpy(raw + 2 * i, &half, sizeof half);
	}
}

static void *random_weight(const struct tape_weight *weight, uint64_t *random)
{
	uint64_t n = (uint64_t)weight->experts * weight->n * weight->k;
	uint64_t bytes = weight_type_bytes(weight->type, n);
	uint8_t *raw = malloc(bytes);
	bool is_vector = weight->n == 1;

	assert_non_null(raw);
	if (weight_type_quantised(weight->type))
		fill_blocks(weight->type, raw, bytes, 1.3f / sqrtf((float)weight->k), random);
	else
		fill_floats(weight->type, raw, n, is_vector ? 0.3f : 1.3f / sqrtf((float)weight->k),
			    is_vector ? 0.8f : 0.0f, random);
	return raw;
}

static void poison_last_row(const struct synthetic *model, uint16_t embedding)
{
	const struct tape_weight *weight = &model->tape.weights[embedding];
	float *row = (float *)model->raw[embedding] + (size_t)(weight->n - 1) * weight->k;

	if (weight->type == TYPE_F32 && !model->spec.tied)
		row[weight->k / 2] = NAN;
}

/* ---- tape ---- */

struct build {
	const struct synthetic_spec *spec;
	struct tape *tape;
	uint16_t stream, normed, q, k, v, attended, projected, gate, up, hidden, routed, last;
	uint16_t frequencies;
};

static uint16_t index_of(int result)
{
	assert_true(result >= 0);
	return (uint16_t)result;
}

static uint16_t weight(struct build *b, enum weight_type type, uint32_t experts, uint32_t n, uint32_t k)
{
	char name[TAPE_NAME_BYTES];

	snprintf(name, sizeof name, "w%u", b->tape->n_weights);
	return index_of(tape_add_weight(b->tape, name, type, experts, n, k));
}

static struct tape_op blank(enum tape_op_kind kind, uint16_t in0, uint16_t in1, uint16_t out)
{
	return (struct tape_op){.kind = (uint8_t)kind,
				.in = {in0, in1},
				.out = {out},
				.weight = TAPE_NONE,
				.bias = TAPE_NONE,
				.weights = {TAPE_NONE, TAPE_NONE, TAPE_NONE}};
}

static void add(struct build *b, const struct tape_op *op)
{
	index_of(tape_add_op(b->tape, op));
}

static void add_norm(struct build *b, uint16_t in, uint16_t out, uint32_t groups)
{
	uint32_t width = b->tape->buffers[in].width / groups;
	struct tape_op op = blank(TAPE_NORM, in, TAPE_NONE, out);

	op.weight = weight(b, TYPE_F32, 1, 1, width);
	if (b->spec->layer_norms)
		op.bias = weight(b, TYPE_F32, 1, 1, width);
	op.u.norm.kind = b->spec->layer_norms ? NORM_LAYER : NORM_RMS;
	op.u.norm.eps = 1e-5f;
	op.u.norm.weight_plus_one = b->spec->plus_one;
	op.u.norm.groups = groups;
	add(b, &op);
}

static void add_matmul(struct build *b, uint16_t in, uint16_t out)
{
	uint32_t n = b->tape->buffers[out].width, k = b->tape->buffers[in].width;
	struct tape_op op = blank(TAPE_MATMUL, in, TAPE_NONE, out);

	op.weight = weight(b, b->spec->matrix, 1, n, k);
	if (b->spec->layer_norms)
		op.bias = weight(b, TYPE_F32, 1, 1, n);
	op.u.matmul.heads = 1;
	add(b, &op);
}

static void add_rope(struct build *b, uint16_t x, uint32_t heads)
{
	struct tape_op op = blank(TAPE_ROPE, x, TAPE_NONE, x);

	op.u.rope.style = b->spec->half_rope ? ROPE_HALF : ROPE_PAIR;
	op.u.rope.table = b->frequencies;
	op.u.rope.heads = heads;
	op.u.rope.head_dim = b->spec->dk;
	op.u.rope.dims = b->spec->rotated ? b->spec->rotated : b->spec->dk;
	op.u.rope.first = b->spec->dk - op.u.rope.dims;
	add(b, &op);
}

static void add_add(struct build *b, uint16_t what)
{
	if (b->spec->post_norms)
		add_norm(b, what, what, 1);
	struct tape_op op = blank(TAPE_ADD, b->stream, what, b->stream);
	add(b, &op);
}

static void add_attention(struct build *b, uint32_t layer)
{
	const struct synthetic_spec *s = b->spec;
	bool windowed = s->window && layer % 2;
	struct tape_op write = blank(TAPE_KV_WRITE, b->k, b->v, TAPE_NONE);
	struct tape_op attn = blank(TAPE_ATTN, b->q, TAPE_NONE, b->attended);

	add_norm(b, b->stream, b->normed, 1);
	add_matmul(b, b->normed, b->q);
	add_matmul(b, b->normed, b->k);
	add_matmul(b, b->normed, b->v);
	if (s->head_norms) {
		add_norm(b, b->q, b->q, s->heads);
		add_norm(b, b->k, b->k, s->kv_heads);
	}
	add_rope(b, b->q, s->heads);
	add_rope(b, b->k, s->kv_heads);
	write.u.attn.group = windowed;
	write.u.attn.layer = (uint16_t)(s->window ? layer / 2 : layer);
	write.u.attn.sinks = TAPE_NONE;
	attn.u.attn = write.u.attn;
	attn.u.attn.heads = s->heads;
	attn.u.attn.scale = 1.5f / sqrtf((float)s->dk);
	attn.u.attn.softcap = s->softcap;
	add(b, &write);
	add(b, &attn);
	add_matmul(b, b->attended, b->projected);
	add_add(b, b->projected);
}

static void add_dense(struct build *b)
{
	struct tape_op op = blank(TAPE_ACT, b->gate, b->spec->ungated ? TAPE_NONE : b->up, b->hidden);

	op.u.act.kind = (uint8_t)b->spec->act;
	op.u.act.gated = !b->spec->ungated;
	op.u.act.limit = b->spec->limit;
	add_matmul(b, b->normed, b->gate);
	if (!b->spec->ungated)
		add_matmul(b, b->normed, b->up);
	add(b, &op);
	add_matmul(b, b->hidden, b->projected);
}

static void add_experts(struct build *b)
{
	const struct synthetic_spec *s = b->spec;
	struct tape_op route = blank(TAPE_ROUTE, b->normed, TAPE_NONE, b->routed);
	struct tape_op experts = blank(TAPE_EXPERTS, b->normed, b->routed, b->projected);

	route.weight = weight(b, TYPE_F32, 1, s->experts, s->width);
	route.u.route.experts = s->experts;
	route.u.route.used = s->used;
	route.u.route.sigmoid = s->sigmoid;
	route.u.route.renormalise = s->renormalise;
	route.u.route.scale = s->renormalise ? 1.0f : 1.75f;
	if (s->sigmoid)
		route.bias = weight(b, TYPE_F32, 1, 1, s->experts);
	experts.u.route = route.u.route;
	experts.u.route.act = (uint8_t)s->act;
	experts.weights[0] = weight(b, s->matrix, s->experts, s->hidden, s->width);
	experts.weights[1] = weight(b, s->matrix, s->experts, s->hidden, s->width);
	experts.weights[2] = weight(b, s->matrix, s->experts, s->width, s->hidden);
	add(b, &route);
	add(b, &experts);
}

static void add_groups(struct build *b)
{
	const struct synthetic_spec *s = b->spec;
	struct tape_group full = {.kind = KV_FULL,
				  .layers = s->window ? (s->layers + 1) / 2 : s->layers,
				  .kv_heads = s->kv_heads,
				  .dk = s->dk,
				  .dv = s->dv};

	b->tape->groups[b->tape->n_groups++] = full;
	if (!s->window)
		return;
	full.kind = KV_WINDOW;
	full.layers = s->layers / 2;
	full.window = s->window;
	b->tape->groups[b->tape->n_groups++] = full;
}

static void add_buffers(struct build *b)
{
	const struct synthetic_spec *s = b->spec;
	struct tape *t = b->tape;
	uint32_t q = s->heads * s->dk, k = s->kv_heads * s->dk, v = s->kv_heads * s->dv;

	b->stream = index_of(tape_add_buffer(t, ROW_TOKEN, s->width));
	b->normed = index_of(tape_add_buffer(t, ROW_TOKEN, s->width));
	/* One buffer with three views, as a fused projection has it. */
	uint16_t qkv = index_of(tape_add_buffer(t, ROW_TOKEN, q + k + v));
	b->q = index_of(tape_add_view(t, qkv, 0, q));
	b->k = index_of(tape_add_view(t, qkv, q, k));
	b->v = index_of(tape_add_view(t, qkv, q + k, v));
	b->attended = index_of(tape_add_buffer(t, ROW_TOKEN, s->heads * s->dv));
	b->projected = index_of(tape_add_buffer(t, ROW_TOKEN, s->width));
	b->gate = index_of(tape_add_buffer(t, ROW_TOKEN, s->hidden));
	b->up = index_of(tape_add_buffer(t, ROW_TOKEN, s->hidden));
	b->hidden = index_of(tape_add_buffer(t, ROW_TOKEN, s->hidden));
	if (s->experts)
		b->routed = index_of(tape_add_buffer(t, ROW_TOKEN, 2 * s->used));
	b->last = index_of(tape_add_buffer(t, ROW_OUTPUT, s->width));
}

static void add_frequencies(struct build *b)
{
	uint32_t pairs = (b->spec->rotated ? b->spec->rotated : b->spec->dk) / 2;
	float values[512];

	assert_true(pairs <= 512);
	for (uint32_t i = 0; i < pairs; i++)
		values[i] = (float)pow(10000.0, -(double)i / pairs);
	b->frequencies = index_of(tape_add_table(b->tape, values, pairs));
}

static uint16_t build_tape(struct tape *tape, const struct synthetic_spec *spec)
{
	struct build b = {.spec = spec, .tape = tape};

	tape->vocab = spec->vocab;
	tape->context = spec->context;
	tape->width = spec->width;
	add_buffers(&b);
	add_groups(&b);
	add_frequencies(&b);
	struct tape_op embed = blank(TAPE_EMBED, TAPE_NONE, TAPE_NONE, b.stream);
	embed.weight = weight(&b, spec->embed, 1, spec->vocab, spec->width);
	embed.u.embed.scale = spec->embed_scale > 0 ? spec->embed_scale : 1.0f;
	add(&b, &embed);
	for (uint32_t layer = 0; layer < spec->layers; layer++) {
		add_attention(&b, layer);
		add_norm(&b, b.stream, b.normed, 1);
		if (spec->experts)
			add_experts(&b);
		else
			add_dense(&b);
		add_add(&b, b.projected);
	}
	add_norm(&b, b.stream, b.last, 1);
	struct tape_op logits = blank(TAPE_LOGITS, b.last, TAPE_NONE, TAPE_NONE);
	logits.weight = spec->tied ? embed.weight : weight(&b, spec->matrix, 1, spec->vocab, spec->width);
	logits.u.logits.scale = spec->logit_scale > 0 ? spec->logit_scale : 1.0f;
	logits.u.logits.softcap = spec->logit_softcap;
	add(&b, &logits);
	return embed.weight;
}

void synthetic_create(struct synthetic *model, const struct synthetic_spec *spec, uint64_t seed)
{
	char why[256] = "";

	*model = (struct synthetic){.spec = *spec};
	uint16_t embedding = build_tape(&model->tape, spec);
	if (tape_check(&model->tape, why, sizeof why) < 0)
		fail_msg("%s: %s", spec->name, why);
	model->raw = calloc(model->tape.n_weights, sizeof *model->raw);
	assert_non_null(model->raw);
	for (uint32_t i = 0; i < model->tape.n_weights; i++)
		model->raw[i] = random_weight(&model->tape.weights[i], &seed);
	poison_last_row(model, embedding);
}

void synthetic_destroy(struct synthetic *model)
{
	for (uint32_t i = 0; i < model->tape.n_weights; i++)
		free(model->raw[i]);
	free(model->raw);
	tape_free(&model->tape);
}

void synthetic_load(const struct synthetic *model, struct program *program, uint32_t rows)
{
	for (uint32_t i = 0; i < model->tape.n_weights; i++) {
		const struct tape_weight *w = &model->tape.weights[i];
		uint64_t row_bytes = weight_type_bytes(w->type, w->k);
		for (uint32_t e = 0; e < w->experts; e++)
			for (uint32_t n = 0; n < w->n; n += rows) {
				uint32_t some = w->n - n < rows ? w->n - n : rows, row = e * w->n + n;
				const uint8_t *raw = (const uint8_t *)model->raw[i] + row * row_bytes;
				assert_int_equal(program_load(program, i, row, some, raw), 0);
			}
	}
}
