/* Attention kernels alone, on keys, values, queries and outputs that end at pages which cannot be touched.
 * What a query must not see is NaN; another query of the same call may see it. */
#include "tests/conformance/conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "kernels/contract.h"
#include "kernels/cpu/isa.h"
#include "tests/conformance/fence.h"
#include "tests/conformance/synthetic.h"

enum { TILES = 3, KEYS = TILES * TAPE_KV_BLOCK, BLOCKS = 5, DIMS_MAX = 256, HALF_NAN = 0x7e00 };

static const uint32_t table[TILES] = {4, 0, 2};

struct cache {
	uint16_t *k, *v;
	size_t k_bytes, v_bytes;
	struct attention_source source;
};

static float uniform(uint64_t *random)
{
	return (float)(synthetic_random(random) >> 40) / (float)(1 << 23) - 1.0f;
}

/* The element at `at` of key or value `key`'s tile. */
static uint16_t *element(uint16_t *cache, const struct attention_source *source, uint32_t key, size_t at)
{
	return cache + table[key / TAPE_KV_BLOCK] * source->block_elements + at;
}

static uint16_t *k_at(const struct cache *c, uint32_t key, uint32_t d)
{
	return element(c->k, &c->source, key, (size_t)d * TAPE_KV_BLOCK + key % TAPE_KV_BLOCK);
}

static uint16_t *v_at(const struct cache *c, uint32_t key, uint32_t d)
{
	return element(c->v, &c->source, key, (size_t)(key % TAPE_KV_BLOCK) * c->source.dv + d);
}

/* Keys from `seen` on are NaN, and so is all that belongs to no block of the table. */
static struct cache make_cache(uint32_t dk, uint32_t dv, uint32_t seen, float softcap, uint64_t *random)
{
	size_t block = (size_t)(dk > dv ? dk : dv) * TAPE_KV_BLOCK;
	struct cache c = {.k_bytes = 2 * ((BLOCKS - 1) * block + (size_t)dk * TAPE_KV_BLOCK),
			  .v_bytes = 2 * ((BLOCKS - 1) * block + (size_t)dv * TAPE_KV_BLOCK)};

	c.k = fence_alloc(c.k_bytes, 2);
	c.v = fence_alloc(c.v_bytes, 2);
	c.source = (struct attention_source){.k = c.k,
					     .v = c.v,
					     .block_elements = block,
					     .table = table,
					     .dk = dk,
					     .dv = dv,
					     .scale = 0.3f,
					     .softcap = softcap};
	c.source.ahead = attention_tile(&c.source, 0);
	for (size_t i = 0; i < c.k_bytes / 2; i++)
		c.k[i] = HALF_NAN;
	for (size_t i = 0; i < c.v_bytes / 2; i++)
		c.v[i] = HALF_NAN;
	for (uint32_t key = 0; key < seen; key++) {
		for (uint32_t d = 0; d < dk; d++)
			*k_at(&c, key, d) = f16_from_f32(2.0f * uniform(random));
		for (uint32_t d = 0; d < dv; d++)
			*v_at(&c, key, d) = f16_from_f32(uniform(random));
	}
	return c;
}

static void free_cache(struct cache *c)
{
	fence_free(c->k, c->k_bytes, 2);
	fence_free(c->v, c->v_bytes, 2);
}

static float score_of(const struct cache *c, const float *q, uint32_t key)
{
	float acc = 0;

	for (uint32_t d = 0; d < c->source.dk; d++)
		acc = fmaf(q[d], f16_to_f32(*k_at(c, key, d)), acc);
	acc = acc * c->source.scale;
	return c->source.softcap > 0 ? contract_softcap(acc, c->source.softcap) : acc;
}

static void want_attention(const struct cache *c, const struct attention_query *query, uint32_t to,
			   struct contract_softmax *state, float *o)
{
	uint32_t dv = c->source.dv;
	float v[TAPE_KV_BLOCK * DIMS_MAX], score[TAPE_KV_BLOCK];
	uint8_t mask[TAPE_KV_BLOCK];

	*state = (struct contract_softmax){-INFINITY, 0};
	memset(o, 0, dv * sizeof *o);
	for (uint32_t from = query->first / TAPE_KV_BLOCK * TAPE_KV_BLOCK; from < to && from < query->end;
	     from += TAPE_KV_BLOCK) {
		for (uint32_t j = 0; j < TAPE_KV_BLOCK; j++) {
			mask[j] = from + j >= query->first && from + j < query->end;
			score[j] = score_of(c, query->q, from + j);
			for (uint32_t d = 0; d < dv; d++)
				v[j * dv + d] = f16_to_f32(*v_at(c, from + j, d));
		}
		contract_tile(score, mask, v, dv, dv, state, o);
	}
}

struct queries {
	uint32_t n, dk, padded; /* floats of an output */
	struct attention_query query[QUERY_ROWS];
};

static struct queries make_queries(const struct cache *c, uint32_t n, uint32_t seen, uint64_t *random)
{
	struct queries all = {.n = n, .dk = c->source.dk, .padded = (c->source.dv + 15) / 16 * 16};

	for (uint32_t i = 0; i < n; i++) {
		float *q = fence_alloc(all.dk * sizeof *q, sizeof *q);
		for (uint32_t d = 0; d < all.dk; d++)
			q[d] = uniform(random);
		/* Of rows that follow each other, one sees a key more than the one before; some by a window.
		 */
		all.query[i] = (struct attention_query){
		    .q = q,
		    .first = i % 3 == 2 ? i : 0,
		    .end = seen - n + 1 + i,
		    .o = fence_alloc(all.padded * sizeof(float), 64),
		};
		memset(all.query[i].o, 0xff, all.padded * sizeof(float));
	}
	return all;
}

static void free_queries(struct queries *all)
{
	for (uint32_t i = 0; i < all->n; i++) {
		fence_free((void *)all->query[i].q, all->dk * sizeof(float), sizeof(float));
		fence_free(all->query[i].o, all->padded * sizeof(float), 64);
	}
}

static void check_query(const struct cpu_isa *isa, const struct cache *c, struct attention_query *query)
{
	struct contract_softmax state;
	float want[DIMS_MAX], merged[DIMS_MAX], M, L;
	uint32_t dv = c->source.dv;

	want_attention(c, query, KEYS, &state, want);
	assert_true(state.l >= 1.0f && state.l <= KEYS && fabsf(want[dv - 1]) < KEYS); /* no NaN in it */
	if (memcmp(query->o, want, dv * sizeof *want) || memcmp(&query->m, &state.m, sizeof state.m) ||
	    memcmp(&query->l, &state.l, sizeof state.l))
		fail_msg("%s: keys [%u, %u), %u and %u columns: m %a l %a, wanted %a %a", isa->name,
			 query->first, query->end, c->source.dk, dv, (double)query->m, (double)query->l,
			 (double)state.m, (double)state.l);
	/* Merged into another segment, which is half of it here. */
	size_t bytes = (dv + 15) / 16 * 16 * sizeof(float);
	float *O = fence_alloc(bytes, 64), *y = fence_alloc(dv * sizeof *y, sizeof *y);
	struct contract_softmax total = {state.m + 1.0f, 0.5f * state.l};
	for (uint32_t d = 0; d < dv; d++)
		O[d] = merged[d] = 0.5f * want[d];
	M = total.m;
	L = total.l;
	isa->merge(&M, &L, O, query, dv);
	contract_merge(&total, merged, &state, want, dv);
	assert_true(M == total.m && L == total.l);
	assert_memory_equal(O, merged, dv * sizeof *O);
	isa->divide(O, L, dv, y);
	for (uint32_t d = 0; d < dv; d++)
		assert_true(y[d] == merged[d] / total.l);
	fence_free(O, bytes, 64);
	fence_free(y, dv * sizeof *y, sizeof *y);
}

void attention_stays_in_bounds(void **state)
{
	static const struct {
		uint32_t dk, dv, seen;
		float softcap;
	} shapes[] = {{14, 6, 33, 0}, {64, 64, 96, 0}, {80, 72, 65, 0}, {256, 256, 40, 5.0f}, {1, 17, 32, 0}};
	const struct cpu_isa *isa = conformance_isa();
	uint32_t saved = contract_enter();
	uint64_t random = 6;

	for (unsigned i = 0; isa && i < sizeof shapes / sizeof shapes[0]; i++)
		for (uint32_t n = 1; n <= QUERY_ROWS; n++) {
			struct cache c = make_cache(shapes[i].dk, shapes[i].dv, shapes[i].seen,
						    shapes[i].softcap, &random);
			struct queries all = make_queries(&c, n, shapes[i].seen, &random);
			isa->attend(&c.source, all.query, n, 0, (shapes[i].seen + 31) / 32 * 32);
			for (uint32_t q = 0; q < n; q++)
				check_query(isa, &c, &all.query[q]);
			free_queries(&all);
			free_cache(&c);
		}
	contract_leave(saved);
}
