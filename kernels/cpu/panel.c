#include "kernels/cpu/panel.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/panel_layout.h"
#include "kernels/formats.h"

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

/* Where column c of a row's 32 lies among a block's quants, in this line of its group. */
static size_t place(uint32_t lane, uint32_t line, uint32_t c)
{
	return panel_line(lane / 16, line) + lane % 16 * 4 + c % 4;
}

/* Of the byte in the line of fifths. */
static uint32_t fifth_bit(uint32_t c)
{
	return c / 8 + (c % 8 < 4 ? 0 : 4);
}

static float get_half(const uint8_t *field, uint32_t lane)
{
	uint16_t half;
	memcpy(&half, field + 2 * lane, sizeof half);
	return f16_to_f32(half);
}

static size_t block_offset(enum panel_kind kind, uint32_t b)
{
	size_t supers = panel_has_super(kind) ? (size_t)(b / PANEL_SUPER_BLOCKS + 1) * PANEL_SUPER_BYTES : 0;
	return supers + panel_block_bytes(kind) * b;
}

static int get_quant(enum panel_kind kind, const uint8_t *quants, uint32_t lane, uint32_t c)
{
	if (!panel_has_nibbles(kind))
		return quants[place(lane, c / 4, c)];
	int u = quants[place(lane, c / 8, c)] >> (c % 8 < 4 ? 0 : 4) & 15;
	if (panel_has_fifths(kind))
		u |= (quants[place(lane, PANEL_FIFTHS, c)] >> fifth_bit(c) & 1) << 4;
	return u;
}

static void unpack_block(enum panel_kind kind, const uint8_t *panel, uint32_t lane, uint32_t b, float *ret)
{
	const uint8_t *header = panel + block_offset(kind, b);
	const uint8_t *quants = header + panel_header_bytes(kind);
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
		int q = get_quant(kind, quants, lane, c) - panel_bias(kind);
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
