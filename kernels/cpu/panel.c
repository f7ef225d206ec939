#include "kernels/cpu/panel.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/panel_layout.h"
#include "kernels/formats.h"

enum panel_kind panel_kind_of(enum weight_type type)
{
	static const uint8_t kind[TYPE_COUNT] = {
	    [TYPE_F32] = PANEL_F32,  [TYPE_F16] = PANEL_F16,  [TYPE_BF16] = PANEL_BF16,
	    [TYPE_Q4_0] = PANEL_4_0, [TYPE_Q4_1] = PANEL_4_1, [TYPE_Q4_K] = PANEL_4_K,
	    [TYPE_Q8_0] = PANEL_8_0, [TYPE_Q5_0] = PANEL_5_0, [TYPE_Q5_1] = PANEL_5_1,
	    [TYPE_Q5_K] = PANEL_5_K, [TYPE_Q6_K] = PANEL_8_S, [TYPE_Q3_K] = PANEL_8_S,
	    [TYPE_Q2_K] = PANEL_8_M,
	};
	return (enum panel_kind)kind[type];
}

bool panel_quantised(enum panel_kind kind)
{
	return kind < PANEL_F32;
}

size_t panel_bytes(enum panel_kind kind, uint32_t k)
{
	if (!panel_quantised(kind))
		return panel_column_bytes(kind) * k;
	size_t supers = panel_has_super(kind) ? k / SUPER_COLUMNS * PANEL_SUPER_BYTES : 0;
	return supers + panel_block_bytes(kind) * (k / BLOCK_COLUMNS);
}

/* Where column c of a row's 32 lies among the quants of its group. */
static size_t byte_place(uint32_t lane, uint32_t c)
{
	return c / 4 * 64 + lane % 16 * 4 + c % 4;
}

static size_t nibble_place(uint32_t lane, uint32_t c)
{
	return c / 8 * 64 + lane % 16 * 4 + c % 4;
}

/* Of the byte with a column's fifth bit, and the bit in it. */
static size_t fifth_place(uint32_t lane, uint32_t c)
{
	return PANEL_FIFTHS + lane % 16 * 4 + c % 4;
}

static uint32_t fifth_bit(uint32_t c)
{
	return c / 8 + (c % 8 < 4 ? 0 : 4);
}

static void put_quants(enum panel_kind kind, const int8_t q[BLOCK_COLUMNS], uint32_t lane, uint8_t *quants)
{
	uint8_t *group = quants + lane / 16 * panel_group_bytes(kind);
	int bias = panel_bias(kind);

	for (uint32_t c = 0; c < BLOCK_COLUMNS; c++) {
		uint32_t u = (uint32_t)(q[c] + bias);
		if (!panel_has_nibbles(kind))
			group[byte_place(lane, c)] = (uint8_t)u;
		else
			group[nibble_place(lane, c)] |= (uint8_t)((u & 15) << (c % 8 < 4 ? 0 : 4));
		if (panel_has_fifths(kind))
			group[fifth_place(lane, c)] |= (uint8_t)(u >> 4 << fifth_bit(c));
	}
}

static void put_half(uint8_t *field, uint32_t lane, float value)
{
	uint16_t half = f16_from_f32(value);
	memcpy(field + 2 * lane, &half, sizeof half);
}

static float get_half(const uint8_t *field, uint32_t lane)
{
	uint16_t half;
	memcpy(&half, field + 2 * lane, sizeof half);
	return f16_to_f32(half);
}

/* d and m of these kinds came from f16 and go back exactly; m of Q2_K carries the contract's minus. */
static void put_header(enum panel_kind kind, const struct weight_block *block, uint32_t lane, uint8_t *header)
{
	if (panel_has_super(kind))
		return;
	put_half(header + PANEL_D, lane, block->d);
	if (panel_has_min(kind))
		put_half(header + PANEL_M, lane, block->m);
	if (panel_has_subscales(kind)) {
		uint8_t *sub = header + (kind == PANEL_8_S ? PANEL_8_S_SUB : PANEL_8_M_SUB) + lane;
		for (int h = 0; h < 2; h++)
			sub[32 * h] = (uint8_t)block->scale[h];
		for (int h = 0; h < 2 && kind == PANEL_8_M; h++)
			sub[64 + 32 * h] = (uint8_t)block->min[h];
	}
}

/* Q4_K and Q5_K begin alike: d, dmin, twelve bytes of 6-bit scales and minima (get_scale_min_k4 of ggml). */
static void put_super(const struct block_q4_k *raw, uint32_t lane, uint8_t *super)
{
	put_half(super + PANEL_D, lane, f16_to_f32(raw->d));
	put_half(super + PANEL_M, lane, f16_to_f32(raw->dmin));
}

static void put_super_scales(const struct block_q4_k *raw, uint32_t b, uint32_t lane, uint8_t *header)
{
	const uint8_t *s = raw->scales;

	header[PANEL_SCALE + lane] = (uint8_t)(b < 4 ? s[b] & 63 : (s[b + 4] & 15) | s[b - 4] >> 6 << 4);
	header[PANEL_MIN + lane] = (uint8_t)(b < 4 ? s[b + 4] & 63 : s[b + 4] >> 4 | s[b] >> 6 << 4);
}

static size_t block_offset(enum panel_kind kind, uint32_t b)
{
	size_t supers = panel_has_super(kind) ? (size_t)(b / PANEL_SUPER_BLOCKS + 1) * PANEL_SUPER_BYTES : 0;
	return supers + panel_block_bytes(kind) * b;
}

static int pack_quantised_row(enum weight_type type, const uint8_t *raw, uint32_t k, uint32_t lane,
			      uint8_t *panel)
{
	enum panel_kind kind = panel_kind_of(type);
	int r = 0;

	for (uint32_t b = 0; b < k / BLOCK_COLUMNS; b++) {
		struct weight_block block;
		uint8_t *header = panel + block_offset(kind, b);
		if (weight_block_decode(type, raw, b, &block) < 0)
			r = -EDOM;
		put_quants(kind, block.q, lane, header + panel_header_bytes(kind));
		put_header(kind, &block, lane, header);
		if (!panel_has_super(kind))
			continue;
		const struct block_q4_k *first =
		    (const void *)(raw + b / PANEL_SUPER_BLOCKS * weight_type_info[type].block_bytes);
		if (b % PANEL_SUPER_BLOCKS == 0)
			put_super(first, lane, header - PANEL_SUPER_BYTES);
		put_super_scales(first, b % PANEL_SUPER_BLOCKS, lane, header);
	}
	return r;
}

static void pack_float_row(enum panel_kind kind, const uint8_t *raw, uint32_t k, uint32_t lane,
			   uint8_t *panel)
{
	size_t bytes = panel_column_bytes(kind) / PANEL_ROWS;

	for (uint32_t c = 0; c < k; c++)
		memcpy(panel + (c * (size_t)PANEL_ROWS + lane) * bytes, raw + c * bytes, bytes);
}

int panel_pack(enum weight_type type, const void *raw, uint32_t rows, uint32_t k, uint8_t *panel)
{
	enum panel_kind kind = panel_kind_of(type);
	size_t row_bytes = weight_type_bytes(type, k);
	int r = 0;

	/* Missing rows have scale zero; whatever their quants mean, their outputs are dropped. */
	memset(panel, 0, panel_bytes(kind, k));
	for (uint32_t lane = 0; lane < rows; lane++) {
		const uint8_t *row = (const uint8_t *)raw + lane * row_bytes;
		if (!panel_quantised(kind))
			pack_float_row(kind, row, k, lane, panel);
		else if (pack_quantised_row(type, row, k, lane, panel) < 0)
			r = -EDOM;
	}
	return r;
}

static int get_quant(enum panel_kind kind, const uint8_t *group, uint32_t lane, uint32_t c)
{
	if (!panel_has_nibbles(kind))
		return group[byte_place(lane, c)];
	int u = group[nibble_place(lane, c)] >> (c % 8 < 4 ? 0 : 4) & 15;
	if (panel_has_fifths(kind))
		u |= (group[fifth_place(lane, c)] >> fifth_bit(c) & 1) << 4;
	return u;
}

static void unpack_block(enum panel_kind kind, const uint8_t *panel, uint32_t lane, uint32_t b, float *ret)
{
	const uint8_t *header = panel + block_offset(kind, b);
	const uint8_t *group = header + panel_header_bytes(kind) + lane / 16 * panel_group_bytes(kind);
	const int8_t *sub =
	    (const int8_t *)header + (kind == PANEL_8_S ? PANEL_8_S_SUB : PANEL_8_M_SUB) + lane;
	const uint8_t *super =
	    panel_has_super(kind)
		? panel + block_offset(kind, b / PANEL_SUPER_BLOCKS * PANEL_SUPER_BLOCKS) - PANEL_SUPER_BYTES
		: header;
	float d = get_half(super + PANEL_D, lane);
	float m = panel_has_min(kind) ? get_half(super + PANEL_M, lane) : 0.0f;

	if (panel_has_super(kind)) {
		d = d * (float)header[PANEL_SCALE + lane];
		m = -(m * (float)header[PANEL_MIN + lane]);
	}
	for (uint32_t c = 0; c < BLOCK_COLUMNS; c++) {
		int q = get_quant(kind, group, lane, c) - panel_bias(kind);
		if (panel_has_subscales(kind))
			q *= sub[c / 16 * 32];
		float min = kind == PANEL_8_M ? m * (float)sub[64 + c / 16 * 32] : m;
		ret[c] = panel_has_min(kind) ? fmaf((float)q, d, min) : (float)q * d;
	}
}

void panel_unpack_row(enum panel_kind kind, const uint8_t *panel, uint32_t lane, uint32_t k, float *ret)
{
	size_t bytes = panel_quantised(kind) ? 0 : panel_column_bytes(kind) / PANEL_ROWS;

	if (panel_quantised(kind)) {
		for (uint32_t b = 0; b < k / BLOCK_COLUMNS; b++)
			unpack_block(kind, panel, lane, b, ret + b * BLOCK_COLUMNS);
		return;
	}
	for (uint32_t c = 0; c < k; c++) {
		const uint8_t *value = panel + (c * (size_t)PANEL_ROWS + lane) * bytes;
		uint16_t half;
		memcpy(&half, value, sizeof half);
		if (kind == PANEL_F32)
			memcpy(&ret[c], value, sizeof ret[c]);
		else
			ret[c] = kind == PANEL_F16 ? f16_to_f32(half) : bf16_to_f32(half);
	}
}
