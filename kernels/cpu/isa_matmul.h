/* Matmul kernels over the vector type of vec.h.
 *
 * A block of 32 columns is 16 integer dot instructions a row of activations (two groups of 16 weight rows),
 * then one or two FMAs a group in the contract's order. Tiles of 8 rows reuse each loaded weight eight times;
 * nibbles are unpacked in registers, which costs 4 of 32 issue slots there. Every line is read once and in
 * ascending order, panel after panel of the thread's own stream, which is what hardware prefetchers follow.
 * A panel reads panel_bytes and does 32 k multiply-adds a row. Measured on a Zen 4 (no AMX):
 *   one row, a thread, weights in memory        42 GB/s (a bare read 35 to 44), two 42 to 85 with the machine
 *   software prefetch 1 to 32 KiB ahead         26 to 38 GB/s and not 42: left to the hardware
 *   lines of 8-bit groups one group after the other    31 and not 39 GB/s: they take turns now
 *   eight rows, panel in the first-level cache  70 % of the multiply rate for Q4_1, 79 for Q4_0 and Q8_0: all
 *                                               that the FMAs and scales between them leave
 *   Q5_0 in 5 bits and not in 8, two threads    325 for 220 tokens/s; prefill 3 % slower
 *   quantising and SiLU left to the vectoriser  15 % fewer tokens a second in prefill
 */
#ifndef TOKENRING_KERNELS_CPU_ISA_MATMUL_H
#define TOKENRING_KERNELS_CPU_ISA_MATMUL_H

#include "kernels/cpu/panel_layout.h"
#include "kernels/cpu/vec.h"

/* Offsets in a tile's block for T rows. */
#define TILE_S(x, T)          ((const float *)((x) + (T) * 32))
#define TILE_SS(x, T)         ((const float *)((x) + (T) * 36))
#define TILE_MINUS_8S(x, T)   ((x) + (T) * 40)
#define TILE_MINUS_128S(x, T) ((x) + (T) * 44)
#define TILE_S_LO(x, T)       ((x) + (T) * 48)
#define TILE_S_HI(x, T)       ((x) + (T) * 52)

PANEL_INLINE vi dot_kind(const enum panel_kind kind, vi acc, vi w, vi x)
{
	return panel_bias(kind) == 128 ? vi_dot_biased(acc, w, x) : vi_dot_unsigned(acc, w, x);
}

/* What undoes the bias of the weights: -bias * S. */
PANEL_INLINE vi first_dot(const enum panel_kind kind, const int T, const uint8_t *x, int t)
{
	if (panel_bias(kind) == 8)
		return vi_repeat(TILE_MINUS_8S(x, T) + 4 * t);
	if (panel_bias(kind) == 16)
		return vi_shift_left(vi_repeat(TILE_MINUS_8S(x, T) + 4 * t), 1);
	if (panel_bias(kind) == 128 && !VEC_BIASED_DOT_IS_SIGNED)
		return vi_repeat(TILE_MINUS_128S(x, T) + 4 * t);
	return vi_set1(0);
}

/* Bit `bit` of each byte as 16. (A shift wants a constant even where nothing is optimised.) */
PANEL_INLINE vi fifth(vi bits, int bit)
{
	switch (bit) {
	case 0:
		return vi_and(vi_shift_left(bits, 4), 0x10101010);
	case 1:
		return vi_and(vi_shift_left(bits, 3), 0x10101010);
	case 2:
		return vi_and(vi_shift_left(bits, 2), 0x10101010);
	case 3:
		return vi_and(vi_shift_left(bits, 1), 0x10101010);
	case 4:
		return vi_and(bits, 0x10101010);
	case 5:
		return vi_and(vi_shift_right(bits, 1), 0x10101010);
	case 6:
		return vi_and(vi_shift_right(bits, 2), 0x10101010);
	default:
		return vi_and(vi_shift_right(bits, 3), 0x10101010);
	}
}

/* dot[t][group] = integer dot of 32 columns. */
PANEL_INLINE void dots(const enum panel_kind kind, const int T, const uint8_t *w, const uint8_t *x,
		       vi dot[TILE_ROWS][2])
{
	vi fifths[2];

	VEC_UNROLL(8)
	for (int t = 0; t < T; t++)
		dot[t][0] = dot[t][1] = first_dot(kind, T, x, t);
	for (int s = 0; s < 2; s++)
		fifths[s] = panel_has_fifths(kind) ? vi_load(w + panel_line(s, PANEL_FIFTHS)) : vi_set1(0);
	VEC_UNROLL(4)
	for (int j = 0; j < 4; j++) {
		vi first[2], second[2];
		VEC_UNROLL(2)
		for (int s = 0; s < 2; s++) {
			if (panel_has_nibbles(kind)) {
				vi both = vi_load(w + panel_line(s, j));
				first[s] = vi_and(both, 0x0f0f0f0f);
				second[s] = vi_and(vi_shift_right(both, 4), 0x0f0f0f0f);
				if (panel_has_fifths(kind)) {
					first[s] = vi_add(first[s], fifth(fifths[s], j));
					second[s] = vi_add(second[s], fifth(fifths[s], 4 + j));
				}
			} else {
				first[s] = vi_load(w + panel_line(s, 2 * j));
				second[s] = vi_load(w + panel_line(s, 2 * j + 1));
			}
		}
		VEC_UNROLL(8)
		for (int t = 0; t < T; t++) {
			vi a = vi_repeat(x + 32 * t + 8 * j), b = vi_repeat(x + 32 * t + 8 * j + 4);
			VEC_UNROLL(2)
			for (int s = 0; s < 2; s++) {
				dot[t][s] = dot_kind(kind, dot[t][s], first[s], a);
				dot[t][s] = dot_kind(kind, dot[t][s], second[s], b);
			}
		}
	}
}

/* -128 times the sum of 16 activations, unless the dot needs no such correction. */
PANEL_INLINE vi first_half_dot(const enum panel_kind kind, const uint8_t *sum)
{
	if (panel_bias(kind) == 0 || VEC_BIASED_DOT_IS_SIGNED)
		return vi_set1(0);
	return vi_sub(vi_set1(0), vi_shift_left(vi_repeat(sum), 7));
}

/* The same with a scale for each 16 columns: scale_lo * dot_lo + scale_hi * dot_hi. */
PANEL_INLINE void dots_subscaled(const enum panel_kind kind, const int T, const uint8_t *header,
				 const uint8_t *w, const uint8_t *x, vi dot[TILE_ROWS][2])
{
	const int8_t *sub = (const int8_t *)header + (kind == PANEL_8_S ? PANEL_8_S_SUB : PANEL_8_M_SUB);

	VEC_UNROLL(8)
	for (int t = 0; t < T; t++) {
		vi half[2][2];
		VEC_UNROLL(2)
		for (int h = 0; h < 2; h++) {
			const uint8_t *sum = (h ? TILE_S_HI(x, T) : TILE_S_LO(x, T)) + 4 * t;
			half[h][0] = half[h][1] = first_half_dot(kind, sum);
			VEC_UNROLL(4)
			for (int j = 4 * h; j < 4 * h + 4; j++) {
				vi a = vi_repeat(x + 32 * t + 4 * j);
				VEC_UNROLL(2)
				for (int s = 0; s < 2; s++)
					half[h][s] =
					    dot_kind(kind, half[h][s], vi_load(w + panel_line(s, j)), a);
			}
		}
		VEC_UNROLL(2)
		for (int s = 0; s < 2; s++)
			dot[t][s] = vi_add(vi_mul(vi_from_s8(sub + 16 * s), half[0][s]),
					   vi_mul(vi_from_s8(sub + 32 + 16 * s), half[1][s]));
	}
}

/* s * (float)sum of the minimum's term, where sum is S or min_lo * S_lo + min_hi * S_hi. */
PANEL_INLINE vf scaled_sum(const enum panel_kind kind, const int T, const uint8_t *header, const uint8_t *x,
			   int t, int s)
{
	if (kind != PANEL_8_M)
		return vf_set1(TILE_SS(x, T)[t]);
	const int8_t *min = (const int8_t *)header + PANEL_8_M_SUB + 64 + 16 * s;
	vi sum = vi_add(vi_mul(vi_from_s8(min), vi_repeat(TILE_S_LO(x, T) + 4 * t)),
			vi_mul(vi_from_s8(min + 32), vi_repeat(TILE_S_HI(x, T) + 4 * t)));
	return vf_mul(vf_set1(TILE_S(x, T)[t]), vf_from_vi(sum));
}

PANEL_INLINE vf block_scale(const enum panel_kind kind, const uint8_t *super, const uint8_t *header, int s)
{
	if (!panel_has_super(kind))
		return vf_from_f16((const uint16_t *)(header + PANEL_D) + 16 * s);
	return vf_mul(vf_from_f16((const uint16_t *)(super + PANEL_D) + 16 * s),
		      vf_from_u8(header + PANEL_SCALE + 16 * s));
}

PANEL_INLINE vf block_min(const enum panel_kind kind, const uint8_t *super, const uint8_t *header, int s)
{
	if (!panel_has_super(kind))
		return vf_from_f16((const uint16_t *)(header + PANEL_M) + 16 * s);
	/* Times -1 and not 0 - min: the contract's -(dmin * min) keeps the sign of zero. */
	vf negated = vf_mul(vf_from_u8(header + PANEL_MIN + 16 * s), vf_set1(-1.0f));
	return vf_mul(vf_from_f16((const uint16_t *)(super + PANEL_M) + 16 * s), negated);
}

PANEL_INLINE void accumulate(const enum panel_kind kind, const int T, const uint8_t *super,
			     const uint8_t *header, const uint8_t *x, vi dot[TILE_ROWS][2],
			     vf acc[TILE_ROWS][2])
{
	VEC_UNROLL(2)
	for (int s = 0; s < 2; s++) {
		vf d = block_scale(kind, super, header, s);
		vf m = panel_has_min(kind) ? block_min(kind, super, header, s) : d;
		VEC_UNROLL(8)
		for (int t = 0; t < T; t++) {
			if (panel_has_min(kind))
				acc[t][s] = vf_fma(m, scaled_sum(kind, T, header, x, t, s), acc[t][s]);
			vf scale = vf_mul(d, vf_set1(TILE_S(x, T)[t]));
			acc[t][s] = vf_fma(vf_from_vi(dot[t][s]), scale, acc[t][s]);
		}
	}
}

PANEL_INLINE void matmul_quantised(const enum panel_kind kind, const int T, const uint8_t *panel, uint32_t k,
				   const uint8_t *x, float *y, size_t ldy)
{
	const size_t block_bytes = panel_block_bytes(kind);
	const uint8_t *super = panel;
	vf acc[TILE_ROWS][2];
	vi dot[TILE_ROWS][2];

	VEC_UNROLL(8)
	for (int t = 0; t < T; t++)
		acc[t][0] = acc[t][1] = vf_zero();
	for (uint32_t b = 0; b < k / 32; b++) {
		if (panel_has_super(kind) && b % PANEL_SUPER_BLOCKS == 0) {
			super = panel;
			panel += PANEL_SUPER_BYTES;
		}
		const uint8_t *w = panel + panel_header_bytes(kind);
		if (panel_has_subscales(kind))
			dots_subscaled(kind, T, panel, w, x, dot);
		else
			dots(kind, T, w, x, dot);
		accumulate(kind, T, super, panel, x, dot, acc);
		panel += block_bytes;
		x += T * ACT_BLOCK_BYTES;
	}
	VEC_UNROLL(8)
	for (int t = 0; t < T; t++) {
		vf_store(y + (size_t)t * ldy, acc[t][0]);
		vf_store(y + (size_t)t * ldy + 16, acc[t][1]);
	}
}

PANEL_INLINE vf load_weights(const enum panel_kind kind, const uint8_t *column, int s)
{
	if (kind == PANEL_F32)
		return vf_load((const float *)column + 16 * s);
	const uint16_t *half = (const uint16_t *)column + 16 * s;
	return kind == PANEL_F16 ? vf_from_f16(half) : vf_from_bf16(half);
}

/* f32 activations, k ascending, one FMA a term. */
PANEL_INLINE void matmul_float(const enum panel_kind kind, const int T, const uint8_t *panel, uint32_t k,
			       const float *x, float *y, size_t ldy)
{
	vf acc[TILE_ROWS][2];

	VEC_UNROLL(8)
	for (int t = 0; t < T; t++)
		acc[t][0] = acc[t][1] = vf_zero();
	for (uint32_t i = 0; i < k; i++) {
		vf w0 = load_weights(kind, panel, 0), w1 = load_weights(kind, panel, 1);
		VEC_UNROLL(8)
		for (int t = 0; t < T; t++) {
			vf a = vf_set1(x[(size_t)t * k + i]);
			acc[t][0] = vf_fma(w0, a, acc[t][0]);
			acc[t][1] = vf_fma(w1, a, acc[t][1]);
		}
		panel += panel_column_bytes(kind);
	}
	VEC_UNROLL(8)
	for (int t = 0; t < T; t++) {
		vf_store(y + (size_t)t * ldy, acc[t][0]);
		vf_store(y + (size_t)t * ldy + 16, acc[t][1]);
	}
}

#define MATMUL(kind, T)                                                                            \
	static void matmul_##kind##_##T(const uint8_t *panel, uint32_t k, const void *x, float *y, \
					size_t ldy)                                                \
	{                                                                                          \
		if (kind >= PANEL_F32)                                                             \
			matmul_float(kind, T, panel, k, x, y, ldy);                                \
		else                                                                               \
			matmul_quantised(kind, T, panel, k, x, y, ldy);                            \
	}
#define MATMUL_KIND(kind) MATMUL(kind, 1) MATMUL(kind, 2) MATMUL(kind, 4) MATMUL(kind, 8)

MATMUL_KIND(PANEL_4_0)
MATMUL_KIND(PANEL_4_1)
MATMUL_KIND(PANEL_4_K)
MATMUL_KIND(PANEL_5_0)
MATMUL_KIND(PANEL_5_1)
MATMUL_KIND(PANEL_5_K)
MATMUL_KIND(PANEL_8_0)
MATMUL_KIND(PANEL_8_S)
MATMUL_KIND(PANEL_8_M)
MATMUL_KIND(PANEL_F32)
MATMUL_KIND(PANEL_F16)
MATMUL_KIND(PANEL_BF16)

#define MATMUL_ROW(kind) [kind] = {matmul_##kind##_1, matmul_##kind##_2, matmul_##kind##_4, matmul_##kind##_8}
#define MATMUL_TABLE                                                                                 \
	{MATMUL_ROW(PANEL_4_0), MATMUL_ROW(PANEL_4_1), MATMUL_ROW(PANEL_4_K), MATMUL_ROW(PANEL_5_0), \
	 MATMUL_ROW(PANEL_5_1), MATMUL_ROW(PANEL_5_K), MATMUL_ROW(PANEL_8_0), MATMUL_ROW(PANEL_8_S), \
	 MATMUL_ROW(PANEL_8_M), MATMUL_ROW(PANEL_F32), MATMUL_ROW(PANEL_F16), MATMUL_ROW(PANEL_BF16)}

#endif
