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

static uint64_t rank_of(const struct histogram *h, double fraction)
{
	uint64_t rank = (uint64_t)ceil(fraction * (double)h->n);
	return rank ? rank : 1;
}

/* The bucket of the sample of a rank, and how many samples lie below that bucket; the last bucket if the rank
 * is above all samples. */
static unsigned find_rank(const struct histogram *h, uint64_t rank, uint64_t *ret_below)
{
	uint64_t below = 0;
	unsigned i = 0;
	while (i < HISTOGRAM_BUCKETS - 1 && below + h->count[i] < rank)
		below += h->count[i++];
	*ret_below = below;
	return i;
}

uint64_t histogram_percentile(const struct histogram *h, double fraction)
{
	uint64_t below;
	uint64_t value = middle(find_rank(h, rank_of(h, fraction), &below));
	return value < h->max ? value : h->max;
}

/* Half the distance from a bucket to the nearer one that has samples too; half a unit if there is none. */
static double half_cell(const struct histogram *h, unsigned at)
{
	unsigned down = at, up = at;
	while (down > 0 && !h->count[--down])
		;
	while (up < HISTOGRAM_BUCKETS - 1 && !h->count[++up])
		;
	double below = down != at && h->count[down] ? (double)(middle(at) - middle(down)) : INFINITY;
	double above = up != at && h->count[up] ? (double)(middle(up) - middle(at)) : INFINITY;
	double nearer = below < above ? below : above;
	return isinf(nearer) ? 0.5 : nearer / 2;
}

double histogram_quantile(const struct histogram *h, double fraction)
{
	enum { FEW = 8 }; /* too few samples to say how they are spread */
	uint64_t rank = rank_of(h, fraction), below;
	unsigned at = find_rank(h, rank, &below);
	if (h->count[at] < FEW)
		return (double)histogram_percentile(h, fraction);
	double share = ((double)(rank - below) - 0.5) / (double)h->count[at];
	return (double)middle(at) + (2 * share - 1) * half_cell(h, at);
}

void histogram_correct(struct histogram *to, const struct histogram *from, uint64_t interval)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		uint64_t value = middle(i) < from->max ? middle(i) : from->max;
		if (!from->count[i])
			continue;
		histogram_add_many(to, value, from->count[i]);
		while (interval && value >= 2 * interval)
			histogram_add_many(to, value -= interval, from->count[i]);
	}
	if (from->max > to->max)
		to->max = from->max;
}
