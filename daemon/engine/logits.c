/* Built once for each instruction set, with LOGITS_OPS as the name of its table: plain loops for the compiler
 * to vectorise. Nothing here depends on the order of evaluation, so the bits are the same everywhere. */
#include "daemon/engine/logits.h"

#include <stdbool.h>

#include "kernels/contract.h"

enum { TOGETHER = 64 /* are searched before it is asked whether one was found */ };

/* Integers that are ordered as floats are, and -0 below +0. A vectoriser knows the largest of integers; of
 * floats it must keep the order of comparisons, and compares one by one. */
static int32_t ordered(int32_t bits)
{
	return bits < 0 ? bits ^ INT32_MAX : bits;
}

static float max(const float *x, uint32_t n)
{
	int32_t best = ordered((int32_t)float_bits(-INFINITY)), magnitude = 0;

	for (uint32_t i = 0; i < n; i++) {
		int32_t bits = (int32_t)float_bits(x[i]), key = ordered(bits);
		best = key > best ? key : best;
		magnitude = (bits & INT32_MAX) > magnitude ? bits & INT32_MAX : magnitude;
	}
	return magnitude > (int32_t)float_bits(INFINITY) ? NAN : float_from_bits((uint32_t)ordered(best));
}

/* The first i that is above the value, or equal to it; n if there is none. Of TOGETHER it is asked at once.
 */
static inline uint32_t first(const float *x, uint32_t i, uint32_t n, float value, const bool above)
{
	for (; i + TOGETHER <= n; i += TOGETHER) {
		const float *y = x + i; /* an index might wrap, which keeps a vectoriser away */
		uint32_t any = 0;

		for (int j = 0; j < TOGETHER; j++)
			any |= above ? y[j] > value : y[j] == value;
		if (any)
			break;
	}
	while (i < n && !(above ? x[i] > value : x[i] == value))
		i++;
	return i;
}

static uint32_t find(const float *x, uint32_t n, float value)
{
	return first(x, 0, n, value, false);
}

static uint32_t find_above(const float *x, uint32_t from, uint32_t n, float value)
{
	return first(x, from, n, value, true);
}

static void divide(const float *x, float divisor, float *y, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = x[i] / divisor;
}

static void exponentials(const float *x, float shift, float *y, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = contract_exp(x[i] - shift);
}

const struct logits_ops LOGITS_OPS = {
    .max = max, .find = find, .above = find_above, .divide = divide, .exp = exponentials};
