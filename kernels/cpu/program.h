/* A compiled tape: buffers, packed weights, KV memory and a flat list of steps.
 *
 * A step is one operation of the tape or several fused ones; every thread of the pool runs every step on its
 * own share. Two ways of sharing exist, chosen for each batch:
 *
 *   SPLIT_COLUMNS  few rows: a thread computes some columns (or heads) of all rows
 *   SPLIT_ROWS     many rows: a thread computes all columns of some rows, so that a panel is loaded once for
 *                  many rows and only attention needs the others' work
 *
 * Rows of OUTPUT and SEQUENCE buffers are always split by columns. plan.c finds out between which steps the
 * threads must meet. Private to kernels/cpu. */
#ifndef TOKENRING_KERNELS_CPU_PROGRAM_H
#define TOKENRING_KERNELS_CPU_PROGRAM_H

#include "kernels/backend_ops.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/pool.h"
#include "shm/atomics.h"

enum split { SPLIT_COLUMNS, SPLIT_ROWS, SPLITS };

enum {
	CHUNK_ROWS = 64,   /* activation rows prepared at once; their tiles fit the second-level cache */
	ROW_SPLIT_MIN = 8, /* rows a thread from which rows are split */
	ROW_SHARE = 4,     /* a thread's rows are a multiple of it */
	STEP_MATMULS = 4,  /* fused over one input */
	CACHE_LINE_FLOATS = 16,
};

struct cpu_backend {
	struct backend base;
	const struct cpu_isa *isa;
	struct pool *pool;
	const struct backend_memory *memory;
};

struct cpu_weight {
	bool is_vector, is_matrix; /* how operations use it; both is possible */
	bool ordered;              /* it is in the program's order */
	enum panel_kind kind;
	enum weight_type type;
	uint32_t n, k, experts;
	uint32_t threads;
	size_t panel_bytes;
	uint8_t **share; /* (threads) each thread's columns: (experts, its panels) */
	float *vector;   /* (k) */
};

struct cpu_buffer {
	float *data;
	uint32_t stride, width; /* floats */
	uint8_t rows;           /* enum row_kind */
	uint16_t root;
	uint32_t column;
};

/* [layer][block][K (kv heads, dk, 32), V (kv heads, 32, dv)], scales of Q8_0 before the head's K or V: the
 * order in which attention reads, as one stream */
struct cpu_kv {
	uint8_t *data;
	size_t key_bytes, value_bytes; /* of a head in a block */
	size_t block_bytes, layer_bytes, bytes;
};

struct cpu_program;
struct cpu_step;

typedef void run_step(struct cpu_program *, const struct cpu_step *, struct team_thread *);

struct cpu_matmul {
	const struct tape_op *op;
	const struct cpu_weight *weight;
	const float *bias; /* (n) or NULL */
	uint16_t out;      /* buffer; TAPE_NONE: logits */
};

struct cpu_step {
	run_step *run;
	bool meet[SPLITS]; /* a barrier before it */
	const struct tape_op *op;
	/* matmul steps: an optional norm of the input, then up to STEP_MATMULS products */
	const struct tape_op *norm;
	uint32_t n_matmuls;
	struct cpu_matmul matmul[STEP_MATMULS];
};

/* Memory of one thread. */
struct cpu_private {
	uint8_t *input;              /* CHUNK_ROWS prepared rows of the widest input */
	float *row;                  /* one row of the widest buffer */
	float *attention;            /* QUERY_ROWS segments and totals of the largest dv */
	struct query_block *queries; /* (heads + QUERY_ROWS, groups of the largest dk): for Q8 caches */

	uint32_t *slots;         /* EXPERTS: (rows * used) */
	float *products;         /* EXPERTS: (2, CHUNK_ROWS, n) */
	struct best_logit *best; /* (outputs) of its columns, in the order of program->outputs */
	uint32_t *chosen;        /* (panels of the vocabulary) a bit a row of the panel */
};

struct cpu_program {
	struct program base;
	const struct cpu_isa *isa;
	struct pool *pool;
	const struct backend_memory *memory;
	uint32_t threads;

	struct cpu_weight *weights;
	struct cpu_buffer *buffers;
	struct cpu_kv kv[TAPE_GROUPS_MAX];
	struct cpu_step *steps;
	uint32_t n_steps;

	uint16_t *order; /* (n_matrices) matrices as steps read them */
	uint32_t n_matrices;
	uint8_t **shares;      /* (weights, threads) */
	uint8_t *weight_arena; /* a stream a thread: its share of every matrix, in that order */
	uint8_t *vector_arena;
	uint8_t *scratch_arena;
	size_t weight_bytes, vector_bytes, scratch_bytes;

	struct cpu_private *private; /* (threads) */
	float *logits;               /* (limits.logits, vocab) */
	size_t logits_stride;
	struct output_best *best; /* (outputs) */
	uint16_t hidden_buffer;   /* what LOGITS reads */
	shared_u32 *faulty;       /* (rows) */
	uint8_t *faults;          /* (rows) the same for the caller */
	float **cosine, **sine;   /* (n_tables)(rows, n) of RoPE, made anew each step */
	float *partial; /* attention split by segment: (partial_rows, heads, segments), each o, padded, then
			   a line with m and l */
	uint32_t partial_rows, segments;
	float *hidden; /* EXPERTS: (rows * used, n) */

	/* the step in progress */
	const struct batch *batch;
	enum split split;  /* of token rows */
	uint32_t *outputs; /* (outputs) sorted by what they want: [0, n_best), [.., n_whole), [.., n_chosen),
			      [.., outputs) */
	uint32_t *logits_row; /* (outputs) of those that have one */
	uint32_t n_best, n_whole, n_chosen;
};

static inline const struct tape *program_tape(const struct cpu_program *program)
{
	return program->base.tape;
}

/* Rows of the batch that a buffer of this kind has. */
static inline uint32_t batch_rows(const struct batch *batch, uint8_t rows)
{
	return rows == ROW_TOKEN ? batch->rows : rows == ROW_OUTPUT ? batch->outputs : batch->sequences;
}

/* Panel p of an expert (0 of a plain matrix). */
static inline uint8_t *weight_panel(const struct cpu_weight *weight, uint32_t expert, uint32_t p)
{
	uint32_t first, end, owner = pool_owner(p, weight->threads, panel_count(weight->n));

	pool_share(owner, weight->threads, panel_count(weight->n), &first, &end);
	return weight->share[owner] + (size_t)(expert * (end - first) + p - first) * weight->panel_bytes;
}

static inline enum split rows_split(const struct cpu_program *program, uint8_t rows)
{
	return rows == ROW_TOKEN ? program->split : SPLIT_COLUMNS;
}

static inline float *buffer_row(const struct cpu_program *program, uint16_t buffer, uint32_t row)
{
	const struct cpu_buffer *b = &program->buffers[buffer];
	return b->data + (size_t)row * b->stride;
}

/* Part of a buffer: rows [row, row_end) and columns [column, column_end). */
struct span {
	uint32_t row, row_end, column, column_end;
};

/* This thread's part of `rows` rows by `width` columns, columns in units of a panel. */
static inline struct span own_span(enum split split, uint32_t rows, uint32_t width,
				   const struct team_thread *self)
{
	struct span span = {0, rows, 0, width};

	if (split == SPLIT_ROWS) {
		pool_share(self->index, self->threads, (rows + ROW_SHARE - 1) / ROW_SHARE, &span.row,
			   &span.row_end);
		span.row *= ROW_SHARE;
		span.row_end = span.row_end * ROW_SHARE < rows ? span.row_end * ROW_SHARE : rows;
	} else {
		pool_share(self->index, self->threads, panel_count(width), &span.column, &span.column_end);
		span.column *= PANEL_ROWS;
		span.column_end = span.column_end * PANEL_ROWS < width ? span.column_end * PANEL_ROWS : width;
	}
	return span;
}

/* This thread's part of rows by `parts` (heads, groups): items row * parts + part. Split by rows it is whole
 * rows. */
static inline void own_items(enum split split, uint32_t rows, uint32_t parts, const struct team_thread *self,
			     uint32_t *first, uint32_t *end)
{
	if (split == SPLIT_ROWS) {
		struct span span = own_span(split, rows, 1, self);
		*first = span.row * parts;
		*end = span.row_end * parts;
	} else {
		pool_share(self->index, self->threads, rows * parts, first, end);
	}
}

/* Marks a row of the batch as faulty. Several threads may mark the same row. */
static inline void store_fault(struct cpu_program *program, uint32_t row)
{
	store_relaxed_u32(&program->faulty[row], 1);
}

/* plan.c: fills steps. -ENOTSUP with a sentence. */
int program_plan(struct cpu_program *, char *why, size_t why_bytes);

/* run_*.c */
run_step run_angles, run_embed, run_norm, run_rope, run_add, run_mul, run_act, run_pool_rows;
run_step run_matmul, run_logits, run_kv_write, run_attention, run_route, run_experts;

/* run_logits.c: before and after the threads run, on the calling one. */
void logits_begin(struct cpu_program *);
void logits_end(struct cpu_program *);

/* Keys of a sequence from which on attention takes no new path. */
uint32_t attention_paths(uint32_t threads);

/* One row through a NORM operation. */
void norm_row(const struct cpu_program *, const struct tape_op *, const float *x, float *y);
/* Products of prepared rows (panel_input_bytes) with panel p of an expert's matrix; y: its first column of
 * row 0. */
void multiply_panel(const struct cpu_program *, struct team_thread *, const struct cpu_weight *,
		    uint32_t expert, uint32_t p, uint32_t rows, const uint8_t *input, float *y, size_t ldy);
/* With panels [first, end); y: column 0 of the matrix's output. */
void multiply_panels(const struct cpu_program *, struct team_thread *, const struct cpu_weight *,
		     uint32_t expert, uint32_t first, uint32_t end, uint32_t rows, const uint8_t *input,
		     float *y, size_t ldy);
/* Prepares one row of a chunk of `rows` for multiply_panels; false: a value is not finite. */
bool prepare_row(const struct cpu_program *, const struct cpu_weight *, const float *x, uint8_t *input,
		 uint32_t row, uint32_t rows);
/* KV of a group's layer; a head's keys and values in it. */
uint8_t *kv_block(const struct cpu_program *, uint32_t group, uint32_t layer, uint32_t block);
uint8_t *kv_keys(const struct cpu_program *, uint32_t group, uint8_t *block, uint32_t head);
uint8_t *kv_values(const struct cpu_program *, uint32_t group, uint8_t *block, uint32_t head);

#endif
