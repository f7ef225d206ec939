#include "tests/conformance/player.h"

#include <string.h>

#include "kernels/cpu/program.h"
#include "kernels/formats.h"
#include "kernels/ref/ref.h"

/* One element of a head's keys or values. */
struct place {
	uint32_t group, layer, block, slot, head, d;
	bool value;
};

size_t player_kv_elements(const struct player *player, uint32_t group, uint32_t n)
{
	const struct tape_group *g = &player->tape->groups[group];
	return (size_t)g->layers * n * g->kv_heads * (g->dk + g->dv);
}

/* In a head's part of a block: keys in lanes, values in rows. */
static size_t inside(const struct tape_group *g, const struct place *p)
{
	return p->value ? (size_t)p->slot * g->dv + p->d : (size_t)p->d * TAPE_KV_BLOCK + p->slot;
}

static float cached_by_cpu(const struct player *player, const struct place *p)
{
	const struct cpu_program *program = (const struct cpu_program *)player->program;
	const struct tape_group *g = &player->tape->groups[p->group];
	enum weight_type type = player->limits.kv_type;
	uint8_t *block = kv_block(program, p->group, p->layer, p->block);
	const uint8_t *part = p->value ? kv_values(program, p->group, block, p->head)
				       : kv_keys(program, p->group, block, p->head);
	const uint16_t *half = (const uint16_t *)part;

	if (type == TYPE_Q8_0) {
		const uint8_t *quants = part + kv_scales_bytes(type, p->value ? g->dv : g->dk);
		int q = p->value ? (int8_t)quants[inside(g, p)] : quants[kv_quad(p->d, p->slot)] - 128;
		return (float)q * f16_to_f32(half[p->d / 32 * TAPE_KV_BLOCK + p->slot]);
	}
	return type == TYPE_BF16 ? bf16_to_f32(half[inside(g, p)]) : f16_to_f32(half[inside(g, p)]);
}

static float cached_by_ref(const struct player *player, const struct place *p)
{
	const struct ref_cache *cache = &((const struct ref_program *)player->program)->cache[p->group];
	const struct tape_group *g = &player->tape->groups[p->group];
	size_t block = (size_t)p->layer * player->limits.blocks[p->group] + p->block;
	enum weight_type type = player->limits.kv_type;
	uint32_t d = p->value ? g->dv : g->dk;
	const float *head =
	    (p->value ? cache->v : cache->k) + (block * g->kv_heads + p->head) * ref_head(type, d);
	float scale = type == TYPE_Q8_0 ? head[p->d / 32 * TAPE_KV_BLOCK + p->slot] : 1.0f;

	return head[ref_scales(type, d) + inside(g, p)] * scale;
}

/* Fills the keys and then the values of one head at one position; returns what comes after them. */
static float *copy_head(const struct player *player, struct place p, float *to)
{
	const struct tape_group *g = &player->tape->groups[p.group];
	bool ref = !strncmp(backend_isa(player->backend), "ref", 3);

	for (uint32_t i = 0; i < g->dk + g->dv; i++) {
		p.value = i >= g->dk;
		p.d = p.value ? i - g->dk : i;
		*to++ = ref ? cached_by_ref(player, &p) : cached_by_cpu(player, &p);
	}
	return to;
}

void player_kv(const struct player *player, uint32_t group, const uint32_t *blocks, uint32_t n, float *ret)
{
	const struct tape_group *g = &player->tape->groups[group];
	struct place p = {.group = group};

	for (p.layer = 0; p.layer < g->layers; p.layer++)
		for (uint32_t at = 0; at < n; at++) {
			p.block = blocks[at / TAPE_KV_BLOCK];
			p.slot = at % TAPE_KV_BLOCK;
			for (p.head = 0; p.head < g->kv_heads; p.head++)
				ret = copy_head(player, p, ret);
		}
}
