/* What output rows want: every mixture in a batch gives what the reference's whole logits say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/conformance.h"
#include "tests/conformance/player.h"

enum { STREAMS = 3, ROWS = 150, CHOSEN_MAX = 40, VOCAB = 131, WIDTH = 96 };

/* One prefill of three streams; some or all rows are outputs. */
struct ask {
	uint32_t token[ROWS], position[ROWS], sequence[ROWS], output_row[ROWS], table[STREAMS * 2];
	uint32_t chosen[ROWS][CHOSEN_MAX];
	struct batch_sequence seq[STREAMS];
	struct batch_output output[ROWS];
	struct batch batch;
};

static const struct synthetic_spec base = {.name = "outputs",
					   .layers = 1,
					   .width = WIDTH,
					   .heads = 6,
					   .kv_heads = 2,
					   .dk = 16,
					   .dv = 32,
					   .hidden = 160,
					   .vocab = VOCAB,
					   .context = 64,
					   .matrix = TYPE_Q4_1,
					   .embed = TYPE_F32};

static void ask_all(struct ask *ask, uint64_t random)
{
	memset(ask, 0, sizeof *ask);
	for (uint32_t r = 0; r < ROWS; r++) {
		ask->token[r] = (uint32_t)(synthetic_random(&random) % (VOCAB - 1));
		ask->sequence[r] = r / (ROWS / STREAMS);
		ask->position[r] = r % (ROWS / STREAMS);
		ask->output_row[r] = r;
	}
	for (uint32_t s = 0; s < STREAMS; s++) {
		ask->seq[s] = (struct batch_sequence){
		    .first_row = s * (ROWS / STREAMS), .rows = ROWS / STREAMS, .kv_len = ROWS / STREAMS};
		ask->table[2 * s] = 2 * s + 1;
		ask->table[2 * s + 1] = 2 * s + 2;
	}
	ask->batch = (struct batch){.rows = ROWS,
				    .sequences = STREAMS,
				    .outputs = ROWS,
				    .token = ask->token,
				    .position = ask->position,
				    .sequence = ask->sequence,
				    .seq = ask->seq,
				    .table = {ask->table},
				    .table_stride = 2,
				    .output_row = ask->output_row};
}

/* `most` outputs, at random, that want what `wants` (bits by enum output_want) allows. */
static void ask_some(struct ask *ask, uint32_t most, uint32_t wants, uint64_t *random)
{
	struct batch *batch = &ask->batch;

	batch->outputs = 0;
	batch->output = ask->output;
	for (uint32_t r = 0; r < ROWS && batch->outputs < most; r++) {
		struct batch_output *output = &ask->output[batch->outputs];
		uint32_t *chosen = ask->chosen[batch->outputs];

		if (most < ROWS && synthetic_random(random) % 3)
			continue;
		*output = (struct batch_output){.chosen = chosen};
		do
			output->want = (uint8_t)(synthetic_random(random) % 4);
		while (!(wants >> output->want & 1));
		output->n_chosen = 1 + (uint32_t)(synthetic_random(random) % CHOSEN_MAX);
		for (uint32_t i = 0; i < output->n_chosen; i++)
			chosen[i] = (uint32_t)(synthetic_random(random) % VOCAB);
		ask->output_row[batch->outputs++] = r;
	}
}

/* ---- the judge: whole logits and hidden states of all rows, by the reference ---- */

struct judge {
	float logits[ROWS][VOCAB], hidden[ROWS][WIDTH];
};

static struct player open_player(const struct synthetic *model, const char *kind, const char *isa,
				 uint32_t threads)
{
	struct player player;
	char why[256] = "";

	if (player_open_wide(&player, model, kind, isa, threads, 4096, ROWS, 2 * STREAMS + 1, why,
			     sizeof why) < 0)
		fail_msg("%s", why);
	return player;
}

static void judge(const struct synthetic *model, struct judge *ret)
{
	struct player player = open_player(model, "ref-int8", "auto", 1);
	static struct ask ask;
	uint64_t random = 1;
	const float *hidden;
	size_t stride;

	ask_all(&ask, 77);
	assert_int_equal(program_step(player.program, &ask.batch), STEP_DONE);
	memcpy(ret->logits, program_logits(player.program), sizeof ret->logits);
	ask_some(&ask, ROWS, 1u << OUTPUT_HIDDEN, &random);
	assert_int_equal(program_step(player.program, &ask.batch), STEP_DONE);
	hidden = program_hidden(player.program, &stride);
	for (uint32_t r = 0; r < ROWS; r++)
		memcpy(ret->hidden[r], hidden + r * stride, sizeof ret->hidden[r]);
	player_close(&player);
}

static bool finite_chosen(const struct judge *want, uint32_t row, const struct batch_output *output)
{
	uint32_t some = output->want == OUTPUT_CHOSEN ? output->n_chosen : VOCAB;

	for (uint32_t i = 0; i < some && output->want != OUTPUT_HIDDEN; i++)
		if (!isfinite(want->logits[row][output->want == OUTPUT_CHOSEN ? output->chosen[i] : i]))
			return false;
	return true;
}

static void check_best(const struct output_best *best, const float *logits, uint32_t o)
{
	uint32_t first = 0;

	for (uint32_t i = 1; i < VOCAB; i++)
		if (logits[i] > logits[first])
			first = i;
	if (best->id != first || memcmp(&best->value, &logits[first], sizeof best->value))
		fail_msg("output %u: best %u (%a), expected %u (%a)", o, best->id, (double)best->value, first,
			 (double)logits[first]);
}

/* One output that has no fault. */
static void check_output(const struct player *player, const struct ask *ask, uint32_t o, const float *logits,
			 const struct judge *want)
{
	const struct batch_output *output = &ask->output[o];
	uint32_t row = ask->output_row[o];
	const float *expected = want->logits[row], *hidden;
	size_t stride;

	hidden = program_hidden(player->program, &stride);
	if (output->want == OUTPUT_LOGITS)
		assert_memory_equal(logits, expected, sizeof want->logits[row]);
	for (uint32_t i = 0; output->want == OUTPUT_CHOSEN && i < output->n_chosen; i++)
		assert_memory_equal(&logits[output->chosen[i]], &expected[output->chosen[i]], sizeof(float));
	if (output->want == OUTPUT_BEST)
		check_best(&program_best(player->program)[o], expected, o);
	if (output->want == OUTPUT_HIDDEN)
		assert_memory_equal(hidden + o * stride, want->hidden[row], sizeof want->hidden[row]);
}

/* Returns how many outputs had a fault. */
static uint32_t check(const struct player *player, const struct ask *ask, const struct judge *want)
{
	const float *logits = program_logits(player->program);
	uint32_t faults = 0;

	assert_int_equal(program_step(player->program, &ask->batch), STEP_DONE);
	for (uint32_t o = 0; o < ask->batch.outputs; o++) {
		uint32_t row = ask->output_row[o];
		bool sound = finite_chosen(want, row, &ask->output[o]);

		if (program_faults(player->program)[row] != !sound)
			fail_msg("output %u, which wants %u: %s a fault", o, ask->output[o].want,
				 sound ? "is" : "should be");
		if (sound)
			check_output(player, ask, o, logits, want);
		faults += !sound;
		if (ask->output[o].want <= OUTPUT_CHOSEN)
			logits += VOCAB;
	}
	return faults;
}

/* Every mixture on one to four threads; returns the faults seen. */
static uint32_t check_model(const struct synthetic *model, struct judge *want)
{
	static const uint32_t most[] = {1, 2, 9, ROWS};
	static struct ask ask;
	uint32_t threads = strncmp(subject_kind, "ref", 3) ? 4 : 1, faults = 0;
	uint64_t random = 5;

	judge(model, want);
	ask_all(&ask, 77);
	for (uint32_t t = 1; t <= threads; t++) {
		struct player player = open_player(model, subject_kind, subject_isa, t);
		for (uint32_t wants = 1; wants < 16; wants++) {
			ask_some(&ask, most[(wants + t) % 4], wants, &random);
			faults += check(&player, &ask, want);
		}
		ask_some(&ask, ROWS, 1u << OUTPUT_BEST, &random);
		faults += check(&player, &ask, want);
		player_close(&player);
	}
	return faults;
}

/* ---- tests ---- */

void outputs_get_what_they_want(void **state)
{
	static const enum weight_type types[] = {TYPE_Q4_1, TYPE_Q8_0, TYPE_F16};
	static struct judge want;

	for (unsigned i = 0; i < 3; i++) {
		struct synthetic_spec spec = base;
		struct synthetic model;

		spec.matrix = types[i];
		spec.logit_scale = i == 1 ? 0.25f : 0;
		spec.logit_softcap = i == 2 ? 3.0f : 0;
		spec.tied = i == 1;
		synthetic_create(&model, &spec, 31 + i);
		assert_int_equal(check_model(&model, &want), 0);
		synthetic_destroy(&model);
	}
}

/* The weight that LOGITS reads. */
static float *vocabulary_row(const struct synthetic *model, uint32_t id)
{
	const struct tape_op *last = &model->tape.ops[model->tape.n_ops - 1];

	assert_int_equal(last->kind, TAPE_LOGITS);
	assert_int_equal(model->tape.weights[last->weight].type, TYPE_F32);
	return (float *)model->raw[last->weight] + (size_t)id * WIDTH;
}

/* Rows of the vocabulary come in threes that are equal, in parts of it that are different threads': of equal
 * logits the lowest id is the best. */
void of_equal_logits_the_lowest_id_is_best(void **state)
{
	static struct judge want;
	struct synthetic_spec spec = base;
	struct synthetic model;
	uint32_t tied = 0;

	spec.matrix = TYPE_F32;
	synthetic_create(&model, &spec, 41);
	for (uint32_t id = 43; id < VOCAB - 1; id++)
		memcpy(vocabulary_row(&model, id), vocabulary_row(&model, id % 43), WIDTH * sizeof(float));
	memset(vocabulary_row(&model, VOCAB - 1), 0, WIDTH * sizeof(float));
	assert_int_equal(check_model(&model, &want), 0);
	for (uint32_t r = 0; r < ROWS; r++)
		tied += want.logits[r][3] == want.logits[r][46];
	assert_int_equal(tied, ROWS);
	for (uint32_t id = 0; id < VOCAB; id++) /* and all are equal */
		memset(vocabulary_row(&model, id), 0, WIDTH * sizeof(float));
	assert_int_equal(check_model(&model, &want), 0);
	synthetic_destroy(&model);
}

/* A logit that overflows is a fault of those rows that look at it. */
void logits_that_are_not_finite_are_faults_of_who_asks(void **state)
{
	static const float huge[] = {3e38f, -3e38f, NAN};
	static struct judge want;

	for (unsigned i = 0; i < 3; i++) {
		struct synthetic_spec spec = base;
		struct synthetic model;

		spec.matrix = TYPE_F32;
		synthetic_create(&model, &spec, 51);
		for (uint32_t k = 0; k < WIDTH; k++)
			vocabulary_row(&model, i == 1 ? VOCAB - 1 : 70)[k] = huge[i];
		assert_true(check_model(&model, &want) > ROWS / 2);
		synthetic_destroy(&model);
	}
}

/* Logits are the hidden state times the vocabulary: for F32 weights one fma a term, ascending. */
void hidden_states_make_the_logits(void **state)
{
	static struct judge want;
	struct synthetic_spec spec = base;
	struct synthetic model;

	spec.matrix = TYPE_F32;
	synthetic_create(&model, &spec, 61);
	judge(&model, &want);
	for (uint32_t r = 0; r < ROWS; r++)
		for (uint32_t id = 0; id < VOCAB; id++) {
			const float *w = vocabulary_row(&model, id);
			float sum = 0;

			for (uint32_t k = 0; k < WIDTH; k++)
				sum = fmaf(w[k], want.hidden[r][k], sum);
			assert_memory_equal(&sum, &want.logits[r][id], sizeof sum);
		}
	synthetic_destroy(&model);
}

void impossible_wants_are_refused(void **state)
{
	static struct ask ask;
	struct synthetic model;
	uint64_t random = 3;

	synthetic_create(&model, &base, 71);
	struct player player = open_player(&model, subject_kind, subject_isa, 1);
	ask_all(&ask, 77);
	ask_some(&ask, ROWS, 1u << OUTPUT_CHOSEN, &random);
	assert_int_equal(program_step(player.program, &ask.batch), STEP_DONE);
	ask.chosen[4][0] = VOCAB;
	assert_int_equal(program_step(player.program, &ask.batch), -EINVAL);
	ask.chosen[4][0] = 0;
	ask.output[7].n_chosen = 0;
	assert_int_equal(program_step(player.program, &ask.batch), -EINVAL);
	ask.output[7].want = OUTPUT_HIDDEN + 1;
	assert_int_equal(program_step(player.program, &ask.batch), -EINVAL);
	ask.output[7].want = OUTPUT_HIDDEN;
	assert_int_equal(program_step(player.program, &ask.batch), STEP_DONE);
	player_close(&player);
	synthetic_destroy(&model);
}
