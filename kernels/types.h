/* Element types of weights and caches: block geometry, shared by model files, backends and tools.
 *
 * Thread rule: constants and pure functions.
 * Source: the GGUF specification's table of tensor types; the block structures are in formats.h. */
#ifndef TOKENRING_KERNELS_TYPES_H
#define TOKENRING_KERNELS_TYPES_H

#include <stdbool.h>
#include <stdint.h>

/* X(enum name, printed name, GGUF type number, weights a block, bytes a block) */
#define WEIGHT_TYPES(X)                    \
	X(TYPE_F32, "F32", 0, 1, 4)        \
	X(TYPE_F16, "F16", 1, 1, 2)        \
	X(TYPE_Q4_0, "Q4_0", 2, 32, 18)    \
	X(TYPE_Q4_1, "Q4_1", 3, 32, 20)    \
	X(TYPE_Q5_0, "Q5_0", 6, 32, 22)    \
	X(TYPE_Q5_1, "Q5_1", 7, 32, 24)    \
	X(TYPE_Q8_0, "Q8_0", 8, 32, 34)    \
	X(TYPE_Q2_K, "Q2_K", 10, 256, 84)  \
	X(TYPE_Q3_K, "Q3_K", 11, 256, 110) \
	X(TYPE_Q4_K, "Q4_K", 12, 256, 144) \
	X(TYPE_Q5_K, "Q5_K", 13, 256, 176) \
	X(TYPE_Q6_K, "Q6_K", 14, 256, 210) \
	X(TYPE_BF16, "BF16", 30, 1, 2)

enum weight_type {
#define X(name, text, gguf, weights, bytes) name,
	WEIGHT_TYPES(X)
#undef X
	    TYPE_COUNT
};

struct weight_type_info {
	const char *name;
	uint32_t gguf; /* the number in a GGUF file */
	uint32_t block_weights;
	uint32_t block_bytes;
};

/* One row a type, indexed by enum weight_type. */
extern const struct weight_type_info weight_type_info[TYPE_COUNT];

/* The type with this GGUF number, or TYPE_COUNT if tokenring does not read it. */
enum weight_type weight_type_from_gguf(uint32_t gguf);

/* Bytes of `n` weights; n must be a multiple of the type's block. */
static inline uint64_t weight_type_bytes(enum weight_type type, uint64_t n)
{
	return n / weight_type_info[type].block_weights * weight_type_info[type].block_bytes;
}

/* The types that a KV cache of the int8 contract may have. */
static inline bool kv_type_exact(enum weight_type type)
{
	return type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_Q8_0;
}

/* Bytes of one token's `d` keys or values of a head in a KV cache of F16, BF16, F32 or Q8_0. The last group
 * of a Q8_0 row may be short. */
static inline uint64_t kv_row_bytes(enum weight_type type, uint32_t d)
{
	return type == TYPE_Q8_0 ? d + (d + 31) / 32 * 2 : weight_type_bytes(type, d);
}

#endif
