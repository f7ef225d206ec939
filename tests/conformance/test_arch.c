/* Architectures against llama.cpp: small random models of tools/make-model, answers kept in
 * tests/golden/arch.txt. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/model/model.h"
#include "daemon/stream/stream.h"
#include "kernels/backend.h"
#include "tests/harness/scratch.h"

enum { MAX_TOKENS = 32, MAX_EXTENTS = 4096, BLOCKS = 2 };

/* The golden file has four digits; llama.cpp reads GELU from a table of halves.  A window or a frequency that
 * is off by one shows in tenths. */
static double tolerance_of(const char *options)
{
	return strstr(options, "gemma3") ? 3e-3 : 2e-4;
}

static char path[128];
static char python[32];
static char why[512];

struct expected {
	char options[256];
	uint32_t n;
	uint32_t tokens[MAX_TOKENS], best[MAX_TOKENS];
	double log_probability[MAX_TOKENS];
};

struct loading {
	struct program *program;
	const struct model *model;
	uint32_t weight[MAX_EXTENTS], row[MAX_EXTENTS];
};

static const char *source_root(void)
{
	const char *root = getenv("TOKENRING_SOURCE_ROOT");
	return root ? root : ".";
}

static int read_case(FILE *file, struct expected *e)
{
	char line[1024];
	int used, at = 0;
	if (!fgets(e->options, sizeof e->options, file) || !fgets(line, sizeof line, file))
		return 0;
	e->options[strcspn(e->options, "\n")] = 0;
	for (e->n = 0; sscanf(line + at, "%u%n", &e->tokens[e->n], &used) == 1; at += used)
		e->n++;
	if (!fgets(line, sizeof line, file))
		return 0;
	at = 0;
	for (uint32_t i = 0; i < e->n; i++, at += used)
		if (sscanf(line + at, "%u:%lf%n", &e->best[i], &e->log_probability[i], &used) != 2)
			return 0;
	return e->n > 0;
}

static int load_piece(void *context, const struct stream_piece *piece)
{
	struct loading *l = context;
	uint32_t weight = l->weight[piece->extent];
	uint64_t row_bytes = model_weights(l->model)[weight].row_bytes;
	return program_load(l->program, weight, l->row[piece->extent] + (uint32_t)(piece->at / row_bytes),
			    (uint32_t)(piece->bytes / row_bytes), piece->data);
}

/* One extent an expert, as rows of different experts do not go together. */
static void load_weights(const struct model *m, struct program *program)
{
	static struct stream_extent extents[MAX_EXTENTS];
	static struct loading loading;
	struct stream *s = NULL;
	size_t n = 0;
	loading.program = program;
	loading.model = m;
	for (uint32_t w = 0; w < model_tape(m)->n_weights; w++) {
		const struct tape_weight *shape = &model_tape(m)->weights[w];
		const struct model_weight *lies = &model_weights(m)[w];
		uint64_t bytes = shape->n * lies->row_bytes;
		for (uint32_t e = 0; e < shape->experts; e++) {
			assert_true(n < MAX_EXTENTS);
			extents[n] = (struct stream_extent){lies->offset + e * bytes, bytes,
							    PROGRAM_LOAD_ROWS * lies->row_bytes};
			loading.weight[n] = w;
			loading.row[n++] = e * shape->n;
		}
	}
	assert_int_equal(stream_open(path, NULL, &s, why, sizeof why), 0);
	if (stream_read(s, extents, n, load_piece, &loading, why, sizeof why))
		fail_msg("%s", why);
	stream_close(s);
}

static void compare(const struct expected *e, const float *logits, uint32_t vocab)
{
	for (uint32_t i = 0; i < e->n; i++) {
		const float *row = logits + (size_t)i * vocab;
		double sum = 0;
		uint32_t best = 0;
		for (uint32_t k = 1; k < vocab; k++)
			best = row[k] > row[best] ? k : best;
		for (uint32_t k = 0; k < vocab; k++)
			sum += exp((double)row[k] - (double)row[best]);
		if (best != e->best[i] || fabs(-log(sum) - e->log_probability[i]) > tolerance_of(e->options))
			fail_msg("'%s', position %u: token %u at %.4f, llama.cpp says %u at %.4f", e->options,
				 i, best, -log(sum), e->best[i], e->log_probability[i]);
	}
}

static void run(const struct expected *e, const struct model *m, struct program *program)
{
	static const uint32_t table[BLOCKS] = {1, 0};
	static uint32_t rows[MAX_TOKENS], sequence[MAX_TOKENS];
	for (uint32_t i = 0; i < e->n; i++)
		rows[i] = i;
	struct batch_sequence all = {.rows = e->n, .kv_len = e->n};
	struct batch batch = {.rows = e->n,
			      .sequences = 1,
			      .outputs = e->n,
			      .token = e->tokens,
			      .position = rows,
			      .sequence = sequence,
			      .seq = &all,
			      .table_stride = BLOCKS,
			      .output_row = rows};
	for (uint32_t g = 0; g < model_tape(m)->n_groups; g++)
		batch.table[g] = table;
	assert_int_equal(program_step(program, &batch), STEP_DONE);
	compare(e, program_logits(program), model_tape(m)->vocab);
}

static void check_case(const struct expected *e)
{
	char command[1024];
	struct model *m = NULL;
	struct backend *backend = NULL;
	struct program *program = NULL;
	struct tape_limits limits = {.rows = MAX_TOKENS,
				     .sequences = 1,
				     .outputs = MAX_TOKENS,
				     .context = TAPE_KV_BLOCK,
				     .kv_type = TYPE_F32};
	for (int g = 0; g < TAPE_GROUPS_MAX; g++)
		limits.blocks[g] = BLOCKS;
	snprintf(command, sizeof command, "%s '%s/tools/make-model' %s --type F32 %s", python, source_root(),
		 path, e->options);
	assert_int_equal(system(command), 0);
	struct backend_config config = {.kind = "ref-f32", .threads = 1};
	if (model_open(path, &m, why, sizeof why) || backend_open(&config, &backend, why, sizeof why) ||
	    program_compile(backend, model_tape(m), &limits, &program, why, sizeof why))
		fail_msg("%s", why);
	load_weights(m, program);
	run(e, m, program);
	program_close(program);
	backend_close(backend);
	model_close(m);
}

static void test_answers(void **state)
{
	static struct expected e;
	char golden[1024];
	unsigned cases = 0;
	snprintf(golden, sizeof golden, "%s/tests/golden/arch.txt", source_root());
	FILE *file = fopen(golden, "r");
	assert_non_null(file);
	for (; read_case(file, &e); cases++)
		check_case(&e);
	fclose(file);
	assert_int_equal(cases, 9);
}

static int find_python(void)
{
	static const char *const candidates[] = {"python3", "/usr/bin/python3"};
	for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
		char command[128];
		snprintf(command, sizeof command, "%s -c 'import numpy' 2>/dev/null", candidates[i]);
		snprintf(python, sizeof python, "%s", candidates[i]);
		if (system(command) == 0)
			return 1;
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers)};
	if (!find_python()) {
		printf("skip: no python3 with numpy (Debian: python3-numpy)\n");
		return 77;
	}
	close(mkstemp(scratch_path(path, sizeof path, "tokenring-arch")));
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
