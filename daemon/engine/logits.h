/* The loops over a row of logits, compiled once for each instruction set; all give the same bits.
 *
 * Thread rule: pure functions. */
#ifndef TOKENRING_DAEMON_ENGINE_LOGITS_H
#define TOKENRING_DAEMON_ENGINE_LOGITS_H

#include <stdint.h>

struct logits_ops {
	/* The largest of x (n), +0 if there are zeros of both signs, or NaN if any is NaN; -inf for n = 0. */
	float (*max)(const float *x, uint32_t n);
	/* The first i with x[i] == value; n if there is none. */
	uint32_t (*find)(const float *x, uint32_t n, float value);
	/* The first i >= `from` with x[i] > value; n if there is none. */
	uint32_t (*above)(const float *x, uint32_t from, uint32_t n, float value);
	/* y[i] = x[i] / divisor */
	void (*divide)(const float *x, float divisor, float *y, uint32_t n);
	/* y[i] = exp(x[i] - shift), the contract's exp. */
	void (*exp)(const float *x, float shift, float *y, uint32_t n);
};

extern const struct logits_ops logits_generic, logits_avx2;

/* The fastest that this CPU runs. Static. */
const struct logits_ops *logits_pick(void);

#endif
