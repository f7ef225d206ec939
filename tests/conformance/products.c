/* Products of every type against ref-int8, with values that real models seldom have: scales that are zero,
 * subnormal or the largest half; quants all at one end; activations that are zero, subnormal, huge, ties or
 * one spike. Two products of the same input write neighbouring columns, the right ones first, so that one
 * that writes past its last column spoils the other. */
#include "tests/conformance/conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/formats.h"
#include "tests/conformance/fence.h"
#include "tests/conformance/synthetic.h"

enum { ROWS = 64, VOCAB_MAX = 256, WEIGHTS_MAX = 8 };

/* ---- hostile values ---- */

static uint16_t hostile_half(uint64_t *random)
{
	static const uint16_t edge[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x3c00};
	uint64_t r = synthetic_random(random);

	if (r % 3 == 0)
		return edge[r / 3 % 8];
	return (uint16_t)(r >> 32 & 0x87ff) | (uint16_t)(4 + (r >> 8) % 11) << 10; /* 2^-11 .. 1 */
}

static void put_half(uint8_t *at, uint16_t half)
{
	memcpy(at, &half, sizeof half);
}

/* Every fifth row is random in all bits; others have all quants (and sub-scales) at one end. */
static void fill_row(enum weight_type type, uint8_t *raw, uint32_t bytes, uint32_t row, uint64_t *random)
{
	static const uint8_t fill[] = {0x00, 0xff, 0x80, 0x7f};
	uint32_t block_bytes = weight_type_info[type].block_bytes;
	int d, m;

	for (uint32_t i = 0; i < bytes; i++)
		raw[i] = row % 5 ? fill[row % 5 - 1] : (uint8_t)synthetic_random(random);
	synthetic_halves(type, &d, &m);
	for (uint32_t at = 0; at < bytes; at += block_bytes) {
		put_half(raw + at + d, hostile_half(random));
		if (m >= 0)
			put_half(raw + at + m, hostile_half(random));
	}
}

static float hostile_float(uint64_t *random)
{
	static const float edge[] = {0.0f, -0.0f, 1e-40f, -1e-45f, 1.2e-38f, 3e18f, -3e18f, 1.0f};
	uint64_t r = synthetic_random(random);

	if (r % 4 == 0)
		return edge[r / 4 % 8];
	return ((float)(r >> 40) / (float)(1 << 23) - 1.0f) * ldexpf(1.0f, (int)(r >> 8 & 31) - 24);
}

static void *hostile_matrix(const struct tape_weight *weight, uint64_t *random)
{
	uint32_t row_bytes = (uint32_t)weight_type_bytes(weight->type, weight->k);
	uint8_t *raw = malloc((size_t)weight->n * row_bytes);

	assert_non_null(raw);
	for (uint32_t n = 0; n < weight->n; n++) {
		uint8_t *row = raw + (size_t)n * row_bytes;
		if (weight_type_quantised(weight->type)) {
			fill_row(weight->type, row, row_bytes, n, random);
			continue;
		}
		for (uint32_t k = 0; k < weight->k; k++) {
			float value = hostile_float(random);
			if (weight->type == TYPE_F32)
				memcpy(row + 4 * k, &value, sizeof value);
			else
				put_half(row + 2 * k, weight->type == TYPE_F16 ? hostile_half(random)
									       : bf16_from_f32(value));
		}
	}
	return raw;
}

/* Token t's embedding; t % 8 says what is odd about it. */
static void hostile_row(float *x, uint32_t k, uint32_t t, uint64_t *random)
{
	static const float size[] = {1.0f, 0.0f, 1e-30f, 1e-38f, 1e9f, 1.0f, 127.0f, 1e5f};

	for (uint32_t i = 0; i < k; i++) {
		float u = (float)(synthetic_random(random) >> 40) / (float)(1 << 23) - 1.0f;
		x[i] = size[t % 8] * (t == 4 ? 1e21f : 1.0f) * u; /* token 4 overflows: a fault */
		if (t % 8 == 5)                                   /* every value at an end */
			x[i] = t / 8 % 2 ? 1.0f : -1.0f;
		if (t % 8 == 6) /* ties: the largest is 127, so that x * (127 / amax) is x */
			x[i] = i % 32 ? floorf(x[i]) + 0.5f : 127.0f;
		if (t % 8 == 7) /* a spike in each block, the rest rounds to zero or is subnormal */
			x[i] = i % 32 == t / 8 ? x[i] : 1e-39f * u;
	}
}

static void *hostile_embedding(const struct tape_weight *weight, uint64_t *random)
{
	float *raw = malloc(sizeof(float) * weight->n * weight->k);

	assert_non_null(raw);
	for (uint32_t t = 0; t < weight->n; t++)
		hostile_row(raw + (size_t)t * weight->k, weight->k, t, random);
	return raw;
}

static void *filled(const struct tape_weight *weight, float value)
{
	float *raw = malloc(sizeof(float) * weight->n * weight->k);

	assert_non_null(raw);
	for (size_t i = 0; i < (size_t)weight->n * weight->k; i++)
		raw[i] = value;
	return raw;
}

static void *identity(const struct tape_weight *weight)
{
	float *raw = filled(weight, 0.0f);

	for (uint32_t i = 0; i < weight->n; i++)
		raw[(size_t)i * weight->k + i] = 1.0f;
	return raw;
}

/* ---- the tape ---- */

struct products {
	struct tape tape;
	void *raw[WEIGHTS_MAX];
	uint64_t random;
	char name[64];
};

static uint16_t checked(int index)
{
	assert_true(index >= 0);
	return (uint16_t)index;
}

static struct tape_op blank(enum tape_op_kind kind, uint16_t in, uint16_t out, uint16_t weight)
{
	return (struct tape_op){.kind = (uint8_t)kind,
				.in = {in, TAPE_NONE},
				.out = {out},
				.weight = weight,
				.bias = TAPE_NONE,
				.weights = {TAPE_NONE, TAPE_NONE, TAPE_NONE}};
}

static uint16_t add_weight(struct products *p, enum weight_type type, uint32_t n, uint32_t k)
{
	return checked(tape_add_weight(&p->tape, "w", type, 1, n, k));
}

static uint16_t add_embedding(struct products *p, uint32_t k)
{
	uint16_t x = checked(tape_add_buffer(&p->tape, ROW_TOKEN, k));
	struct tape_op op = blank(TAPE_EMBED, TAPE_NONE, x, add_weight(p, TYPE_F32, VOCAB_MAX, k));

	p->raw[op.weight] = hostile_embedding(&p->tape.weights[op.weight], &p->random);
	op.u.embed.scale = 1.0f;
	checked(tape_add_op(&p->tape, &op));
	return x;
}

static void add_product(struct products *p, enum weight_type type, uint16_t x, uint16_t y, bool bias)
{
	uint32_t n = p->tape.buffers[y].width, k = p->tape.buffers[x].width;
	struct tape_op op = blank(TAPE_MATMUL, x, y, add_weight(p, type, n, k));

	p->raw[op.weight] = hostile_matrix(&p->tape.weights[op.weight], &p->random);
	if (bias) {
		op.bias = add_weight(p, TYPE_F32, 1, n);
		p->raw[op.bias] = filled(&p->tape.weights[op.bias], 0.25f);
	}
	op.u.matmul.heads = 1;
	checked(tape_add_op(&p->tape, &op));
}

/* Only a norm takes rows of tokens to rows of outputs. This one changes nothing between 2^-66 and 2^47: its
 * epsilon of 2^120 drowns the sum of squares, so it multiplies by 2^-60, and then by its weights. */
static uint16_t add_gather(struct products *p, uint16_t x)
{
	uint32_t width = p->tape.buffers[x].width;
	uint16_t y = checked(tape_add_buffer(&p->tape, ROW_OUTPUT, width));
	struct tape_op op = blank(TAPE_NORM, x, y, add_weight(p, TYPE_F32, 1, width));

	p->raw[op.weight] = filled(&p->tape.weights[op.weight], 0x1p60f);
	op.u.norm.kind = NORM_RMS;
	op.u.norm.eps = 0x1p120f;
	op.u.norm.groups = 1;
	checked(tape_add_op(&p->tape, &op));
	return y;
}

/* Of type F32: the identity, which shows its input. */
static void add_logits(struct products *p, enum weight_type type, uint16_t y, uint32_t vocab)
{
	struct tape_op op =
	    blank(TAPE_LOGITS, y, TAPE_NONE, add_weight(p, type, vocab, p->tape.buffers[y].width));
	const struct tape_weight *weight = &p->tape.weights[op.weight];

	p->raw[op.weight] = type == TYPE_F32 && weight->n == weight->k ? identity(weight)
								       : hostile_matrix(weight, &p->random);
	op.u.logits.scale = 1.0f;
	checked(tape_add_op(&p->tape, &op));
	p->tape.vocab = vocab;
	p->tape.width = weight->k;
	p->tape.context = ROWS;
}

static void check_tape(struct products *p)
{
	char why[256] = "";

	if (tape_check(&p->tape, why, sizeof why) < 0)
		fail_msg("%s: %s", p->name, why);
}

static void products_free(struct products *p)
{
	for (uint32_t i = 0; i < p->tape.n_weights; i++)
		free(p->raw[i]);
	tape_free(&p->tape);
}

/* ---- running ---- */

struct runner {
	struct backend *backend;
	struct program *program;
	const struct products *products;
};

static struct runner open_runner(const struct products *p, const char *kind, const char *isa,
				 uint32_t threads)
{
	struct backend_config config = {
	    .kind = kind, .isa = isa, .threads = threads, .memory = &fenced_memory};
	struct tape_limits limits = {
	    .rows = ROWS, .sequences = 1, .outputs = ROWS, .context = ROWS, .kv_type = TYPE_F16};
	struct runner r = {.products = p};
	char why[256] = "";

	if (backend_open(&config, &r.backend, why, sizeof why) < 0 ||
	    program_compile(r.backend, &p->tape, &limits, &r.program, why, sizeof why) < 0)
		fail_msg("%s %s, %s: %s", kind, isa, p->name, why);
	for (uint32_t i = 0; i < p->tape.n_weights; i++)
		assert_int_equal(program_load(r.program, i, 0, p->tape.weights[i].n, p->raw[i]), 0);
	return r;
}

static void close_runner(struct runner *r)
{
	program_close(r->program);
	backend_close(r->backend);
}

/* Tokens [first, first + rows), around the end of the vocabulary. */
static void step(struct runner *r, uint32_t first, uint32_t rows)
{
	uint32_t token[ROWS], position[ROWS], sequence[ROWS] = {0}, output[ROWS];
	struct batch_sequence seq = {.rows = rows, .kv_len = rows};
	struct batch batch = {.rows = rows,
			      .sequences = 1,
			      .outputs = rows,
			      .token = token,
			      .position = position,
			      .sequence = sequence,
			      .seq = &seq,
			      .output_row = output};

	for (uint32_t i = 0; i < rows; i++) {
		token[i] = (first + i) % ROWS;
		position[i] = output[i] = i;
	}
	assert_int_equal(program_step(r->program, &batch), STEP_DONE);
}

/* Rows without a fault have the reference's bits; a fault here is a fault there. Returns how many had none.
 */
static uint32_t compare(const struct runner *got, const struct runner *want, uint32_t first, uint32_t rows)
{
	const struct products *p = got->products;
	size_t vocab = p->tape.vocab;
	const float *a = program_logits(got->program), *b = program_logits(want->program);
	uint32_t sound = 0;

	for (uint32_t i = 0; i < rows; i++, a += vocab) {
		uint32_t token = (first + i) % ROWS;
		bool fault = program_faults(want->program)[token];
		const float *expected = b + token * vocab;
		if (program_faults(got->program)[i] != fault)
			fail_msg("%s, %u rows: row %u of token %u %s a fault", p->name, rows, i, token,
				 fault ? "should be" : "is");
		for (size_t n = 0; n < vocab && !fault; n++)
			if (memcmp(&a[n], &expected[n], sizeof *a))
				fail_msg("%s, %u rows: token %u, output %zu: %a, reference %a", p->name, rows,
					 token, n, (double)a[n], (double)expected[n]);
		sound += !fault;
	}
	return sound;
}

static void run_products(const struct products *p)
{
	static const uint32_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 64};
	struct runner want = open_runner(p, "ref-int8", "auto", 1);
	uint32_t most = strncmp(subject_kind, "ref", 3) ? 4 : 1, sound = 0;

	step(&want, 0, ROWS);
	for (uint32_t threads = 1; threads <= most; threads += threads) {
		struct runner got = open_runner(p, subject_kind, subject_isa, threads);
		for (uint32_t i = 0, first = 0; i < sizeof rows / sizeof rows[0]; i++, first += 11) {
			step(&got, first, rows[i]);
			sound += compare(&got, &want, first, rows[i]);
		}
		close_runner(&got);
	}
	close_runner(&want);
	if (!sound)
		fail_msg("%s: nothing but faults", p->name);
}

/* ---- tests ---- */

struct shape {
	uint32_t n[2], k; /* k in units of the type's block, or columns of a float type */
};

static uint32_t columns(enum weight_type type, uint32_t k)
{
	uint32_t block = weight_type_info[type].block_weights;
	return block == 1 ? k : block == 32 ? (k + 31) / 32 * 32 : (k + 255) / 256 * 256;
}

static void run_shape(enum weight_type type, const struct shape *shape)
{
	struct products p = {.random = 77 + (uint64_t)type};
	uint32_t k = columns(type, shape->k), width = shape->n[0] + shape->n[1];

	snprintf(p.name, sizeof p.name, "%s, %u and %u by %u", weight_type_info[type].name, shape->n[0],
		 shape->n[1], k);
	uint16_t x = add_embedding(&p, k);
	uint16_t y = checked(tape_add_buffer(&p.tape, ROW_TOKEN, width));
	uint16_t right = checked(tape_add_view(&p.tape, y, shape->n[0], shape->n[1]));
	uint16_t left = checked(tape_add_view(&p.tape, y, 0, shape->n[0]));
	add_product(&p, type, x, right, false);
	add_product(&p, type, x, left, true);
	add_logits(&p, TYPE_F32, add_gather(&p, y), width);
	check_tape(&p);
	run_products(&p);
	products_free(&p);
}

void products_of_odd_shapes_equal_the_reference(void **state)
{
	static const struct shape shapes[] = {{{31, 33}, 1}, {{1, 97}, 83}, {{64, 129}, 300}, {{95, 2}, 544}};

	for (unsigned type = 0; type < TYPE_COUNT; type++)
		for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
			run_shape((enum weight_type)type, &shapes[i]);
}

void logits_of_odd_vocabularies_equal_the_reference(void **state)
{
	static const uint32_t vocab[] = {65, 127, 161};

	for (unsigned type = 0; type < TYPE_COUNT; type++)
		for (unsigned i = 0; i < 3; i++) {
			struct products p = {.random = 5 + (uint64_t)type};
			snprintf(p.name, sizeof p.name, "%s, vocabulary of %u", weight_type_info[type].name,
				 vocab[i]);
			uint16_t x = add_embedding(&p, columns((enum weight_type)type, 96));
			add_logits(&p, (enum weight_type)type, add_gather(&p, x), vocab[i]);
			check_tape(&p);
			run_products(&p);
			products_free(&p);
		}
}
