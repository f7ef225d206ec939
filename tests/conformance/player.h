/* Plays token sequences through a program in any chunking and collects the logits of every position. */
#ifndef TOKENRING_TESTS_CONFORMANCE_PLAYER_H
#define TOKENRING_TESTS_CONFORMANCE_PLAYER_H

#include "tests/conformance/synthetic.h"

enum { PLAY_SEQUENCES_MAX = 48, PLAY_ROWS = 64, PLAY_ROWS_MAX = 512 };

struct player {
	struct backend *backend;
	struct program *program;
	const struct tape *tape;
	struct tape_limits limits;
};

/* Opens the backend and compiles and loads the model. Returns 0, or -ENODEV with why when the machine lacks
 * the instruction set; anything else fails the test. load_rows: rows of one program_load. */
int player_open(struct player *, const struct synthetic *, const char *kind, const char *isa,
		uint32_t threads, uint32_t load_rows, char *why, size_t why_bytes);
/* The same with up to `rows` <= PLAY_ROWS_MAX rows a step and `blocks` KV blocks a group, where player_open
 * takes PLAY_ROWS, and blocks for three whole contexts. */
int player_open_wide(struct player *, const struct synthetic *, const char *kind, const char *isa,
		     uint32_t threads, uint32_t load_rows, uint32_t rows, uint32_t blocks, char *why,
		     size_t why_bytes);
void player_close(struct player *);

/* Keys and values of the first n positions in all layers of a group, as the cache of a "cpu" or "ref-int8"
 * program gives them back: (layers, n, kv_heads * (dk + dv)). blocks: the sequence's block table. */
size_t player_kv_elements(const struct player *, uint32_t group, uint32_t n);
void player_kv(const struct player *, uint32_t group, const uint32_t *blocks, uint32_t n, float *ret);

struct play {
	uint32_t sequences;
	const uint32_t *tokens[PLAY_SEQUENCES_MAX];
	uint32_t n[PLAY_SEQUENCES_MAX];
	uint32_t chunk;      /* rows of a sequence a step; 0: random, and only some rows are outputs */
	uint64_t seed;       /* of block ids and random chunks */
	bool keep_kv;        /* fills played.kv */
	bool hidden;         /* outputs want hidden states: those are in played.logits, (n, width) */
	bool drop_old_block; /* entries of WINDOW tables that nobody may read point to the null block */
};

struct played {
	float *logits[PLAY_SEQUENCES_MAX];              /* (n, vocab), or hidden states (n, width) */
	uint8_t *have[PLAY_SEQUENCES_MAX];              /* (n): the position was an output */
	uint8_t *faults[PLAY_SEQUENCES_MAX];            /* (n) */
	float *kv[PLAY_SEQUENCES_MAX][TAPE_GROUPS_MAX]; /* player_kv of all its positions at the end */
};

void play(struct player *, const struct play *, struct played *ret);
void played_free(struct played *);

/* Runs NaN through every block of every group, the null block included, and through all buffers: what a later
 * play reads by mistake is a NaN. Needs an F32 embedding. */
void player_poison(struct player *, uint32_t poison_token);

#endif
