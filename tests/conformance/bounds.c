/* Each kernel of an instruction set alone, on memory that ends where its part ends: inputs and outputs lie at
 * pages that cannot be touched, and what lies between the rows of an output is checked. The bits are those of
 * contract.h. */
#include "tests/conformance/conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/contract.h"
#include "kernels/cpu/detect.h"
#include "kernels/cpu/panel.h"
#include "tests/conformance/fence.h"
#include "tests/conformance/synthetic.h"

enum { GAP = 5, K_MAX = 512 }; /* floats between the rows of a product */

static const uint32_t odd[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 100};

const struct cpu_isa *conformance_isa(void)
{
	const struct cpu_isa *isa = NULL;
	char why[256] = "";

	if (strcmp(subject_kind, "cpu") != 0)
		return NULL;
	if (detect_isa(subject_isa, &isa, why, sizeof why) < 0)
		fail_msg("%s", why);
	return isa;
}

static float *floats(uint32_t n)
{
	return fence_alloc(n * sizeof(float), sizeof(float));
}

static void release(float *x, uint32_t n)
{
	fence_free(x, n * sizeof(float), sizeof(float));
}

static float *random_floats(uint32_t n, float size, uint64_t *random)
{
	float *x = floats(n);

	for (uint32_t i = 0; i < n; i++)
		x[i] = size * ((float)(synthetic_random(random) >> 40) / (float)(1 << 23) - 1.0f);
	return x;
}

/* ---- products ---- */

struct product {
	enum weight_type type;
	uint32_t k, lanes, rows; /* lanes: rows of the weight in the panel */
	uint8_t *raw;            /* (lanes, k) */
	float *x;                /* (rows, k) */
};

static void fill_weights(struct product *p, uint64_t *random)
{
	uint64_t bytes = weight_type_bytes(p->type, (uint64_t)p->lanes * p->k);
	uint32_t block_bytes = weight_type_info[p->type].block_bytes;
	int d, m;

	p->raw = malloc(bytes);
	assert_non_null(p->raw);
	for (uint64_t i = 0; i < bytes; i++)
		p->raw[i] = (uint8_t)synthetic_random(random);
	synthetic_halves(p->type, &d, &m);
	bool quantised = weight_type_quantised(p->type);
	for (uint64_t at = 0; at < bytes; at += block_bytes)
		for (int i = 0; i < 2;
		     i++) { /* a positive finite half; bits of an F32 or BF16 between 0 and 1 */
			int offset = !quantised ? (int)block_bytes - 2 : i ? m : d;
			uint16_t half = (uint16_t)(0x2000 + (synthetic_random(random) & 0x1bff));
			if (offset >= 0)
				memcpy(p->raw + at + offset, &half, sizeof half);
		}
}

static float expected(const struct product *p, uint32_t lane, uint32_t row)
{
	const uint8_t *raw = p->raw + lane * weight_type_bytes(p->type, p->k);
	const float *x = p->x + (size_t)row * p->k;
	float acc = 0, w[K_MAX], s;
	struct weight_block block;
	int8_t q[BLOCK_COLUMNS];

	if (!weight_type_quantised(p->type)) {
		weight_dequantise(p->type, raw, p->k, w);
		for (uint32_t i = 0; i < p->k; i++)
			acc = fmaf(w[i], x[i], acc);
		return acc;
	}
	for (uint32_t b = 0; b < p->k / BLOCK_COLUMNS; b++) {
		int32_t dot = 0, sum = 0;
		assert_int_equal(weight_block_decode(p->type, raw, b, &block), 0);
		assert_int_equal(contract_quantise(x + b * BLOCK_COLUMNS, q, &s), 0);
		for (int j = 0; j < BLOCK_COLUMNS; j++) {
			dot += block.scale[j / 16] * block.q[j] * q[j];
			sum += block.min[j / 16] * q[j];
		}
		acc = contract_block(acc, block.d, block.m, block.has_min, s, dot, sum);
	}
	return acc;
}

static void *prepare(const struct cpu_isa *isa, const struct product *p, size_t bytes)
{
	void *tile = fence_alloc(bytes, 4);

	if (!weight_type_quantised(p->type))
		return memcpy(tile, p->x, bytes);
	for (uint32_t r = 0; r < p->rows; r++)
		assert_true(isa->quantise(p->x + (size_t)r * p->k, p->k, tile, r, p->rows));
	return tile;
}

static void check_rows(const struct cpu_isa *isa, const struct product *p, const float *y, float gap)
{
	for (uint32_t r = 0; r < p->rows; r++, y += PANEL_ROWS + GAP) {
		for (uint32_t n = 0; n < PANEL_ROWS; n++) {
			float want = n < p->lanes ? expected(p, n, r) : y[n];
			if (memcmp(&want, &y[n], sizeof want))
				fail_msg("%s, %s, %u columns, %u rows: row %u, output %u: %a, wanted %a",
					 isa->name, weight_type_info[p->type].name, p->k, p->rows, r, n,
					 (double)y[n], (double)want);
		}
		for (uint32_t n = PANEL_ROWS; n < PANEL_ROWS + GAP && r + 1 < p->rows; n++)
			assert_memory_equal(&y[n], &gap, sizeof gap);
	}
}

static void run_product(const struct cpu_isa *isa, struct product *p, int size_index, uint64_t *random)
{
	enum panel_kind kind = panel_kind_of(p->type);
	size_t weight_bytes = panel_bytes(kind, p->k), tile_bytes = panel_input_bytes(kind, p->k, p->rows);
	uint32_t floats_out = (p->rows - 1) * (PANEL_ROWS + GAP) + PANEL_ROWS;
	uint8_t *panel = fence_alloc(weight_bytes, 64);
	float *y = floats(floats_out), gap = NAN;

	p->x = random_floats(p->rows * p->k, 3.0f, random);
	fill_weights(p, random);
	assert_int_equal(panel_pack(p->type, p->raw, p->lanes, p->k, panel), 0);
	void *tile = prepare(isa, p, tile_bytes);
	for (uint32_t i = 0; i < floats_out; i++)
		y[i] = gap;
	isa->matmul[kind][size_index](panel, p->k, tile, y, PANEL_ROWS + GAP);
	check_rows(isa, p, y, gap);
	free(p->raw);
	fence_free(tile, tile_bytes, 4);
	release(p->x, p->rows * p->k);
	release(y, floats_out);
	fence_free(panel, weight_bytes, 64);
}

void products_stay_in_bounds(void **state)
{
	static const uint32_t lanes[] = {32, 1, 17}, ks[] = {1, 33, 160, 511};
	const struct cpu_isa *isa = conformance_isa();
	uint32_t saved = contract_enter();
	uint64_t random = 3;

	for (unsigned type = 0; isa && type < TYPE_COUNT; type++)
		for (int size = 0; size < TILE_SIZES; size++)
			for (unsigned i = 0; i < 4; i++) {
				uint32_t block = weight_type_info[type].block_weights;
				struct product p = {.type = (enum weight_type)type,
						    .k = (ks[i] + block - 1) / block * block,
						    .lanes = lanes[i % 3],
						    .rows = 1u << size};
				run_product(isa, &p, size, &random);
			}
	contract_leave(saved);
}

/* ---- rows ---- */

enum row_kernel {
	ADD,
	MUL,
	SCALE,
	FMA,
	SILU,
	GELU_GATED,
	RELU2,
	NORM,
	NORM_PLUS_ONE,
	ROPE,
	ROPE_HALVES,
	KERNELS
};

static void run_kernel(const struct cpu_isa *isa, enum row_kernel kernel, const float *a, const float *b,
		       uint32_t n, float *y)
{
	switch (kernel) {
	case ADD:
		isa->add(a, b, n, y);
		break;
	case MUL:
		isa->mul(a, b, n, y);
		break;
	case SCALE:
		isa->scale(a, 0.3f, n, y);
		break;
	case FMA:
		isa->fma(0.3f, a, n, y);
		break;
	case SILU:
		isa->act(ACT_SILU, 0.0f, a, NULL, n, y);
		break;
	case GELU_GATED:
		isa->act(ACT_GELU_TANH, 0.0f, a, b, n, y);
		break;
	case RELU2:
		isa->act(ACT_RELU2, 0.0f, a, NULL, n, y);
		break;
	case NORM:
	case NORM_PLUS_ONE:
		isa->norm_rms(a, b, kernel == NORM_PLUS_ONE, n, 1e-5f, y);
		break;
	default:
		isa->rope(y, a, b, n / 2, kernel == ROPE);
	}
}

static void want_kernel(enum row_kernel kernel, const float *a, const float *b, uint32_t n, float *y)
{
	if (kernel == NORM || kernel == NORM_PLUS_ONE) {
		contract_rms_norm(a, b, kernel == NORM_PLUS_ONE, 1e-5f, n, y);
		return;
	}
	for (uint32_t i = 0; i < n / 2 && kernel >= ROPE; i++)
		contract_rotate(&y[kernel == ROPE ? 2 * i : i], &y[kernel == ROPE ? 2 * i + 1 : n / 2 + i],
				a[i], b[i]);
	for (uint32_t i = 0; i < n && kernel < NORM; i++) {
		const float want[] = {
		    [ADD] = a[i] + b[i],           [MUL] = a[i] * b[i],
		    [SCALE] = a[i] * 0.3f,         [FMA] = fmaf(0.3f, a[i], y[i]),
		    [SILU] = contract_silu(a[i]),  [GELU_GATED] = contract_gelu_tanh(a[i]) * b[i],
		    [RELU2] = contract_relu2(a[i])};
		y[i] = want[kernel];
	}
}

static void run_row(const struct cpu_isa *isa, enum row_kernel kernel, uint32_t n, uint64_t *random)
{
	float *a = random_floats(n, 4.0f, random), *b = random_floats(n, 2.0f, random);
	float *y = random_floats(n, 1.0f, random), *want = floats(n);

	memcpy(want, y, n * sizeof *y);
	run_kernel(isa, kernel, a, b, n, y);
	want_kernel(kernel, a, b, n, want);
	if (memcmp(y, want, n * sizeof *y))
		fail_msg("%s: kernel %d of %u columns has other bits", isa->name, kernel, n);
	release(a, n);
	release(b, n);
	release(y, n);
	release(want, n);
}

void rows_stay_in_bounds(void **state)
{
	const struct cpu_isa *isa = conformance_isa();
	uint32_t saved = contract_enter();
	uint64_t random = 4;

	for (int kernel = 0; isa && kernel < KERNELS; kernel++)
		for (unsigned i = 0; i < sizeof odd / sizeof odd[0]; i++)
			run_row(isa, (enum row_kernel)kernel, odd[i], &random);
	contract_leave(saved);
}

/* Halves at a stride, as keys lie, and side by side, as values do; the last element is each mapping's last.
 */
static uint16_t half_of(enum weight_type type, float x)
{
	return type == TYPE_F16 ? f16_from_f32(x) : bf16_from_f32(x);
}

static void check_halves(const struct cpu_isa *isa, enum weight_type type, uint32_t n, uint32_t stride,
			 uint64_t *random)
{
	bool (*store)(const float *, uint32_t, uint16_t *, size_t) =
	    type == TYPE_F16 ? isa->store_f16 : isa->store_bf16;
	uint32_t halves = (n - 1) * stride + 1;
	float *x = random_floats(n, 9.0f, random);
	uint16_t *y = fence_alloc(halves * sizeof *y, sizeof *y);

	x[n / 2] = 1e-6f; /* a subnormal half */
	assert_true(store(x, n, y, stride));
	for (uint32_t j = 0; j < halves; j++)
		assert_int_equal(y[j], j % stride ? 0 : half_of(type, x[j / stride]));
	assert_true(isa->finite(x, n));
	x[n - 1] = type == TYPE_F16 ? 65520.0f : 3.3961776e38f; /* the next ones round to infinity */
	assert_false(store(x, n, y, stride));
	x[n - 1] = type == TYPE_F16 ? -65519.0f : -3.3961773e38f;
	assert_true(store(x, n, y, stride));
	x[n - 1] = INFINITY;
	assert_false(isa->finite(x, n));
	assert_false(store(x, n, y, stride));
	x[n - 1] = NAN;
	assert_false(store(x, n, y, stride));
	fence_free(y, halves * sizeof *y, sizeof *y);
	release(x, n);
}

/* q and scales of a Q8 cache: those of x as contract_quantise_kv makes them, nothing beside them. */
static void check_quants(const struct cpu_isa *isa, const float *x, uint32_t n, bool key, bool fits)
{
	uint32_t bytes = key ? (uint32_t)kv_quad(n - 1, 0) + 1 : n, halves = (n - 1) / 32 * 32 + 1,
		 written = 0;
	int8_t *q = fence_alloc(bytes, 1), want[32];
	uint16_t *scale = fence_alloc(halves * sizeof *scale, sizeof *scale), half;

	assert_int_equal(isa->store_q8(x, n, key, q, scale), fits);
	for (uint32_t i = 0; i < n; i += 32) {
		uint32_t count = n - i < 32 ? n - i : 32;
		contract_quantise_kv(x + i, count, want, &half);
		assert_int_equal(scale[i], half);
		for (uint32_t j = 0; j < count; j++)
			assert_int_equal(key ? (uint8_t)q[kv_quad(i + j, 0)] - 128 : q[i + j], want[j]);
	}
	for (uint32_t i = 0; i < bytes; i++)
		written += q[i] != 0;
	assert_true(written <= n);
	for (uint32_t i = 0; i < halves; i++)
		assert_true(i % 32 == 0 || scale[i] == 0);
	fence_free(q, bytes, 1);
	fence_free(scale, halves * sizeof *scale, sizeof *scale);
}

/* From values whose scale is a zero half over subnormal scales to one that is too large. */
static void check_quantised(const struct cpu_isa *isa, uint32_t n, bool key, uint64_t *random)
{
	static const float size[] = {1e-30f, 3e-6f, 1.1e-5f, 1e-3f, 9.0f, 8e6f};
	float *x = random_floats(n, 1.0f, random);

	for (unsigned i = 0; i < sizeof size / sizeof size[0]; i++) {
		float *y = random_floats(n, 1.0f, random);
		for (uint32_t j = 0; j < n; j++)
			y[j] = x[j] * size[i];
		check_quants(isa, y, n, key, true);
		y[n / 2] = 127.0f * 65520.0f;
		check_quants(isa, y, n, key, false);
		y[n / 2] = i % 2 ? NAN : -INFINITY;
		check_quants(isa, y, n, key, false);
		release(y, n);
	}
	release(x, n);
}

void halves_stay_in_bounds(void **state)
{
	const struct cpu_isa *isa = conformance_isa();
	uint32_t saved = contract_enter();
	uint64_t random = 5;

	for (unsigned i = 0; isa && i < sizeof odd / sizeof odd[0]; i++)
		for (uint32_t stride = 1; stride <= 32; stride += 31) {
			check_halves(isa, TYPE_F16, odd[i], stride, &random);
			check_halves(isa, TYPE_BF16, odd[i], stride, &random);
			check_quantised(isa, odd[i], stride == 32, &random);
		}
	contract_leave(saved);
}
