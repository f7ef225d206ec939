#include "tests/conformance/player.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/fence.h"

int player_open_wide(struct player *player, const struct synthetic *model, const char *kind, const char *isa,
		     uint32_t threads, uint32_t load_rows, uint32_t rows, uint32_t blocks, char *why,
		     size_t why_bytes)
{
	struct backend_config config = {
	    .kind = kind, .isa = isa, .threads = threads, .memory = &fenced_memory};
	struct tape_limits limits = {.rows = rows,
				     .sequences = PLAY_SEQUENCES_MAX,
				     .outputs = rows,
				     .context = model->tape.context,
				     .kv_type = !strcmp(kind, "ref-f32")     ? TYPE_F32
						: model->spec.kv == TYPE_F32 ? TYPE_F16
									     : model->spec.kv};
	int err;

	*player = (struct player){.tape = &model->tape};
	for (uint32_t g = 0; g < model->tape.n_groups; g++)
		limits.blocks[g] = blocks;
	player->limits = limits;
	err = backend_open(&config, &player->backend, why, why_bytes);
	if (err == -ENODEV)
		return err;
	if (err < 0)
		fail_msg("%s %s: %s", kind, isa, why);
	err = program_compile(player->backend, &model->tape, &limits, &player->program, why, why_bytes);
	if (err < 0)
		fail_msg("%s %s, %s: %s", kind, isa, model->spec.name, why);
	synthetic_load(model, player->program, load_rows);
	return 0;
}

int player_open(struct player *player, const struct synthetic *model, const char *kind, const char *isa,
		uint32_t threads, uint32_t load_rows, char *why, size_t why_bytes)
{
	uint32_t blocks = 3 * (model->tape.context / TAPE_KV_BLOCK) + 1;

	return player_open_wide(player, model, kind, isa, threads, load_rows, PLAY_ROWS, blocks, why,
				why_bytes);
}

void player_close(struct player *player)
{
	program_close(player->program);
	backend_close(player->backend);
}

struct state {
	struct player *player;
	const struct play *play;
	struct played *result;
	uint64_t random;
	uint32_t done[PLAY_SEQUENCES_MAX]; /* tokens of each sequence */
	uint32_t stride;
	uint32_t *owned[TAPE_GROUPS_MAX]; /* (sequences, stride): the blocks of each sequence */
	/* the step */
	uint32_t row_of[PLAY_ROWS_MAX]; /* position inside its sequence */
	uint32_t who[PLAY_ROWS_MAX];    /* which of play's sequences */
	uint32_t token[PLAY_ROWS_MAX], position[PLAY_ROWS_MAX], sequence[PLAY_ROWS_MAX];
	uint32_t output_row[PLAY_ROWS_MAX];
	struct batch_output output[PLAY_ROWS_MAX];
	struct batch_sequence seq[PLAY_SEQUENCES_MAX];
	uint32_t *table[TAPE_GROUPS_MAX]; /* (sequences of the step, stride) */
	struct batch batch;
};

/* Deals a random permutation of the blocks 1 .. blocks - 1 to the sequences. */
static void deal_blocks(struct state *s, uint32_t group)
{
	uint32_t blocks = s->player->limits.blocks[group], next = 1;
	uint32_t *order = calloc(blocks, sizeof *order);

	assert_non_null(order);
	for (uint32_t i = 0; i < blocks; i++)
		order[i] = i;
	for (uint32_t i = blocks - 1; i > 1; i--) {
		uint32_t j = 1 + (uint32_t)(synthetic_random(&s->random) % i), kept = order[i];
		order[i] = order[j];
		order[j] = kept;
	}
	for (uint32_t q = 0; q < s->play->sequences; q++)
		for (uint32_t b = 0; b * TAPE_KV_BLOCK < s->play->n[q]; b++) {
			assert_true(next < blocks);
			s->owned[group][q * s->stride + b] = order[next++];
		}
	free(order);
}

static size_t columns(const struct state *s)
{
	return s->play->hidden ? s->player->tape->width : s->player->tape->vocab;
}

static void start(struct state *s)
{
	const struct play *p = s->play;

	s->random = p->seed;
	s->stride = s->player->limits.context / TAPE_KV_BLOCK + 1;
	for (uint32_t g = 0; g < s->player->tape->n_groups; g++) {
		s->owned[g] = calloc(PLAY_SEQUENCES_MAX * s->stride, sizeof(uint32_t));
		s->table[g] = calloc(PLAY_SEQUENCES_MAX * s->stride, sizeof(uint32_t));
		assert_true(s->owned[g] && s->table[g]);
		deal_blocks(s, g);
	}
	for (uint32_t q = 0; q < p->sequences; q++) {
		s->result->logits[q] = calloc(p->n[q] * columns(s), sizeof(float));
		s->result->have[q] = calloc(p->n[q], 1);
		s->result->faults[q] = calloc(p->n[q], 1);
		assert_true(s->result->logits[q] && s->result->have[q] && s->result->faults[q]);
	}
}

/* Adds the next rows of sequence q to the step. */
static void add_rows(struct state *s, uint32_t q)
{
	struct batch *b = &s->batch;
	uint32_t left = s->play->n[q] - s->done[q], room = s->player->limits.rows - b->rows;
	uint32_t chunk = s->play->chunk ? s->play->chunk : 1 + (uint32_t)(synthetic_random(&s->random) % 33);
	uint32_t rows = chunk < left ? chunk : left;

	rows = rows < room ? rows : room;
	if (!rows)
		return;
	s->seq[b->sequences] =
	    (struct batch_sequence){.first_row = b->rows, .rows = rows, .kv_len = s->done[q] + rows};
	for (uint32_t i = 0; i < rows; i++, b->rows++) {
		s->who[b->rows] = q;
		s->token[b->rows] = s->play->tokens[q][s->done[q] + i];
		s->row_of[b->rows] = s->position[b->rows] = s->done[q] + i;
		s->sequence[b->rows] = b->sequences;
		if (s->play->chunk || synthetic_random(&s->random) % 2)
			s->output_row[b->outputs++] = b->rows;
	}
	for (uint32_t g = 0; g < s->player->tape->n_groups; g++) {
		uint32_t window = s->player->tape->groups[g].window, first = s->done[q];
		uint32_t kept = window && first >= window ? (first - window + 1) / TAPE_KV_BLOCK : 0;
		uint32_t *to = s->table[g] + b->sequences * s->stride;
		memcpy(to, s->owned[g] + q * s->stride, s->stride * sizeof *to);
		for (uint32_t i = 0; s->play->drop_old_block && i < kept; i++)
			to[i] = 0;
	}
	s->done[q] += rows;
	b->sequences++;
}

static void run(struct state *s)
{
	struct batch *b = &s->batch;
	size_t n = columns(s), stride = n;
	const float *outputs;

	b->token = s->token;
	b->position = s->position;
	b->sequence = s->sequence;
	b->seq = s->seq;
	b->output_row = s->output_row;
	b->output = s->output;
	for (uint32_t o = 0; o < b->outputs; o++)
		s->output[o].want = s->play->hidden ? OUTPUT_HIDDEN : OUTPUT_LOGITS;
	b->table_stride = s->stride;
	for (uint32_t g = 0; g < s->player->tape->n_groups; g++)
		b->table[g] = s->table[g];
	assert_int_equal(program_step(s->player->program, b), STEP_DONE);
	for (uint32_t r = 0; r < b->rows; r++)
		s->result->faults[s->who[r]][s->row_of[r]] = program_faults(s->player->program)[r];
	outputs = s->play->hidden ? program_hidden(s->player->program, &stride)
				  : program_logits(s->player->program);
	for (uint32_t o = 0; o < b->outputs; o++) {
		uint32_t r = s->output_row[o];
		memcpy(s->result->logits[s->who[r]] + s->row_of[r] * n, outputs + o * stride,
		       n * sizeof(float));
		s->result->have[s->who[r]][s->row_of[r]] = 1;
	}
}

static void keep_kv(struct state *s, uint32_t g)
{
	for (uint32_t q = 0; q < s->play->sequences; q++) {
		float **kv = &s->result->kv[q][g];
		*kv = calloc(player_kv_elements(s->player, g, s->play->n[q]), sizeof **kv);
		assert_non_null(*kv);
		player_kv(s->player, g, s->owned[g] + q * s->stride, s->play->n[q], *kv);
	}
}

void play(struct player *player, const struct play *what, struct played *ret)
{
	struct state s = {.player = player, .play = what, .result = ret};
	uint32_t turn = 0;

	*ret = (struct played){0};
	start(&s);
	do {
		s.batch = (struct batch){0};
		for (uint32_t i = 0; i < what->sequences; i++)
			add_rows(&s, (i + turn) % what->sequences);
		turn++;
		if (s.batch.rows)
			run(&s);
	} while (s.batch.rows);
	for (uint32_t g = 0; g < player->tape->n_groups; g++) {
		if (what->keep_kv)
			keep_kv(&s, g);
		free(s.owned[g]);
		free(s.table[g]);
	}
}

void played_free(struct played *played)
{
	for (uint32_t q = 0; q < PLAY_SEQUENCES_MAX; q++) {
		free(played->logits[q]);
		free(played->have[q]);
		free(played->faults[q]);
		for (uint32_t g = 0; g < TAPE_GROUPS_MAX; g++)
			free(played->kv[q][g]);
	}
}

void player_poison(struct player *player, uint32_t poison_token)
{
	uint32_t token[TAPE_KV_BLOCK], position[TAPE_KV_BLOCK], sequence[TAPE_KV_BLOCK] = {0};
	uint32_t output_row[TAPE_KV_BLOCK], block = 0;
	struct batch_sequence seq = {.rows = TAPE_KV_BLOCK, .kv_len = TAPE_KV_BLOCK};
	struct batch batch = {.rows = TAPE_KV_BLOCK,
			      .sequences = 1,
			      .outputs = TAPE_KV_BLOCK,
			      .token = token,
			      .position = position,
			      .sequence = sequence,
			      .seq = &seq,
			      .table_stride = 1,
			      .output_row = output_row};

	for (uint32_t i = 0; i < TAPE_KV_BLOCK; i++) {
		token[i] = poison_token;
		position[i] = output_row[i] = i;
	}
	for (uint32_t g = 0; g < player->tape->n_groups; g++)
		batch.table[g] = &block;
	for (; block < player->limits.blocks[0]; block++) {
		assert_int_equal(program_step(player->program, &batch), STEP_DONE);
		for (uint32_t i = 0; i < TAPE_KV_BLOCK; i++)
			assert_int_equal(program_faults(player->program)[i], 1);
	}
}
