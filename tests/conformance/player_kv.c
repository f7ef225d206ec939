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
	const struct cpu_kv *kv = &program->kv[p->group];
	enum weight_type type = player->limits.kv_type;
	const uint8_t *part = kv_block(program, p->group, p->layer, p->block) + p->head * kv->head_bytes +
			      (p->value ? kv->key_bytes : 0);
	const uint16_t *half = (const uint16_t *)part;

	if (type == TYPE_Q8_0) {
		const int8_t *q = (const int8_t *)part + kv_scales_bytes(type, p->value ? g->dv : g->dk);
		return (float)q[inside(g, p)] * f16_to_f32(half[p->d / 32 * TAPE_KV_BLOCK + p->slot]);
	}
	return type == TYPE_BF16 ? bf16_to_f32(half[inside(g, p)]) : f16_to_f32(half[inside(g, p)]);
}

static float cached_by_ref(const struct player *player, const struct place *p)
{
	const struct ref_cache *cache = &((const struct ref_program *)player->program)->cache[p->group];
	const struct tape_group *g = &player->tape->groups[p->group];
	size_t block = (size_t)p->layer * player->limits.blocks[p->group] + p->block;
	size_t head = (block * g->kv_heads + p->head) * (p->value ? g->dv : g->dk) * TAPE_KV_BLOCK;

	return (p->value ? cache->v : cache->k)[head + inside(g, p)];
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
