#include "tools/cli/histogram.h"

#include <math.h>

void histogram_merge(struct histogram *h, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		h->count[i] += from->count[i];
	h->n += from->n;
	if (from->max > h->max)
		h->max = from->max;
}

static uint64_t middle(unsigned bucket)
{
	unsigned half = 1u << HISTOGRAM_LINEAR_BITS;
	if (bucket < 2 * half)
		return bucket;
	unsigned shift = (bucket >> HISTOGRAM_LINEAR_BITS) - 1;
	uint64_t low = (uint64_t)(bucket - (shift << HISTOGRAM_LINEAR_BITS)) << shift;
	return low + ((1ULL << shift) >> 1);
}

uint64_t histogram_percentile(const struct histogram *h, double fraction)
{
	uint64_t rank = (uint64_t)ceil(fraction * (double)h->n), seen = 0;
	if (rank < 1)
		rank = 1;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->count[i];
		if (seen >= rank)
			return middle(i) < h->max ? middle(i) : h->max;
	}
	return h->max;
}
