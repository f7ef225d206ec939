/* Backends: what compiles a tape and runs batches of it.
 *
 * A backend receives pointers, shapes and strides; it knows no ring, socket or file. Work is split over
 * outputs, never over a reduction, so that bits depend on nothing but weights, tokens and positions
 * (docs/numerics.md). Thread rule: one thread owns a program; program_load may run on other threads before
 * the first step, several at once for rows that differ. Backends own worker threads; program_step returns
 * when all of them are done. Memory: everything is allocated by backend_open and program_compile;
 * program_step allocates nothing. */
#ifndef TOKENRING_KERNELS_BACKEND_H
#define TOKENRING_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/tape.h"

struct backend;
struct program;

enum { BACKEND_CPUS_MAX = 256 };

/* Where the memory of programs comes from. Calls come from program_compile and program_close. */
enum backend_memory_use { BACKEND_WEIGHTS, BACKEND_KV, BACKEND_SCRATCH };

struct backend_memory {
	/* Zeroed memory, aligned to a page; with `touch` every page is there when it returns. NULL: none,
	 * with a sentence. */
	void *(*map)(void *context, enum backend_memory_use, size_t bytes, bool touch, char *why,
		     size_t why_bytes);
	void (*unmap)(void *context, void *, size_t bytes);
	void *context;
};

struct backend_config {
	const char *kind; /* "cpu", "ref-int8", "ref-f32" */
	const char *isa;  /* "auto", "generic", "avx2", "avx512vnni"; cpu only */
	uint32_t threads; /* including the caller's; 1 at least */
	const int
	    *cpus; /* (threads) CPU of each, -1: not pinned; NULL: none pinned; the caller pins itself */
	/* Called on the calling thread at least every 100 us inside a step; may be NULL. */
	void (*poll)(void *poll_data);
	void *poll_data;
	const struct backend_memory *memory; /* cpu only; outlives the backend; NULL: the backend's own */
};

/* -ENODEV: the instruction set or device is not there; -EINVAL; -ENOMEM; with a sentence. The backend stays
 * the caller's until backend_close, after all its programs are closed. */
int backend_open(const struct backend_config *, struct backend **ret, char *why, size_t why_bytes);
void backend_close(struct backend *);

/* "ref-f32", "ref-int8", "generic", "avx2", "avx512vnni": what runs, for reports. Static. */
const char *backend_isa(const struct backend *);
/* "exact-1" and the like: keys caches and the journal. Static. */
const char *backend_numerics(const struct backend *);

struct tape_limits {
	uint32_t rows;                    /* tokens a step */
	uint32_t sequences;               /* a step */
	uint32_t outputs;                 /* output rows a step */
	uint32_t logits;                  /* of those, rows that want logits; 0: all may */
	uint32_t context;                 /* positions below it */
	uint32_t blocks[TAPE_GROUPS_MAX]; /* KV blocks of a group, the null block 0 included */
	enum weight_type kv_type;         /* F16, BF16 or Q8_0; ref-f32: F32 */
};

struct program_bytes {
	uint64_t weights, kv, scratch;
};

/* What program_compile would allocate. */
int program_measure(struct backend *, const struct tape *, const struct tape_limits *,
		    struct program_bytes *ret);

/* The tape must outlive the program. -ENOTSUP: an operation, type or shape that the backend does not run,
 * with a sentence; -ENOMEM. */
int program_compile(struct backend *, const struct tape *, const struct tape_limits *, struct program **ret,
		    char *why, size_t why_bytes);
void program_close(struct program *);

/* Hands over rows [row, row + rows) of a weight in the file's layout (`raw`: rows of k weights each); row
 * counts across experts (expert * n + row). The backend converts to its own layout at once; raw belongs to
 * the caller again after. The range begins and ends at a multiple of PROGRAM_LOAD_ROWS, counted inside its
 * expert, or at an expert's end. A range is loaded once. -EINVAL: out of range. -EDOM: a scale that is not
 * finite. */
enum { PROGRAM_LOAD_ROWS = 32 };
int program_load(struct program *, uint32_t weight, uint32_t row, uint32_t rows, const void *raw);

struct batch_sequence {
	uint32_t first_row, rows; /* its rows are consecutive, positions ascending by one */
	uint32_t kv_len;          /* keys after this step: last position + 1 */
	uint32_t adapter, state;  /* 0 */
};

/* What is wanted of an output row. */
enum output_want {
	OUTPUT_LOGITS, /* the logits of the whole vocabulary: program_logits */
	OUTPUT_CHOSEN, /* those of chosen ids alone: program_logits, where the others are undefined */
	OUTPUT_BEST,   /* the id of the largest logit: program_best */
	OUTPUT_HIDDEN, /* no logits, but what they are made of: program_hidden */
};

struct batch_output {
	uint8_t want;           /* enum output_want */
	uint32_t n_chosen;      /* CHOSEN: 1 at least */
	const uint32_t *chosen; /* (n_chosen) ids below the vocabulary, in any order */
};

struct batch {
	uint32_t rows, sequences, outputs;
	const uint32_t *token;            /* (rows) */
	const uint32_t *position;         /* (rows) */
	const uint32_t *sequence;         /* (rows) */
	const struct batch_sequence *seq; /* (sequences) */
	/* One block table a group: (sequences, table_stride) block ids; entry b holds positions [32 b, 32 b +
	 * 32). */
	const uint32_t *table[TAPE_GROUPS_MAX];
	uint32_t table_stride;
	const uint32_t *output_row;        /* (outputs) rows, ascending */
	const struct batch_output *output; /* (outputs) NULL: all want LOGITS */
};

static inline enum output_want batch_want(const struct batch *batch, uint32_t output)
{
	return batch->output ? (enum output_want)batch->output[output].want : OUTPUT_LOGITS;
}

/* Whether it has a row of program_logits. */
static inline bool batch_wants_logits(const struct batch *batch, uint32_t output)
{
	return batch_want(batch, output) <= OUTPUT_CHOSEN;
}

enum step_result { STEP_DONE = 0, STEP_WANT_WEIGHTS = 1 };

/* Runs the batch. On STEP_DONE what the output rows want is in program_logits, program_best and
 * program_hidden, and program_faults says which rows met a value that is not finite (a logit that nobody
 * wants counts for BEST, not for CHOSEN) or a KV value too large for its type (such a row's results are
 * undefined; no other row's are). What one row wants changes no bit of another. Returns enum step_result or
 * -EINVAL when the batch exceeds the limits. */
int program_step(struct program *, const struct batch *);

/* (rows, vocab) f32, a row for each output that wants LOGITS or CHOSEN, in their order; valid until the next
 * step. */
const float *program_logits(const struct program *);

/* The largest logit; of equal ones (zeros of either sign are) that of the lowest id. */
struct output_best {
	uint32_t id;
	float value;
};

/* (outputs) of those that want BEST; valid until the next step. */
const struct output_best *program_best(const struct program *);

/* What LOGITS reads of the outputs that want HIDDEN: (outputs) rows of the tape's width, *ret_stride floats
 * apart; valid until the next step. NULL and 0: the tape has no LOGITS. */
const float *program_hidden(const struct program *, size_t *ret_stride);
/* (rows) 0 or 1, valid until the next step. */
const uint8_t *program_faults(const struct program *);

/* Copies the KV content of one block to another in every layer of a group (copy-on-write). */
int program_copy_block(struct program *, uint32_t group, uint32_t from, uint32_t to);
/* Fills a block with zeros in every layer of a group. */
int program_zero_block(struct program *, uint32_t group, uint32_t block);

/* Where a program stops having paths of its own: a batch of more rows than `rows`, or a row that sees more
 * keys than `keys`, runs no code, touches no memory and takes no decision that smaller ones did not.
 * UINT32_MAX: every number does. Who has run one row at `keys` keys and batches of 2, 4, 8 ... `rows` rows,
 * half of them of one sequence and half of a sequence each, the last of them over two segments of keys, has
 * run them all. */
struct program_paths {
	uint32_t rows, keys;
};
void program_paths(const struct program *, struct program_paths *ret);

/* Bytes of weights, and of KV at this context length, that one row of one sequence reads in a step: for the
 * bench's GB/s. Multiply-adds a row, without attention. */
struct program_cost {
	uint64_t weight_bytes, kv_bytes, multiply_adds;
};
void program_cost(const struct program *, uint32_t context, struct program_cost *ret);

#endif
