/* Panels: weights repacked to 32 rows side by side (isa.h fixes the layouts).
 *
 * Thread rule: pure functions; packing different panels may run on different threads. */
#ifndef TOKENRING_KERNELS_CPU_PANEL_H
#define TOKENRING_KERNELS_CPU_PANEL_H

#include "kernels/cpu/isa.h"
#include "kernels/types.h"

/* Folded where the type is a constant. */
static inline enum panel_kind panel_kind_of(enum weight_type type)
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

bool panel_quantised(enum panel_kind);

/* Bytes of one panel of k columns, a multiple of 64. */
size_t panel_bytes(enum panel_kind, uint32_t k);
static inline uint32_t panel_count(uint32_t rows)
{
	return (rows + PANEL_ROWS - 1) / PANEL_ROWS;
}

/* Bytes of `rows` activation rows of k columns as this kind's kernels read them. */
static inline size_t panel_input_bytes(enum panel_kind kind, uint32_t k, uint32_t rows)
{
	return (size_t)rows * (panel_quantised(kind) ? (size_t)k / 32 * ACT_BLOCK_BYTES : (size_t)k * 4);
}

/* Packs `rows` <= 32 raw rows into one panel; the missing rows become zeros. -EDOM: a scale is not
 * finite. */
int panel_pack(enum weight_type, const void *raw, uint32_t rows, uint32_t k, uint8_t *panel);

/* Row `lane` of a panel as f32, as EMBED defines it: (float)q * d, with a minimum fma(q, d, m). */
void panel_unpack_row(enum panel_kind, const uint8_t *panel, uint32_t lane, uint32_t k, float *ret);

#endif
