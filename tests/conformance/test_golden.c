/* SmolLM2-135M-Instruct Q4_1 against Hugging Face transformers in float32 and against llama.cpp, from values
 * that tests/golden/make_model_golden.py stored.
 *
 * ref-f32: 64 logits of every position (the best 20 and 44 fixed ones), all logits of six positions, arg-max,
 * log-sum-exp, and 16 signed sums that together contain every logit. A sum of 3,072 logits whose errors are
 * independent and at most 4e-3 stays within 1.7 with probability 1 - 1e-12; the bound used here, ten times
 * what is seen, shows a single logit that is off by more than it.
 * int8 (the cpu backend, which the conformance suite shows to have ref-int8's bits): divergence from ref-f32
 * and choices along llama.cpp's text.
 *
 * `test_golden dump FILE` writes ref-f32's logits of all positions for make_model_golden.py compare, which
 * checks every logit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/model/model.h"
#include "kernels/backend.h"
#include "kernels/formats.h"
#include "tests/conformance/golden.h"

enum { ROWS = 64, CONTEXT = 512 };

static const float logit_bound = 4e-3f, sum_bound = 0.04f;

struct runner {
	struct backend *backend;
	struct program *program;
	uint32_t vocab;
};

static struct model *model;
static struct golden golden;

/* ---- running a model ---- */

/* Rows of the file's weight as BF16. */
static void load_as_bf16(struct program *program, uint32_t index, const struct tape_weight *from,
			 uint32_t rows, const uint8_t *raw)
{
	size_t n = (size_t)rows * from->k;
	uint16_t *halves = malloc(n * sizeof *halves);
	float *values = malloc(from->k * sizeof *values);

	assert_true(halves && values);
	for (uint32_t r = 0; r < rows; r++) {
		weight_dequantise(from->type, raw + r * weight_type_bytes(from->type, from->k), from->k,
				  values);
		for (uint32_t k = 0; k < from->k; k++)
			halves[(size_t)r * from->k + k] = bf16_from_f32(values[k]);
	}
	assert_int_equal(program_load(program, index, 0, rows, halves), 0);
	free(values);
	free(halves);
}

static void load_weights(struct program *program, const struct tape *as, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat info;

	assert_true(fd >= 0 && fstat(fd, &info) == 0);
	uint8_t *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(file, MAP_FAILED);
	const struct tape *tape = model_tape(model);
	for (uint32_t i = 0; i < tape->n_weights; i++) {
		const struct model_weight *at = &model_weights(model)[i];
		uint32_t rows = tape->weights[i].experts * tape->weights[i].n;
		if (as->weights[i].type == tape->weights[i].type)
			assert_int_equal(program_load(program, i, 0, rows, file + at->offset), 0);
		else
			load_as_bf16(program, i, &tape->weights[i], rows, file + at->offset);
	}
	munmap(file, (size_t)info.st_size);
	close(fd);
}

static struct runner runner_open(const char *kind, const struct tape *tape, const char *path)
{
	struct backend_config config = {.kind = kind, .isa = "auto", .threads = 2};
	struct tape_limits limits = {.rows = ROWS,
				     .sequences = 1,
				     .outputs = ROWS,
				     .context = CONTEXT,
				     .kv_type = strcmp(kind, "ref-f32") ? TYPE_F16 : TYPE_F32};
	struct runner runner = {.vocab = tape->vocab};
	char why[256] = "";

	for (uint32_t g = 0; g < tape->n_groups; g++)
		limits.blocks[g] = CONTEXT / TAPE_KV_BLOCK + 1;
	if (backend_open(&config, &runner.backend, why, sizeof why) < 0 ||
	    program_compile(runner.backend, tape, &limits, &runner.program, why, sizeof why) < 0)
		fail_msg("%s: %s", kind, why);
	load_weights(runner.program, tape, path);
	return runner;
}

static void runner_close(struct runner *runner)
{
	program_close(runner->program);
	backend_close(runner->backend);
}

static void run_chunk(struct runner *runner, const uint32_t *ids, uint32_t first, uint32_t rows,
		      float *logits)
{
	uint32_t position[ROWS], sequence[ROWS] = {0}, output_row[ROWS], table[CONTEXT / TAPE_KV_BLOCK];
	struct batch_sequence seq = {.rows = rows, .kv_len = first + rows};
	struct batch batch = {.rows = rows,
			      .sequences = 1,
			      .outputs = rows,
			      .token = ids + first,
			      .position = position,
			      .sequence = sequence,
			      .seq = &seq,
			      .table_stride = CONTEXT / TAPE_KV_BLOCK,
			      .output_row = output_row};

	for (uint32_t g = 0; g < TAPE_GROUPS_MAX; g++)
		batch.table[g] = table;
	for (uint32_t b = 0; b < CONTEXT / TAPE_KV_BLOCK; b++)
		table[b] = b + 1;
	for (uint32_t r = 0; r < rows; r++) {
		position[r] = first + r;
		output_row[r] = r;
	}
	assert_int_equal(program_step(runner->program, &batch), STEP_DONE);
	for (uint32_t r = 0; r < rows; r++)
		assert_int_equal(program_faults(runner->program)[r], 0);
	memcpy(logits, program_logits(runner->program), (size_t)rows * runner->vocab * sizeof *logits);
}

/* The logits of all positions, (n, vocab); the caller frees. */
static float *logits_of(struct runner *runner, const uint32_t *ids, uint32_t n)
{
	float *logits = malloc((size_t)n * runner->vocab * sizeof *logits);

	assert_non_null(logits);
	assert_true(n <= CONTEXT);
	for (uint32_t first = 0; first < n; first += ROWS)
		run_chunk(runner, ids, first, n - first < ROWS ? n - first : ROWS,
			  logits + (size_t)first * runner->vocab);
	return logits;
}

static uint32_t best(const float *logits, uint32_t vocab)
{
	uint32_t at = 0;

	for (uint32_t i = 1; i < vocab; i++)
		if (logits[i] > logits[at])
			at = i;
	return at;
}

static double log_sum(const float *logits, uint32_t vocab)
{
	double most = logits[best(logits, vocab)], sum = 0;

	for (uint32_t i = 0; i < vocab; i++)
		sum += exp(logits[i] - most);
	return most + log(sum);
}

/* ---- ref-f32 against Hugging Face ---- */

struct exactness {
	double logit, whole, log_sum, bucket; /* largest differences */
	uint32_t positions, other_choices;
};

static void raise_to(double *most, double value)
{
	if (!(fabs(value) <= *most))
		*most = fabs(value);
}

static void compare_position(const struct golden_prompt *p, uint32_t at, const float *logits,
			     struct exactness *e)
{
	double buckets[64] = {0};

	assert_true(golden.buckets <= 64);
	for (uint32_t j = 0; j < golden.top; j++)
		raise_to(&e->logit, logits[p->top[at * golden.top + j]] - p->top_logits[at * golden.top + j]);
	for (uint32_t j = 0; j < golden.fixed; j++)
		raise_to(&e->logit, logits[golden.fixed_ids[j]] - p->fixed_logits[at * golden.fixed + j]);
	for (uint32_t i = 0; i < golden.vocab; i++)
		buckets[i % golden.buckets] += (i + 1) * 2654435761u >> 31 ? -logits[i] : logits[i];
	for (uint32_t b = 0; b < golden.buckets; b++)
		raise_to(&e->bucket, buckets[b] - p->bucket_sums[at * golden.buckets + b]);
	raise_to(&e->log_sum, log_sum(logits, golden.vocab) - p->log_sum[at]);
	for (uint32_t i = 0; at == p->whole && i < golden.vocab; i++)
		raise_to(&e->whole, logits[i] - p->whole_logits[i] / 1024.0);
	e->other_choices += best(logits, golden.vocab) != p->top[at * golden.top];
	e->positions++;
}

/* ---- int8 against ref-f32 and llama.cpp ---- */

struct closeness {
	double divergence;
	float *differences; /* of the best 20's log-probabilities */
	uint32_t positions, forced, other_choices;
	double widest_gap; /* of llama.cpp where int8 chooses otherwise */
};

static void compare_distributions(const float *exact, const float *got, const uint16_t *top,
				  struct closeness *c)
{
	double exact_sum = log_sum(exact, golden.vocab), got_sum = log_sum(got, golden.vocab);

	for (uint32_t i = 0; i < golden.vocab; i++)
		c->divergence += exp(exact[i] - exact_sum) * ((exact[i] - exact_sum) - (got[i] - got_sum));
	for (uint32_t j = 0; j < golden.top; j++)
		c->differences[c->positions * golden.top + j] =
		    (float)fabs((exact[top[j]] - exact_sum) - (got[top[j]] - got_sum));
	c->positions++;
}

static void compare_choices(const struct golden_prompt *p, const float *got, struct closeness *c)
{
	for (uint32_t i = 0; i < p->greedy; i++, c->forced++) {
		if (best(got + (size_t)(p->n - 1 + i) * golden.vocab, golden.vocab) == p->greedy_ids[i])
			continue;
		c->other_choices++;
		raise_to(&c->widest_gap, p->greedy_gaps[i]);
	}
}

static int ascending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static double percentile_99(struct closeness *c)
{
	size_t n = (size_t)c->positions * golden.top;

	qsort(c->differences, n, sizeof *c->differences, ascending);
	return c->differences[n * 99 / 100];
}

/* The prompt and llama.cpp's continuation without its last token; the caller frees. */
static uint32_t *forced_ids(const struct golden_prompt *p)
{
	uint32_t *ids = malloc((p->n + p->greedy) * sizeof *ids);

	assert_non_null(ids);
	memcpy(ids, p->ids, p->n * sizeof *ids);
	memcpy(ids + p->n, p->greedy_ids, p->greedy * sizeof *ids);
	return ids;
}

static const char *int8_kind(void)
{
	struct backend_config config = {.kind = "cpu", .isa = "auto", .threads = 1};
	struct backend *backend;
	char why[256];

	if (backend_open(&config, &backend, why, sizeof why) < 0)
		return "ref-int8";
	backend_close(backend);
	return "cpu";
}

static const char *model_path;
static struct exactness exactness;
static struct closeness closeness;

static int run_all(void **state)
{
	struct runner f32 = runner_open("ref-f32", model_tape(model), model_path);
	struct runner int8 = runner_open(int8_kind(), model_tape(model), model_path);
	uint32_t positions = 0;

	for (uint32_t i = 0; i < golden.prompts; i++)
		positions += golden.prompt[i].n;
	closeness.differences = malloc((size_t)positions * golden.top * sizeof(float));
	assert_non_null(closeness.differences);
	for (uint32_t i = 0; i < golden.prompts; i++) {
		const struct golden_prompt *p = &golden.prompt[i];
		uint32_t *ids = forced_ids(p);
		float *exact = logits_of(&f32, ids, p->n), *got = logits_of(&int8, ids, p->n + p->greedy - 1);
		for (uint32_t at = 0; at < p->n; at++) {
			size_t row = (size_t)at * golden.vocab;
			compare_position(p, at, exact + row, &exactness);
			compare_distributions(exact + row, got + row, p->top + at * golden.top, &closeness);
		}
		compare_choices(p, got, &closeness);
		free(exact);
		free(got);
		free(ids);
	}
	runner_close(&f32);
	runner_close(&int8);
	return 0;
}

static void f32_equals_transformers(void **state)
{
	const struct exactness *e = &exactness;

	print_message(
	    "%u positions: largest differences: logit %.2e, whole positions %.2e, log-sum-exp %.2e, "
	    "signed sums %.2e; %u other arg-maxes\n",
	    e->positions, e->logit, e->whole, e->log_sum, e->bucket, e->other_choices);
	assert_true(e->positions > 1000);
	assert_true(e->logit <= logit_bound);
	assert_true(e->whole <= logit_bound + 0.5 / 1024);
	assert_true(e->log_sum <= logit_bound);
	assert_true(e->bucket <= sum_bound);
	assert_int_equal(e->other_choices, 0);
}

static void int8_is_as_close_as_llama_cpp(void **state)
{
	double mean = closeness.divergence / closeness.positions, p99 = percentile_99(&closeness);

	print_message("mean KL %.5f nat (llama.cpp's against transformers: %.5f); p99 of the best 20's "
		      "log-probability differences %.3f\n",
		      mean, golden.llama_divergence, p99);
	assert_true(mean > 0 && mean <= 0.006);
	assert_true(mean <= 1.15 * golden.llama_divergence);
	assert_true(p99 <= 0.6);
}

static void int8_follows_llama_cpps_text(void **state)
{
	const struct closeness *c = &closeness;

	print_message("%u of %u forced positions choose otherwise; llama.cpp's two best are at most %.3f nat "
		      "apart there\n",
		      c->other_choices, c->forced, c->widest_gap);
	assert_true(c->forced >= 20 * 64);
	assert_true(c->other_choices * 100 <= c->forced * 3);
	assert_true(c->widest_gap <= 0.6);
}

/* The same model with its matrices rounded to BF16: no activation is quantised, so that the contract differs
 * from ref-f32 by its F16 cache alone. */
static void bf16_weights_leave_only_the_cache(void **state)
{
	struct tape tape = *model_tape(model);
	struct closeness c = {.differences =
				  malloc((size_t)golden.prompts * ROWS * golden.top * sizeof(float))};

	tape.weights = malloc(tape.n_weights * sizeof *tape.weights);
	assert_true(tape.weights && c.differences);
	memcpy(tape.weights, model_tape(model)->weights, tape.n_weights * sizeof *tape.weights);
	for (uint32_t i = 0; i < tape.n_weights; i++)
		if (weight_type_quantised(tape.weights[i].type))
			tape.weights[i].type = TYPE_BF16;
	struct runner f32 = runner_open("ref-f32", &tape, model_path);
	struct runner int8 = runner_open(int8_kind(), &tape, model_path);
	for (uint32_t i = 0; i < golden.prompts; i++) {
		const struct golden_prompt *p = &golden.prompt[i];
		uint32_t n = p->n < ROWS ? p->n : ROWS;
		float *exact = logits_of(&f32, p->ids, n), *got = logits_of(&int8, p->ids, n);
		for (uint32_t at = 0; at < n; at++)
			compare_distributions(exact + (size_t)at * golden.vocab,
					      got + (size_t)at * golden.vocab, p->top + at * golden.top, &c);
		free(exact);
		free(got);
	}
	double mean = c.divergence / c.positions, p99 = percentile_99(&c);
	print_message("BF16: %u positions, mean KL %.2e nat, p99 %.4f\n", c.positions, mean, p99);
	assert_true(mean <= 1e-5);
	assert_true(p99 <= 0.02);
	runner_close(&f32);
	runner_close(&int8);
	free(c.differences);
	free(tape.weights);
}

static int dump(const char *path)
{
	FILE *file = fopen(path, "wb");
	struct runner f32 = runner_open("ref-f32", model_tape(model), model_path);

	assert_non_null(file);
	for (uint32_t i = 0; i < golden.prompts; i++) {
		const struct golden_prompt *p = &golden.prompt[i];
		float *logits = logits_of(&f32, p->ids, p->n);
		assert_int_equal(fwrite(logits, f32.vocab * sizeof *logits, p->n, file), p->n);
		free(logits);
	}
	runner_close(&f32);
	return fclose(file);
}

static void open_files(void)
{
	static char path[4096];
	const char *models = getenv("TOKENRING_TEST_MODELS"), *root = getenv("TOKENRING_SOURCE_ROOT");
	char why[256] = "";

	snprintf(path, sizeof path, "%s/SmolLM2-135M-Instruct.Q4_1.gguf", models ? models : "");
	if (!models || access(path, R_OK) < 0) {
		printf(
		    "SKIP: SmolLM2-135M-Instruct.Q4_1.gguf is not in the folder that TOKENRING_TEST_MODELS "
		    "names; tools/fetch-model fetches it\n");
		exit(77);
	}
	model_path = path;
	if (model_open(path, &model, why, sizeof why) < 0)
		fail_msg("%s", why);
	char file[4096];
	snprintf(file, sizeof file, "%s/tests/golden/smollm2_q4_1.golden", root ? root : ".");
	golden_open(&golden, file);
	assert_int_equal(golden.vocab, model_tape(model)->vocab);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(f32_equals_transformers),
	    cmocka_unit_test(int8_is_as_close_as_llama_cpp),
	    cmocka_unit_test(int8_follows_llama_cpps_text),
	    cmocka_unit_test(bf16_weights_leave_only_the_cache),
	};

	open_files();
	int result = argc == 3 && !strcmp(argv[1], "dump") ? dump(argv[2])
							   : cmocka_run_group_tests(tests, run_all, NULL);
	free(closeness.differences);
	golden_close(&golden);
	model_close(model);
	return result;
}
