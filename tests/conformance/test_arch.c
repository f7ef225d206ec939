/* Architectures against llama.cpp and against Hugging Face transformers in float32: small random models of
 * tools/make-model, answers kept in tests/golden/arch.txt and arch_transformers.txt. */
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

enum { MAX_TOKENS = 320, MAX_EXTENTS = 4096, BLOCKS = 1 + MAX_TOKENS / TAPE_KV_BLOCK };

/* Who gave the answers.  The golden files have four digits; llama.cpp reads GELU from a table of halves.  A
 * window or a frequency that is off by one shows in tenths. */
struct oracle {
	const char *name, *file;
	double tolerance, tolerance_gelu;
	unsigned cases;
};

static const struct oracle llama_cpp = {"llama.cpp", "arch.txt", 2e-4, 3e-3, 14};
static const struct oracle transformers = {"transformers", "arch_transformers.txt", 2e-4, 2e-4, 8};

static double tolerance_of(const struct oracle *oracle, const char *options)
{
	bool gelu = strstr(options, "gemma3") || strstr(options, "gpt2");
	return gelu ? oracle->tolerance_gelu : oracle->tolerance;
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
	static char line[8192];
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

static void compare(const struct oracle *oracle, const struct expected *e, const float *logits,
		    uint32_t vocab)
{
	for (uint32_t i = 0; i < e->n; i++) {
		const float *row = logits + (size_t)i * vocab;
		double sum = 0;
		uint32_t best = 0;
		for (uint32_t k = 1; k < vocab; k++)
			best = row[k] > row[best] ? k : best;
		for (uint32_t k = 0; k < vocab; k++)
			sum += exp((double)row[k] - (double)row[best]);
		if (best != e->best[i] ||
		    fabs(-log(sum) - e->log_probability[i]) > tolerance_of(oracle, e->options))
			fail_msg("'%s', position %u: token %u at %.5f, %s says %u at %.4f", e->options, i,
				 best, -log(sum), oracle->name, e->best[i], e->log_probability[i]);
	}
}

static void step(const struct expected *e, const struct model *m, struct program *program)
{
	static uint32_t rows[MAX_TOKENS], sequence[MAX_TOKENS], table[BLOCKS];
	for (uint32_t i = 0; i < e->n; i++)
		rows[i] = i;
	for (uint32_t i = 0; i + 1 < BLOCKS; i++)
		table[i] = i + 1;
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
}

/* The logits of all positions; the caller frees them. */
static float *logits_of(const struct expected *e, const struct model *m, const char *kind,
			enum weight_type kv_type)
{
	struct backend *backend = NULL;
	struct program *program = NULL;
	struct tape_limits limits = {
	    .rows = MAX_TOKENS, .sequences = 1, .outputs = MAX_TOKENS, .context = e->n, .kv_type = kv_type};
	for (int g = 0; g < TAPE_GROUPS_MAX; g++)
		limits.blocks[g] = BLOCKS;
	struct backend_config config = {.kind = kind, .isa = "auto", .threads = 1};
	if (backend_open(&config, &backend, why, sizeof why) ||
	    program_compile(backend, model_tape(m), &limits, &program, why, sizeof why))
		fail_msg("%s", why);
	load_weights(m, program);
	step(e, m, program);
	size_t bytes = (size_t)e->n * model_tape(m)->vocab * sizeof(float);
	float *logits = malloc(bytes);
	assert_non_null(logits);
	memcpy(logits, program_logits(program), bytes);
	program_close(program);
	backend_close(backend);
	return logits;
}

/* The architecture's own mix of operations on the backend that serves, bit for bit. */
static void check_bits(const struct expected *e, const struct model *m)
{
	float *wanted = logits_of(e, m, "ref-int8", TYPE_F16), *given = logits_of(e, m, "cpu", TYPE_F16);
	if (memcmp(wanted, given, (size_t)e->n * model_tape(m)->vocab * sizeof(float)))
		fail_msg("'%s': the cpu backend's bits are not ref-int8's", e->options);
	free(wanted);
	free(given);
}

static void check_case(const struct oracle *oracle, const struct expected *e)
{
	char command[1024];
	struct model *m = NULL;
	snprintf(command, sizeof command, "%s '%s/tools/make-model' %s --type F32 %s", python, source_root(),
		 path, e->options);
	assert_int_equal(system(command), 0);
	if (model_open(path, &m, why, sizeof why))
		fail_msg("%s", why);
	float *logits = logits_of(e, m, "ref-f32", TYPE_F32);
	compare(oracle, e, logits, model_tape(m)->vocab);
	free(logits);
	check_bits(e, m);
	model_close(m);
}

static void check_answers(const struct oracle *oracle)
{
	static struct expected e;
	char golden[1024];
	unsigned cases = 0;
	snprintf(golden, sizeof golden, "%s/tests/golden/%s", source_root(), oracle->file);
	FILE *file = fopen(golden, "r");
	assert_non_null(file);
	for (; read_case(file, &e); cases++)
		check_case(oracle, &e);
	fclose(file);
	assert_int_equal(cases, oracle->cases);
}

static void test_llama_cpp(void **state)
{
	check_answers(&llama_cpp);
}

static void test_transformers(void **state)
{
	check_answers(&transformers);
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
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_llama_cpp),
					   cmocka_unit_test(test_transformers)};
	if (!find_python()) {
		printf("skip: no python3 with numpy (Debian: python3-numpy)\n");
		return 77;
	}
	close(mkstemp(scratch_path(path, sizeof path, "tokenring-arch")));
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
