/* From rows of the file to a panel.
 *
 * A start of the daemon waits for this, so it works on words of four columns and copies scales as they are,
 * where weight_block would decode both; a test holds the two against each other. Each type is a loop of its
 * own, made from one inline function. Measured with one thread, SmolLM2-135M in Q4_1: see docs/kernels.md. */
#include <errno.h>
#include <string.h>

#include "kernels/cpu/panel.h"
#include "kernels/cpu/panel_layout.h"
#include "kernels/formats.h"

enum { WORDS = BLOCK_COLUMNS / 4, TRANSPOSED_COLUMNS = 32 };

static const uint32_t low_nibbles = 0x0f0f0f0f, low_pairs = 0x03030303, low_bits = 0x01010101;

PANEL_INLINE uint32_t word_at(const void *bytes, uint32_t i)
{
	uint32_t word;

	memcpy(&word, (const uint8_t *)bytes + 4 * i, sizeof word);
	return word;
}

PANEL_INLINE void put_word(uint8_t *bytes, uint32_t word)
{
	memcpy(bytes, &word, sizeof word);
}

/* ---- quants: the weights of a block as the kind's unsigned bytes, four columns a word ---- */

PANEL_INLINE void nibble_words(const uint8_t qs[16], uint32_t w[WORDS])
{
	for (uint32_t i = 0; i < 4; i++) {
		w[i] = word_at(qs, i) & low_nibbles;
		w[4 + i] = word_at(qs, i) >> 4 & low_nibbles;
	}
}

/* Bit j of qh belongs to column j; four bits are spread over the bytes of a word by a product. */
PANEL_INLINE void add_fifths(const uint8_t qh[4], uint32_t w[WORDS])
{
	for (uint32_t i = 0; i < WORDS; i++)
		w[i] |= ((word_at(qh, 0) >> 4 * i & 15) * 0x00204081 & low_bits) << 4;
}

PANEL_INLINE void k_nibble_words(const uint8_t qs[128], uint32_t b, uint32_t w[WORDS])
{
	for (uint32_t i = 0; i < WORDS; i++)
		w[i] = word_at(qs + 32 * (b / 2), i) >> 4 * (b % 2) & low_nibbles;
}

/* 0 to 63, biased by 32 in the file and by 128 in the panel. */
PANEL_INLINE void q6_k_words(const struct block_q6_k *block, uint32_t b, uint32_t w[WORDS])
{
	uint32_t half = b / 4, j = b % 4;

	for (uint32_t i = 0; i < WORDS; i++) {
		uint32_t low = word_at(block->ql + 64 * half + 32 * (j % 2), i) >> 4 * (j / 2) & low_nibbles;
		uint32_t high = word_at(block->qh + 32 * half, i) >> 2 * j & low_pairs;
		w[i] = (low | high << 4) + 0x60606060;
	}
}

/* Types without a reading of their own. */
PANEL_INLINE void decoded_words(enum weight_type type, const void *block, uint32_t b, uint32_t w[WORDS])
{
	uint32_t bias = (uint32_t)panel_bias(panel_kind_of(type)) * low_bits;
	struct weight_block decoded;

	weight_block_decode(type, block, b, &decoded);
	for (uint32_t i = 0; i < WORDS; i++)
		w[i] = word_at(decoded.q, i) ^ bias; /* 0 or 128: as good as a sum */
}

/* `b`: which 32 columns of the file's block. */
PANEL_INLINE void words_of(const enum weight_type type, const void *block, uint32_t b, uint32_t w[WORDS])
{
	switch (type) {
	case TYPE_Q4_0:
		nibble_words(((const struct block_q4_0 *)block)->qs, w);
		break;
	case TYPE_Q4_1:
		nibble_words(((const struct block_q4_1 *)block)->qs, w);
		break;
	case TYPE_Q5_0:
		nibble_words(((const struct block_q5_0 *)block)->qs, w);
		add_fifths(((const struct block_q5_0 *)block)->qh, w);
		break;
	case TYPE_Q5_1:
		nibble_words(((const struct block_q5_1 *)block)->qs, w);
		add_fifths(((const struct block_q5_1 *)block)->qh, w);
		break;
	case TYPE_Q8_0:
		for (uint32_t i = 0; i < WORDS; i++)
			w[i] = word_at(((const struct block_q8_0 *)block)->qs, i) ^ 0x80808080;
		break;
	case TYPE_Q4_K:
		k_nibble_words(((const struct block_q4_k *)block)->qs, b, w);
		break;
	case TYPE_Q5_K:
		k_nibble_words(((const struct block_q5_k *)block)->qs, b, w);
		for (uint32_t i = 0; i < WORDS; i++)
			w[i] |= (word_at(((const struct block_q5_k *)block)->qh, i) >> b & low_bits) << 4;
		break;
	case TYPE_Q6_K:
		q6_k_words(block, b, w);
		break;
	default:
		decoded_words(type, block, b, w);
	}
}

PANEL_INLINE void put_quants(const enum panel_kind kind, const uint32_t w[WORDS], uint32_t lane,
			     uint8_t *quants)
{
	uint8_t *own = quants + panel_line(lane / 16, 0) + lane % 16 * 4;
	uint32_t fifths = 0;

	if (!panel_has_nibbles(kind)) {
		for (uint32_t i = 0; i < WORDS; i++)
			put_word(own + panel_line(0, i), w[i]);
		return;
	}
	for (uint32_t j = 0; j < WORDS / 2; j++) {
		uint32_t low = w[2 * j], high = w[2 * j + 1];
		put_word(own + panel_line(0, j), (low & low_nibbles) | (high & low_nibbles) << 4);
		fifths |= (low >> 4 & low_bits) << j | (high >> 4 & low_bits) << (4 + j);
	}
	if (panel_has_fifths(kind))
		put_word(own + panel_line(0, PANEL_FIFTHS), fifths);
}

/* ---- scales ---- */

/* False: not finite. */
PANEL_INLINE bool put_half(uint8_t *field, uint32_t lane, uint16_t half)
{
	memcpy(field + 2 * lane, &half, sizeof half);
	return f16_finite(half);
}

PANEL_INLINE bool put_halves(uint8_t *header, uint32_t lane, uint16_t d, uint16_t m)
{
	bool finite = put_half(header + PANEL_D, lane, d);

	return put_half(header + PANEL_M, lane, m) && finite;
}

PANEL_INLINE bool put_super(const void *block, uint32_t lane, uint8_t *super)
{
	const struct block_q4_k *k = block;

	return put_halves(super, lane, k->d, k->dmin);
}

/* Scale and minimum of 32 columns in Q4_K and Q5_K, which begin alike: d, dmin, twelve bytes of six bits each
 * (get_scale_min_k4 of ggml). */
PANEL_INLINE void put_k_scales(const struct block_q4_k *block, uint32_t b, uint32_t lane, uint8_t *header)
{
	const uint8_t *s = block->scales;

	header[PANEL_SCALE + lane] = (uint8_t)(b < 4 ? s[b] & 63 : (s[b + 4] & 15) | s[b - 4] >> 6 << 4);
	header[PANEL_MIN + lane] = (uint8_t)(b < 4 ? s[b + 4] & 63 : s[b + 4] >> 4 | s[b] >> 6 << 4);
}

/* The contract's minus of Q2_K's minimum is in its half. */
PANEL_INLINE bool put_decoded_scales(enum weight_type type, const void *block, uint32_t b, uint32_t lane,
				     uint8_t *header)
{
	enum panel_kind kind = panel_kind_of(type);
	uint8_t *sub = header + (kind == PANEL_8_S ? PANEL_8_S_SUB : PANEL_8_M_SUB) + lane;
	struct weight_block decoded;
	int r = weight_block_decode(type, block, b, &decoded);

	put_half(header + PANEL_D, lane, f16_from_f32(decoded.d));
	if (kind == PANEL_8_M)
		put_half(header + PANEL_M, lane, f16_from_f32(decoded.m));
	for (int h = 0; h < 2; h++) {
		sub[32 * h] = (uint8_t)decoded.scale[h];
		if (kind == PANEL_8_M)
			sub[64 + 32 * h] = (uint8_t)decoded.min[h];
	}
	return r == 0;
}

PANEL_INLINE bool put_q6_k_scales(const struct block_q6_k *block, uint32_t b, uint32_t lane, uint8_t *header)
{
	header[PANEL_8_S_SUB + lane] = (uint8_t)block->scales[2 * b];
	header[PANEL_8_S_SUB + 32 + lane] = (uint8_t)block->scales[2 * b + 1];
	return put_half(header + PANEL_D, lane, block->d);
}

/* Of a block's 32 columns `b`. False: one is not finite. */
PANEL_INLINE bool put_scales(const enum weight_type type, const void *block, uint32_t b, uint32_t lane,
			     uint8_t *header)
{
	const struct block_q4_1 *plain = block; /* d, then m where the type has one */

	switch (type) {
	case TYPE_Q4_0:
	case TYPE_Q5_0:
	case TYPE_Q8_0:
		return put_half(header + PANEL_D, lane, plain->d);
	case TYPE_Q4_1:
	case TYPE_Q5_1:
		return put_halves(header, lane, plain->d, plain->m);
	case TYPE_Q4_K:
	case TYPE_Q5_K:
		put_k_scales(block, b, lane, header);
		return true; /* the super header is judged */
	case TYPE_Q6_K:
		return put_q6_k_scales(block, b, lane, header);
	default:
		return put_decoded_scales(type, block, b, lane, header);
	}
}

/* ---- panels ---- */

/* Block by block, because the panel's lie one after the other and the rows' fit the first-level cache
 * together. */
PANEL_INLINE int pack_quantised(const enum weight_type type, const uint8_t *raw, uint32_t rows, uint32_t k,
				uint8_t *panel)
{
	const enum panel_kind kind = panel_kind_of(type);
	const uint32_t per = weight_type_info[type].block_weights / BLOCK_COLUMNS;
	const size_t block_bytes = weight_type_info[type].block_bytes, row_bytes = weight_type_bytes(type, k);
	bool finite = true;

	for (uint32_t b = 0; b < k / BLOCK_COLUMNS; b++) {
		const uint8_t *first = raw + b / per * block_bytes;
		if (panel_has_super(kind) && b % per == 0) {
			for (uint32_t lane = 0; lane < rows; lane++)
				finite &= put_super(first + lane * row_bytes, lane, panel);
			panel += PANEL_SUPER_BYTES;
		}
		for (uint32_t lane = 0; lane < rows; lane++) {
			const uint8_t *block = first + lane * row_bytes;
			uint32_t w[WORDS];
			words_of(type, block, b % per, w);
			put_quants(kind, w, lane, panel + panel_header_bytes(kind));
			finite &= put_scales(type, block, b % per, lane, panel);
		}
		panel += panel_block_bytes(kind);
	}
	return finite ? 0 : -EDOM;
}

PANEL_INLINE void pack_floats(const size_t bytes, const uint8_t *raw, uint32_t rows, uint32_t k,
			      uint8_t *panel)
{
	for (uint32_t c = 0; c < k; c += TRANSPOSED_COLUMNS)
		for (uint32_t lane = 0; lane < rows; lane++)
			for (uint32_t i = c; i < k && i < c + TRANSPOSED_COLUMNS; i++)
				memcpy(panel + (i * (size_t)PANEL_ROWS + lane) * bytes,
				       raw + (lane * (size_t)k + i) * bytes, bytes);
}

int panel_pack(enum weight_type type, const void *raw, uint32_t rows, uint32_t k, uint8_t *panel)
{
	/* Missing rows have scale zero; whatever their quants mean, their outputs are dropped. */
	if (rows < PANEL_ROWS)
		memset(panel, 0, panel_bytes(panel_kind_of(type), k));
	switch (type) {
#define CASE(type) \
	case type: \
		return pack_quantised(type, raw, rows, k, panel)
		CASE(TYPE_Q4_0);
		CASE(TYPE_Q4_1);
		CASE(TYPE_Q4_K);
		CASE(TYPE_Q5_0);
		CASE(TYPE_Q5_1);
		CASE(TYPE_Q5_K);
		CASE(TYPE_Q6_K);
		CASE(TYPE_Q8_0);
		CASE(TYPE_Q2_K);
		CASE(TYPE_Q3_K);
#undef CASE
	case TYPE_F32:
		pack_floats(sizeof(float), raw, rows, k, panel);
		return 0;
	case TYPE_F16:
	case TYPE_BF16:
		pack_floats(sizeof(uint16_t), raw, rows, k, panel);
		return 0;
	default:
		return -EINVAL;
	}
}
