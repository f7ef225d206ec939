/* Offsets inside panels (isa.h), as constants that kernels fold. */
#ifndef TOKENRING_KERNELS_CPU_PANEL_LAYOUT_H
#define TOKENRING_KERNELS_CPU_PANEL_LAYOUT_H

#include "kernels/cpu/isa.h"

enum {
	PANEL_SUPER_BYTES = 128,
	PANEL_SUPER_BLOCKS = 8,
	PANEL_D = 0,     /* offsets in a header */
	PANEL_M = 64,    /* kinds with f16 minima */
	PANEL_SCALE = 0, /* kinds with a super header */
	PANEL_MIN = 32,
	PANEL_FIFTHS = 4,   /* line of a group */
	PANEL_8_S_SUB = 64, /* scale_lo, scale_hi */
	PANEL_8_M_SUB = 128 /* scale_lo, scale_hi, min_lo, min_hi */
};

#define PANEL_INLINE static inline __attribute__((always_inline))

PANEL_INLINE bool panel_has_super(enum panel_kind kind)
{
	return kind == PANEL_4_K || kind == PANEL_5_K;
}

PANEL_INLINE bool panel_has_nibbles(enum panel_kind kind)
{
	return kind <= PANEL_5_K;
}

PANEL_INLINE bool panel_has_fifths(enum panel_kind kind)
{
	return kind == PANEL_5_0 || kind == PANEL_5_1 || kind == PANEL_5_K;
}

PANEL_INLINE bool panel_has_min(enum panel_kind kind)
{
	return kind == PANEL_4_1 || kind == PANEL_5_1 || kind == PANEL_8_M || panel_has_super(kind);
}

/* Scales of 16 columns that enter the integer. */
PANEL_INLINE bool panel_has_subscales(enum panel_kind kind)
{
	return kind == PANEL_8_S || kind == PANEL_8_M;
}

/* What was added to each weight to make it unsigned. */
PANEL_INLINE int panel_bias(enum panel_kind kind)
{
	if (kind == PANEL_4_0 || kind == PANEL_5_0)
		return kind == PANEL_4_0 ? 8 : 16;
	return kind == PANEL_8_0 || kind == PANEL_8_S ? 128 : 0;
}

PANEL_INLINE size_t panel_header_bytes(enum panel_kind kind)
{
	if (kind == PANEL_8_M)
		return 256;
	return kind == PANEL_4_1 || kind == PANEL_5_1 || kind == PANEL_8_S ? 128 : 64;
}

/* Lines of 64 bytes in which the quants of 16 rows lie. */
PANEL_INLINE size_t panel_lines(enum panel_kind kind)
{
	if (!panel_has_nibbles(kind))
		return 8;
	return panel_has_fifths(kind) ? 5 : 4;
}

/* Where a line of group s begins among a block's quants: the two groups' lines take turns. */
PANEL_INLINE size_t panel_line(size_t s, size_t line)
{
	return 64 * (2 * line + s);
}

PANEL_INLINE size_t panel_block_bytes(enum panel_kind kind)
{
	return panel_header_bytes(kind) + panel_line(0, panel_lines(kind));
}

/* Of one column of a float panel. */
PANEL_INLINE size_t panel_column_bytes(enum panel_kind kind)
{
	return kind == PANEL_F32 ? 128 : 64;
}

#endif
