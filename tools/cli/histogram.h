/* A histogram of non-negative integers with bounded relative error, in the manner of HdrHistogram
 * (G. Tene, http://hdrhistogram.org): log-linear buckets, 128 to each power of two.
 *
 * Values below 256 are exact; above, a reported percentile lies within 0.4 % of the sample of that rank (half
 * a bucket, 1/256). Recording is a handful of instructions and allocates nothing. One thread at a time. */
#ifndef TOKENRING_TOOLS_CLI_HISTOGRAM_H
#define TOKENRING_TOOLS_CLI_HISTOGRAM_H

#include <stdint.h>

enum {
	HISTOGRAM_LINEAR_BITS = 7,
	HISTOGRAM_BUCKETS = (64 - HISTOGRAM_LINEAR_BITS + 1) << HISTOGRAM_LINEAR_BITS,
};

struct histogram {
	uint64_t n, max;
	uint64_t count[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram_bucket(uint64_t value)
{
	unsigned top = 63 - (unsigned)__builtin_clzll(value | 1);
	unsigned shift = top > HISTOGRAM_LINEAR_BITS ? top - HISTOGRAM_LINEAR_BITS : 0;
	return (shift << HISTOGRAM_LINEAR_BITS) + (unsigned)(value >> shift);
}

static inline void histogram_add_many(struct histogram *h, uint64_t value, uint64_t n)
{
	h->count[histogram_bucket(value)] += n;
	h->n += n;
	if (value > h->max)
		h->max = value;
}

static inline void histogram_add(struct histogram *h, uint64_t value)
{
	histogram_add_many(h, value, 1);
}

/* Adds all samples of `from`. */
void histogram_merge(struct histogram *h, const struct histogram *from);

/* The value of rank ceil(fraction * n), 0 < fraction <= 1; 0 when there are no samples. Never above max. */
uint64_t histogram_percentile(const struct histogram *h, double fraction);

/* The same between the steps of a coarse clock: where many samples have one value, they are taken as spread
 * evenly over its cell, half way to the nearer neighbour on each side. Counters of time stamps step by 10 ns
 * on some machines, a tenth of an echo. */
double histogram_quantile(const struct histogram *h, double fraction);

/* Correction for coordinated omission, as in HdrHistogram: adds to `to` every sample of `from` and, for one
 * longer than `interval` at which samples were due, those that it kept from being taken: v - interval,
 * v - 2 interval, ... down to `interval`. An interval of 0 corrects nothing. */
void histogram_correct(struct histogram *to, const struct histogram *from, uint64_t interval);

#endif
