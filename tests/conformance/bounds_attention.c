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

enum { TILES = 3, KEYS = TILES * TAPE_KV_BLOCK, BLOCKS = 5, DIMS_MAX = 256, HALF_NAN = 0x7fff };

static const uint32_t table[TILES] = {4, 0, 2};
static const enum weight_type cache_types[] = {TYPE_F16, TYPE_BF16, TYPE_Q8_0};

/* The keys or the values. */
struct part {
	uint8_t *data;
	size_t bytes;
	uint32_t d;
	bool value;
};

struct cache {
	struct part k, v;
	struct attention_source source;
};

static float uniform(uint64_t *random)
{
	return (float)(synthetic_random(random) >> 40) / (float)(1 << 23) - 1.0f;
}

/* What precedes the elements of the key's tile: scales, or nothing. */
static uint8_t *tile_of(const struct cache *c, const struct part *part, uint32_t key)
{
	return part->data + table[key / TAPE_KV_BLOCK] * c->source.block_bytes;
}

static uint16_t *scale_at(const struct cache *c, const struct part *part, uint32_t key, uint32_t d)
{
	return (uint16_t *)tile_of(c, part, key) + d / 32 * TAPE_KV_BLOCK + key % TAPE_KV_BLOCK;
}

/* The element's index among those of its tile. */
static size_t inside(const struct part *part, uint32_t key, uint32_t d)
{
	uint32_t slot = key % TAPE_KV_BLOCK;
	return part->value ? (size_t)slot * part->d + d : (size_t)d * TAPE_KV_BLOCK + slot;
}

/* A value is signed, a key biased by 128. */
static uint8_t *quant_at(const struct cache *c, const struct part *part, uint32_t key, uint32_t d)
{
	return tile_of(c, part, key) + kv_scales_bytes(TYPE_Q8_0, part->d) +
	       (part->value ? inside(part, key, d) : kv_quad(d, key % TAPE_KV_BLOCK));
}

static void put(const struct cache *c, const struct part *part, uint32_t key, const float *x)
{
	enum weight_type type = c->source.type;
	uint8_t *tile = tile_of(c, part, key);
	int8_t q[32];

	for (uint32_t d = 0; d < part->d; d++) {
		uint16_t *half = (uint16_t *)tile + inside(part, key, d);
		if (type == TYPE_F16)
			*half = f16_from_f32(x[d]);
		else if (type == TYPE_BF16)
			*half = bf16_from_f32(x[d]);
		else if (d % 32 == 0)
			contract_quantise_kv(x + d, part->d - d < 32 ? part->d - d : 32, q,
					     scale_at(c, part, key, d));
		if (type == TYPE_Q8_0)
			*quant_at(c, part, key, d) = (uint8_t)(q[d % 32] + (part->value ? 0 : 128));
	}
}

/* An element of F16 or BF16, a quant of Q8. */
static float get(const struct cache *c, const struct part *part, uint32_t key, uint32_t d)
{
	enum weight_type type = c->source.type;

	if (type == TYPE_Q8_0 && part->value)
		return (float)(int8_t)*quant_at(c, part, key, d);
	if (type == TYPE_Q8_0)
		return (float)(*quant_at(c, part, key, d) - 128);
	uint16_t half = ((const uint16_t *)tile_of(c, part, key))[inside(part, key, d)];
	return type == TYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

/* Scales of the tile that begins at `key`: (groups, 32). */
static void get_scales(const struct cache *c, const struct part *part, uint32_t key, float *ret)
{
	for (uint32_t g = 0; g < part->d; g += 32)
		for (uint32_t j = 0; j < TAPE_KV_BLOCK; j++)
			*ret++ = f16_to_f32(*scale_at(c, part, key + j, g));
}

/* All of it is NaN, what belongs to no block of the table, too. */
static struct part make_part(enum weight_type type, uint32_t d, bool value, size_t block)
{
	size_t own = value ? kv_value_bytes(type, d) : kv_key_bytes(type, d);
	struct part part = {.bytes = (BLOCKS - 1) * block + own, .d = d, .value = value};

	part.data = fence_alloc(part.bytes, 2);
	for (size_t i = 0; i < part.bytes / 2; i++)
		((uint16_t *)part.data)[i] = HALF_NAN;
	return part;
}

/* Keys from `seen` on are NaN. */
static struct cache make_cache(enum weight_type type, uint32_t dk, uint32_t dv, uint32_t seen, float softcap,
			       uint64_t *random)
{
	size_t block = kv_key_bytes(type, dk > dv ? dk : dv);
	struct cache c = {.k = make_part(type, dk, false, block), .v = make_part(type, dv, true, block)};
	float x[DIMS_MAX];

	c.source = (struct attention_source){.type = type,
					     .k = c.k.data,
					     .v = c.v.data,
					     .block_bytes = block,
					     .table = table,
					     .dk = dk,
					     .dv = dv,
					     .scale = 0.3f,
					     .softcap = softcap};
	for (uint32_t key = 0; key < seen; key++) {
		for (uint32_t d = 0; d < dk; d++)
			x[d] = 2.0f * uniform(random);
		put(&c, &c.k, key, x);
		for (uint32_t d = 0; d < dv; d++)
			x[d] = uniform(random);
		put(&c, &c.v, key, x);
	}
	return c;
}

static void free_cache(struct cache *c)
{
	fence_free(c->k.data, c->k.bytes, 2);
	fence_free(c->v.data, c->v.bytes, 2);
}

static void want_scores(const struct cache *c, const float *q, uint32_t from, float *score)
{
	float k[DIMS_MAX * TAPE_KV_BLOCK], scale[DIMS_MAX];

	for (uint32_t j = 0; j < TAPE_KV_BLOCK; j++) {
		score[j] = 0;
		for (uint32_t d = 0; d < c->source.dk; d++) {
			k[d * TAPE_KV_BLOCK + j] = get(c, &c->k, from + j, d);
			score[j] = fmaf(q[d], k[d * TAPE_KV_BLOCK + j], score[j]);
		}
	}
	if (c->source.type == TYPE_Q8_0) {
		get_scales(c, &c->k, from, scale);
		contract_key_scores(q, k, scale, c->source.dk, score);
	}
	for (uint32_t j = 0; j < TAPE_KV_BLOCK; j++) {
		score[j] = score[j] * c->source.scale;
		if (c->source.softcap > 0)
			score[j] = contract_softcap(score[j], c->source.softcap);
	}
}

static void want_attention(const struct cache *c, const struct attention_query *query, uint32_t to,
			   struct contract_softmax *state, float *o)
{
	uint32_t dv = c->source.dv;
	float v[TAPE_KV_BLOCK * DIMS_MAX], scale[DIMS_MAX], score[TAPE_KV_BLOCK];
	uint8_t mask[TAPE_KV_BLOCK];

	*state = (struct contract_softmax){-INFINITY, 0};
	memset(o, 0, dv * sizeof *o);
	for (uint32_t from = query->first / TAPE_KV_BLOCK * TAPE_KV_BLOCK; from < to && from < query->end;
	     from += TAPE_KV_BLOCK) {
		for (uint32_t j = 0; j < TAPE_KV_BLOCK; j++) {
			mask[j] = from + j >= query->first && from + j < query->end;
			for (uint32_t d = 0; d < dv; d++)
				v[j * dv + d] = get(c, &c->v, from + j, d);
		}
		want_scores(c, query->q, from, score);
		if (c->source.type == TYPE_Q8_0)
			get_scales(c, &c->v, from, scale);
		contract_tile(score, mask, v, c->source.type == TYPE_Q8_0 ? scale : NULL, dv, dv, state, o);
	}
}

struct queries {
	uint32_t n, dk, padded; /* floats of an output */
	struct attention_query query[QUERY_ROWS];
};

static struct queries make_queries(const struct cpu_isa *isa, const struct cache *c, uint32_t n,
				   uint32_t seen, uint64_t *random)
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
		struct query_block *q8 = fence_alloc(query_blocks(all.dk) * sizeof *q8, sizeof(float));
		isa->quantise_query(q, all.dk, q8);
		all.query[i].q8 = q8;
		memset(all.query[i].o, 0xff, all.padded * sizeof(float));
	}
	return all;
}

static void free_queries(struct queries *all)
{
	for (uint32_t i = 0; i < all->n; i++) {
		fence_free((void *)all->query[i].q, all->dk * sizeof(float), sizeof(float));
		fence_free((void *)all->query[i].q8, query_blocks(all->dk) * sizeof(struct query_block),
			   sizeof(float));
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
		fail_msg("%s, %s: keys [%u, %u), %u and %u columns: m %a l %a, wanted %a %a", isa->name,
			 weight_type_info[c->source.type].name, query->first, query->end, c->source.dk, dv,
			 (double)query->m, (double)query->l, (double)state.m, (double)state.l);
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

static void check_type(const struct cpu_isa *isa, enum weight_type type, uint64_t *random)
{
	static const struct {
		uint32_t dk, dv, seen;
		float softcap;
	} shapes[] = {{14, 6, 33, 0}, {64, 64, 96, 0}, {80, 72, 65, 0}, {256, 256, 40, 5.0f}, {1, 17, 32, 0}};

	for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (uint32_t n = 1; n <= QUERY_ROWS; n++) {
			struct cache c = make_cache(type, shapes[i].dk, shapes[i].dv, shapes[i].seen,
						    shapes[i].softcap, random);
			struct queries all = make_queries(isa, &c, n, shapes[i].seen, random);
			isa->attend(&c.source, 1, all.query, n, 0, (shapes[i].seen + 31) / 32 * 32);
			for (uint32_t q = 0; q < n; q++)
				check_query(isa, &c, &all.query[q]);
			free_queries(&all);
			free_cache(&c);
		}
}

void attention_stays_in_bounds(void **state)
{
	const struct cpu_isa *isa = conformance_isa();
	uint32_t saved = contract_enter();
	uint64_t random = 6;

	for (unsigned i = 0; isa && i < sizeof cache_types / sizeof cache_types[0]; i++)
		check_type(isa, cache_types[i], &random);
	contract_leave(saved);
}
