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

static uint16_t cached_by_cpu(const struct player *player, const struct place *p)
{
	const struct cpu_program *program = (const struct cpu_program *)player->program;
	const struct tape_group *g = &player->tape->groups[p->group];
	const uint16_t *head =
	    kv_block(program, p->group, p->layer, p->block) + p->head * program->kv[p->group].head_elements;

	return head[inside(g, p) + (p->value ? (size_t)g->dk * TAPE_KV_BLOCK : 0)];
}

/* The reference keeps halves as f32; a half is what it was after the way there and back. */
static uint16_t cached_by_ref(const struct player *player, const struct place *p)
{
	const struct ref_cache *cache = &((const struct ref_program *)player->program)->cache[p->group];
	const struct tape_group *g = &player->tape->groups[p->group];
	size_t block = (size_t)p->layer * player->limits.blocks[p->group] + p->block;
	size_t head = (block * g->kv_heads + p->head) * (p->value ? g->dv : g->dk) * TAPE_KV_BLOCK;

	return f16_from_f32((p->value ? cache->v : cache->k)[head + inside(g, p)]);
}

/* Fills the keys and then the values of one head at one position; returns what comes after them. */
static uint16_t *copy_head(const struct player *player, struct place p, uint16_t *to)
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

void player_kv(const struct player *player, uint32_t group, const uint32_t *blocks, uint32_t n, uint16_t *ret)
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
