/* Built once for each instruction set, with LOGITS_OPS as the name of its table: plain loops for the compiler
 * to vectorise. Nothing here depends on the order of evaluation, so the bits are the same everywhere. */
#include "daemon/engine/logits.h"

#include "kernels/contract.h"

enum { LANES = 16 };

static float max(const float *x, uint32_t n)
{
	float lane[LANES], best = -INFINITY;
	uint32_t i = 0, not_a_number = 0;

	for (int j = 0; j < LANES; j++)
		lane[j] = -INFINITY;
	for (; i + LANES <= n; i += LANES) {
		for (uint32_t j = 0; j < LANES; j++) {
			lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
			not_a_number |= x[i + j] != x[i + j];
		}
	}
	for (; i < n; i++) {
		lane[0] = x[i] > lane[0] ? x[i] : lane[0];
		not_a_number |= x[i] != x[i];
	}
	for (int j = 0; j < LANES; j++)
		best = lane[j] > best ? lane[j] : best;
	return not_a_number ? NAN : best;
}

/* Where the value lies among 64: the search for those is what a vectoriser understands. */
static uint32_t find(const float *x, uint32_t n, float value)
{
	enum { TOGETHER = 64 };
	uint32_t i = 0;

	for (uint32_t any = 0; i + TOGETHER <= n; i += TOGETHER) {
		for (uint32_t j = 0; j < TOGETHER; j++)
			any |= x[i + j] == value;
		if (any)
			break;
	}
	while (i < n && x[i] != value)
		i++;
	return i;
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

const struct logits_ops LOGITS_OPS = {.max = max, .find = find, .divide = divide, .exp = exponentials};
