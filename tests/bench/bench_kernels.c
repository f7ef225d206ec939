/* Decode and prefill of a synthetic model with the shapes of SmolLM2-135M, beside the floors of the same run.
 *
 *   bench_kernels [TYPE [THREADS [ISA [PART [WANT [KV]]]]]]      default Q4_1, 2, auto, all, best, F16; the
 * vocabulary is Q8_0 and tied; PART: meet, decode, long (decode at 8,192), prefill, together; WANT: best (the
 * id of the largest logit) or logits (all); KV: F16, BF16 or Q8_0
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/backend.h"
#include "kernels/cpu/peak.h"
#include "kernels/cpu/pool.h"
#include "kernels/formats.h"

enum {
	LAYERS = 30,
	WIDTH = 576,
	HEADS = 9,
	KV_HEADS = 3,
	HEAD = 64,
	HIDDEN = 1536,
	VOCAB = 49152,
	CONTEXT = 2048,
	LONG_CONTEXT = 8192,
	PREFILL = 512,
	STEPS = 60,
	MEETINGS = 100000
};

struct bench {
	struct tape tape;
	uint64_t random;
	uint16_t x, h, q, k, v, o, y, gate, up, last;
	int rope;
};

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void add(struct bench *bench, struct tape_op op)
{
	op.in[1] =
	    op.kind == TAPE_ACT || op.kind == TAPE_ADD || op.kind == TAPE_KV_WRITE ? op.in[1] : TAPE_NONE;
	op.bias = TAPE_NONE;
	tape_add_op(&bench->tape, &op);
}

static uint16_t weight(struct bench *bench, enum weight_type type, uint32_t n, uint32_t k)
{
	return (uint16_t)tape_add_weight(&bench->tape, "weight", type, 1, n, k);
}

static void add_norm(struct bench *bench, uint16_t in, uint16_t out)
{
	struct tape_op op = {.kind = TAPE_NORM, .in = {in}, .out = {out}};

	op.weight = weight(bench, TYPE_F32, 1, WIDTH);
	op.u.norm.kind = NORM_RMS;
	op.u.norm.eps = 1e-5f;
	op.u.norm.groups = 1;
	add(bench, op);
}

static void add_matmul(struct bench *bench, enum weight_type type, uint16_t in, uint16_t out)
{
	struct tape_op op = {.kind = TAPE_MATMUL, .in = {in}, .out = {out}};

	op.weight = weight(bench, type, bench->tape.buffers[out].width, bench->tape.buffers[in].width);
	op.u.matmul.heads = 1;
	add(bench, op);
}

static void add_rope(struct bench *bench, uint16_t x, uint32_t heads)
{
	struct tape_op op = {.kind = TAPE_ROPE, .in = {x}, .out = {x}, .weight = TAPE_NONE};

	op.u.rope.style = ROPE_PAIR;
	op.u.rope.table = (uint16_t)bench->rope;
	op.u.rope.heads = heads;
	op.u.rope.head_dim = op.u.rope.dims = HEAD;
	add(bench, op);
}

static void add_cache_op(struct bench *bench, uint8_t kind, uint16_t layer)
{
	struct tape_op op = {.kind = kind, .weight = TAPE_NONE};

	op.in[0] = kind == TAPE_ATTN ? bench->q : bench->k;
	op.in[1] = bench->v;
	op.out[0] = kind == TAPE_ATTN ? bench->o : TAPE_NONE;
	op.u.attn.layer = layer;
	op.u.attn.heads = HEADS;
	op.u.attn.scale = 0.125f;
	op.u.attn.sinks = TAPE_NONE;
	add(bench, op);
}

static void add_two(struct bench *bench, uint8_t kind, uint16_t a, uint16_t b, uint16_t out)
{
	struct tape_op op = {.kind = kind, .in = {a, b}, .out = {out}, .weight = TAPE_NONE};

	if (kind == TAPE_ACT)
		op.u.act.gated = true;
	add(bench, op);
}

static void add_layer(struct bench *bench, enum weight_type type, uint16_t layer)
{
	add_norm(bench, bench->x, bench->h);
	add_matmul(bench, type, bench->h, bench->q);
	add_matmul(bench, type, bench->h, bench->k);
	add_matmul(bench, type, bench->h, bench->v);
	add_rope(bench, bench->q, HEADS);
	add_rope(bench, bench->k, KV_HEADS);
	add_cache_op(bench, TAPE_KV_WRITE, layer);
	add_cache_op(bench, TAPE_ATTN, layer);
	add_matmul(bench, type, bench->o, bench->y);
	add_two(bench, TAPE_ADD, bench->x, bench->y, bench->x);
	add_norm(bench, bench->x, bench->h);
	add_matmul(bench, type, bench->h, bench->gate);
	add_matmul(bench, type, bench->h, bench->up);
	add_two(bench, TAPE_ACT, bench->gate, bench->up, bench->gate);
	add_matmul(bench, type, bench->gate, bench->y);
	add_two(bench, TAPE_ADD, bench->x, bench->y, bench->x);
}

static uint16_t buffer(struct bench *bench, enum row_kind rows, uint32_t width)
{
	return (uint16_t)tape_add_buffer(&bench->tape, rows, width);
}

static void add_buffers(struct bench *bench)
{
	float frequency[HEAD / 2];

	for (int i = 0; i < HEAD / 2; i++)
		frequency[i] = (float)pow(10000.0, -2.0 * i / HEAD);
	bench->rope = tape_add_table(&bench->tape, frequency, HEAD / 2);
	bench->x = buffer(bench, ROW_TOKEN, WIDTH);
	bench->h = buffer(bench, ROW_TOKEN, WIDTH);
	bench->q = buffer(bench, ROW_TOKEN, HEADS * HEAD);
	bench->k = buffer(bench, ROW_TOKEN, KV_HEADS * HEAD);
	bench->v = buffer(bench, ROW_TOKEN, KV_HEADS * HEAD);
	bench->o = buffer(bench, ROW_TOKEN, HEADS * HEAD);
	bench->y = buffer(bench, ROW_TOKEN, WIDTH);
	bench->gate = buffer(bench, ROW_TOKEN, HIDDEN);
	bench->up = buffer(bench, ROW_TOKEN, HIDDEN);
	bench->last = buffer(bench, ROW_OUTPUT, WIDTH);
}

static void build(struct bench *bench, enum weight_type type)
{
	struct tape_op op = {.kind = TAPE_EMBED};

	bench->tape = (struct tape){.vocab = VOCAB, .context = LONG_CONTEXT, .width = WIDTH, .n_groups = 1};
	bench->tape.groups[0] = (struct tape_group){
	    .kind = KV_FULL, .layers = LAYERS, .kv_heads = KV_HEADS, .dk = HEAD, .dv = HEAD};
	add_buffers(bench);
	op.in[0] = TAPE_NONE;
	op.out[0] = bench->x;
	op.weight = weight(bench, TYPE_Q8_0, VOCAB, WIDTH);
	op.u.embed.scale = 1;
	add(bench, op);
	for (uint16_t layer = 0; layer < LAYERS; layer++)
		add_layer(bench, type, layer);
	add_norm(bench, bench->x, bench->last);
	struct tape_op logits = {.kind = TAPE_LOGITS, .in = {bench->last}, .out = {TAPE_NONE}};
	logits.weight = op.weight;
	logits.u.logits.scale = 1;
	add(bench, logits);
}

/* Random quants with small f16 scales where the block keeps them; good enough for any type but F16 and BF16.
 */
static void fill_row(struct bench *bench, const struct tape_weight *w, uint8_t *row)
{
	const struct weight_type_info *info = &weight_type_info[w->type];
	uint16_t scale = f16_from_f32(0.01f);

	if (w->type == TYPE_F32) {
		for (uint32_t i = 0; i < w->k; i++)
			((float *)row)[i] = 1.0f;
		return;
	}
	for (uint32_t b = 0; b < w->k / info->block_weights; b++, row += info->block_bytes) {
		for (uint32_t i = 0; i < info->block_bytes; i++)
			row[i] = info->block_weights == 1 ? 0x1c : (uint8_t)draw(&bench->random);
		bool ends = w->type == TYPE_Q6_K || w->type == TYPE_Q3_K;
		memcpy(ends ? row + info->block_bytes - 2 : w->type == TYPE_Q2_K ? row + 80 : row, &scale, 2);
		if (w->type == TYPE_Q2_K)
			memcpy(row + 82, &scale, 2);
		else if (weight_type_has_min(w->type))
			memcpy(row + 2, &scale, 2);
	}
}

static int load(struct bench *bench, struct program *program)
{
	for (uint32_t i = 0; i < bench->tape.n_weights; i++) {
		const struct tape_weight *w = &bench->tape.weights[i];
		size_t row_bytes = weight_type_bytes(w->type, w->k);
		uint8_t *raw = malloc(row_bytes * w->n);
		for (uint32_t r = 0; raw && r < w->n; r++)
			fill_row(bench, w, raw + r * row_bytes);
		int err = raw ? program_load(program, i, 0, w->n, raw) : -1;
		free(raw);
		if (err < 0)
			return err;
	}
	return 0;
}

/* What output rows want. */
static struct batch_output wants[PREFILL];

/* Rows at [position, position + rows) of one sequence; the last row is the output. */
static void step(struct program *program, uint32_t position, uint32_t rows)
{
	static uint32_t token[PREFILL], at[PREFILL], sequence[PREFILL], table[LONG_CONTEXT / 32];
	struct batch_sequence seq = {.rows = rows, .kv_len = position + rows};
	uint32_t output = rows - 1;
	struct batch batch = {.rows = rows,
			      .sequences = 1,
			      .outputs = 1,
			      .token = token,
			      .position = at,
			      .sequence = sequence,
			      .seq = &seq,
			      .table = {table},
			      .table_stride = LONG_CONTEXT / 32,
			      .output_row = &output,
			      .output = wants};

	for (uint32_t i = 0; i < rows; i++) {
		token[i] = (position + i) * 7919 % VOCAB;
		at[i] = position + i;
	}
	for (uint32_t i = 0; i < LONG_CONTEXT / 32; i++)
		table[i] = i + 1;
	if (program_step(program, &batch) != STEP_DONE)
		exit(1);
}

/* Ordinary keys and values everywhere; a prompt of that length would take half a minute. */
static void fill_context(struct program *program)
{
	step(program, 0, PREFILL);
	for (uint32_t block = PREFILL / 32; block < LONG_CONTEXT / 32; block++)
		program_copy_block(program, 0, 1 + block % (PREFILL / 32), 1 + block);
}

/* `n` sequences of the same length, one row each. */
static void step_together(struct program *program, uint32_t position, uint32_t n)
{
	static uint32_t token[PREFILL], at[PREFILL], sequence[PREFILL], table[PREFILL];
	static struct batch_sequence seq[PREFILL];
	struct batch batch = {.rows = n,
			      .sequences = n,
			      .outputs = n,
			      .token = token,
			      .position = at,
			      .sequence = sequence,
			      .seq = seq,
			      .table = {table},
			      .table_stride = 1,
			      .output_row = sequence,
			      .output = wants};

	for (uint32_t i = 0; i < n; i++) {
		at[i] = position;
		token[i] = sequence[i] = i;
		table[i] = i + 1;
		seq[i] = (struct batch_sequence){.first_row = i, .rows = 1, .kv_len = position + 1};
	}
	if (program_step(program, &batch) != STEP_DONE)
		exit(1);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static void report_decode(struct program *program, uint32_t context, uint32_t threads)
{
	struct program_cost cost;
	double took[STEPS], read;

	for (int i = 0; i < STEPS; i++) {
		double start = seconds();
		step(program, context - (uint32_t)STEPS + (uint32_t)i, 1);
		took[i] = seconds() - start;
	}
	qsort(took, STEPS, sizeof *took, compare);
	program_cost(program, context, &cost);
	double bytes = (double)(cost.weight_bytes + cost.kv_bytes);
	if (cpu_peak_read((size_t)bytes, threads, NULL, &read) < 0)
		exit(1);
	printf("decode at %4u: %6.1f t/s (best %6.1f)  %5.1f GB/s of %5.1f = %4.1f %% of read bandwidth\n",
	       context, 1 / took[STEPS / 2], 1 / took[0], bytes / took[STEPS / 2] * 1e-9, read * 1e-9,
	       100 * bytes / took[STEPS / 2] / read);
}

static void report_prefill(struct program *program, uint32_t threads, const char *isa)
{
	struct program_cost cost;
	double took[7], peak;

	for (int i = 0; i < 7; i++) {
		double start = seconds();
		step(program, 0, PREFILL);
		took[i] = seconds() - start;
	}
	qsort(took, 7, sizeof *took, compare);
	program_cost(program, 0, &cost);
	if (cpu_peak_int8(isa, threads, NULL, &peak) < 0)
		exit(1);
	double ops = 2.0 * PREFILL * ((double)cost.multiply_adds - (double)VOCAB * WIDTH);
	printf("prefill %u: %6.0f t/s (best %6.0f)  %4.0f GOP/s of %4.0f = %4.1f %% of the multiply rate\n",
	       PREFILL, PREFILL / took[3], PREFILL / took[0], ops / took[3] * 1e-9, peak * 1e-9,
	       100 * ops / took[3] / peak);
}

static void report_together(struct program *program, uint32_t n)
{
	double took[15];

	for (int i = 0; i < 15; i++) {
		double start = seconds();
		step_together(program, 8, n);
		took[i] = seconds() - start;
	}
	qsort(took, 15, sizeof *took, compare);
	printf("decode of %2u together: %6.0f t/s\n", n, n / took[7]);
}

static void meet_often(void *data, struct team_thread *self)
{
	(void)data;
	for (int i = 0; i < MEETINGS; i++)
		pool_barrier(self);
}

/* What a crossing costs when nobody is late: threads on CPUs 0, 1, ... */
static void report_meeting(uint32_t threads)
{
	int cpus[BACKEND_CPUS_MAX];
	struct pool_config config = {.threads = threads, .cpus = cpus};
	double took[7];
	struct pool *pool;
	char why[256];

	for (uint32_t i = 0; i < threads; i++)
		cpus[i] = (int)i;
	if (pool_open(&config, &pool, why, sizeof why) < 0)
		exit(1);
	for (int i = 0; i < 7; i++) {
		double start = seconds();
		pool_run(pool, meet_often, NULL);
		took[i] = (seconds() - start) / MEETINGS;
	}
	pool_close(pool);
	qsort(took, 7, sizeof *took, compare);
	printf("meeting of %u threads: %3.0f ns (%.0f to %.0f)\n", threads, took[3] * 1e9, took[0] * 1e9,
	       took[6] * 1e9);
}

static enum weight_type type_named(const char *name)
{
	for (int i = 0; i < TYPE_COUNT; i++)
		if (!strcmp(weight_type_info[i].name, name))
			return (enum weight_type)i;
	fprintf(stderr, "no type %s\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "Q4_1", *isa = argc > 3 ? argv[3] : "auto";
	const char *part = argc > 4 && strcmp(argv[4], "all") ? argv[4] : NULL;
	bool best = argc < 6 || strcmp(argv[5], "logits");
	bool is_long = part && !strcmp(part, "long");
	uint32_t threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 2, context = is_long ? LONG_CONTEXT : CONTEXT;
	struct backend_config config = {.kind = "cpu", .isa = isa, .threads = threads};
	struct tape_limits limits = {.rows = PREFILL,
				     .sequences = 32,
				     .outputs = 32,
				     .context = context,
				     .blocks = {context / 32 + 1},
				     .kv_type = argc > 6 ? type_named(argv[6]) : TYPE_F16};
	struct bench bench = {.random = 88172645463325252u};
	struct backend *backend;
	struct program *program;
	char why[256] = "";

	for (uint32_t i = 0; i < PREFILL; i++)
		wants[i].want = best ? OUTPUT_BEST : OUTPUT_LOGITS;
	build(&bench, type_named(name));
	if (backend_open(&config, &backend, why, sizeof why) < 0 ||
	    program_compile(backend, &bench.tape, &limits, &program, why, sizeof why) < 0) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	double start = seconds();
	if (load(&bench, program) < 0)
		return 1;
	printf("%s, %u threads, %s; packed in %.2f s\n", name, threads, backend_isa(backend),
	       seconds() - start);
	if (!part || !strcmp(part, "meet"))
		report_meeting(threads);
	if (!part || !strcmp(part, "decode")) {
		report_decode(program, 64, threads);
		report_decode(program, PREFILL, threads);
		report_decode(program, CONTEXT, threads);
	}
	if (is_long) {
		fill_context(program);
		report_decode(program, LONG_CONTEXT, threads);
	}
	if (!part || !strcmp(part, "prefill"))
		report_prefill(program, threads, isa);
	for (uint32_t n = 2; n <= 32 && (!part || !strcmp(part, "together")); n *= 2)
		report_together(program, n);
	program_close(program);
	backend_close(backend);
	tape_free(&bench.tape);
	return 0;
}
