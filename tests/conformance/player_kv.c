#include "tests/conformance/player.h"

#include <string.h>

#include "kernels/cpu/program.h"
#include "kernels/formats.h"
#include "kernels/ref/ref.h"

size_t player_kv_elements(const struct player *player, uint32_t group, uint32_t n)
{
	const struct tape_group *g = &player->tape->groups[group];
	return (size_t)g->layers * n * g->kv_heads * (g->dk + g->dv);
}

/* Offsets inside a block: key element d of a head at a slot; keys in lanes, values in rows. */
static size_t key_at(const struct tape_group *g, uint32_t head, uint32_t d, uint32_t slot)
{
	return ((size_t)head * g->dk + d) * TAPE_KV_BLOCK + slot;
}

static size_t value_at(const struct tape_group *g, uint32_t head, uint32_t d, uint32_t slot)
{
	return ((size_t)head * TAPE_KV_BLOCK + slot) * g->dv + d;
}

/* The reference keeps halves as f32; a half is what it was after the way there and back. */
static uint16_t element(const struct player *player, uint32_t group, uint32_t layer, uint32_t block,
			bool value, size_t at)
{
	const struct tape_group *g = &player->tape->groups[group];

	if (strncmp(backend_isa(player->backend), "ref", 3) != 0) {
		const struct cpu_program *program = (const struct cpu_program *)player->program;
		return kv_block(program, group, layer,
				block)[at + (value ? program->kv[group].v_elements : 0)];
	}
	const struct ref_cache *cache = &((const struct ref_program *)player->program)->cache[group];
	size_t width = (size_t)g->kv_heads * (value ? g->dv : g->dk) * TAPE_KV_BLOCK;
	size_t first = ((size_t)layer * player->limits.blocks[group] + block) * width;
	return f16_from_f32((value ? cache->v : cache->k)[first + at]);
}

void player_kv(const struct player *player, uint32_t group, const uint32_t *blocks, uint32_t n, uint16_t *ret)
{
	const struct tape_group *g = &player->tape->groups[group];

	for (uint32_t layer = 0; layer < g->layers; layer++)
		for (uint32_t p = 0; p < n; p++) {
			uint32_t block = blocks[p / TAPE_KV_BLOCK], slot = p % TAPE_KV_BLOCK;
			for (uint32_t head = 0; head < g->kv_heads; head++) {
				for (uint32_t d = 0; d < g->dk; d++)
					*ret++ = element(player, group, layer, block, false,
							 key_at(g, head, d, slot));
				for (uint32_t d = 0; d < g->dv; d++)
					*ret++ = element(player, group, layer, block, true,
							 value_at(g, head, d, slot));
			}
		}
}
