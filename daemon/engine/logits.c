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

const struct logits_ops LOGITS_OPS = {.max = max, .divide = divide, .exp = exponentials};
