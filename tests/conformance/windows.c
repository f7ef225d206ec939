/* Blocks that no window shows are not read: they may be memory that cannot be. */
#include "tests/conformance/conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/program.h"
#include "tests/conformance/player.h"

enum { POSITIONS = 291, WINDOW = 100, BLOCKS = (POSITIONS + 31) / 32, VOCAB = 61 };

/* A block of its F16 cache is a page. */
static const struct synthetic_spec spec = {.name = "windows",
					   .layers = 4,
					   .width = 64,
					   .heads = 4,
					   .kv_heads = 1,
					   .dk = 32,
					   .dv = 32,
					   .hidden = 96,
					   .vocab = VOCAB,
					   .context = 320,
					   .matrix = TYPE_Q8_0,
					   .embed = TYPE_F32,
					   .window = WINDOW};

/* Positions [first, first + rows) of the sequence; the logits of the last. */
static void step(const struct player *player, uint32_t first, uint32_t rows, float *ret_logits)
{
	uint32_t token[PLAY_ROWS], position[PLAY_ROWS], sequence[PLAY_ROWS] = {0}, table[BLOCKS];
	uint32_t output_row = rows - 1;
	struct batch_sequence seq = {.rows = rows, .kv_len = first + rows};
	struct batch batch = {.rows = rows,
			      .sequences = 1,
			      .outputs = 1,
			      .token = token,
			      .position = position,
			      .sequence = sequence,
			      .seq = &seq,
			      .table_stride = BLOCKS,
			      .output_row = &output_row};

	for (uint32_t i = 0; i < rows; i++) {
		position[i] = first + i;
		token[i] = position[i] * 7 % (VOCAB - 1);
	}
	for (uint32_t b = 0; b < BLOCKS; b++)
		table[b] = 1 + b;
	for (uint32_t g = 0; g < player->tape->n_groups; g++)
		batch.table[g] = table;
	assert_int_equal(program_step(player->program, &batch), STEP_DONE);
	memcpy(ret_logits, program_logits(player->program), VOCAB * sizeof *ret_logits);
}

/* Of every layer with a window the blocks before `first`; returns their number. */
static uint32_t protect(const struct player *player, uint32_t first, int access)
{
	const struct cpu_program *program = (const struct cpu_program *)player->program;
	uint32_t n = 0;

	for (uint32_t g = 0; g < player->tape->n_groups; g++)
		for (uint32_t layer = 0;
		     player->tape->groups[g].window && layer < player->tape->groups[g].layers; layer++)
			for (uint32_t b = 0; b < first; b++, n++)
				assert_int_equal(mprotect(kv_block(program, g, layer, 1 + b),
							  program->kv[g].block_bytes, access),
						 0);
	return n;
}

/* The last `rows` positions, whose first sees keys from block `seen` on. */
static void check(uint32_t threads, uint32_t rows, uint32_t seen)
{
	struct synthetic model;
	struct player player;
	float want[VOCAB], got[VOCAB];
	char why[256] = "";

	synthetic_create(&model, &spec, 31);
	if (player_open(&player, &model, subject_kind, subject_isa, threads, 4096, why, sizeof why) < 0)
		fail_msg("%s", why);
	for (uint32_t at = 0; at < POSITIONS - rows; at += 50)
		step(&player, at, POSITIONS - rows - at < 50 ? POSITIONS - rows - at : 50, got);
	step(&player, POSITIONS - rows, rows, want);
	assert_int_equal(protect(&player, seen, PROT_NONE), 2 * seen);
	step(&player, POSITIONS - rows, rows, got);
	assert_memory_equal(got, want, sizeof want);
	protect(&player, seen, PROT_READ | PROT_WRITE);
	player_close(&player);
	synthetic_destroy(&model);
}

void windows_skip_blocks_that_they_cannot_see(void **state)
{
	if (!conformance_isa() || sysconf(_SC_PAGESIZE) != 4096)
		return;
	for (uint32_t threads = 1; threads <= 2; threads++) {
		check(threads, 1, (POSITIONS - WINDOW) / 32);
		check(threads, 40, (POSITIONS - 39 - WINDOW) / 32);
	}
}
