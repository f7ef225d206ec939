/* Synthetic models for the conformance suite: a tape of any of the architectures' shapes with seeded random
 * weights, built in C so that it needs no file. */
#ifndef TOKENRING_TESTS_CONFORMANCE_SYNTHETIC_H
#define TOKENRING_TESTS_CONFORMANCE_SYNTHETIC_H

#include "kernels/backend.h"

struct synthetic_spec {
	const char *name;
	uint32_t layers, width, heads, kv_heads, dk, dv, hidden, vocab, context;
	enum weight_type matrix; /* of all matrices */
	enum weight_type embed;  /* F32 and not tied: the row of the last token is NaN */
	bool tied;               /* LOGITS reads the embedding */
	enum weight_type kv;     /* of the KV cache; TYPE_F32, which is 0: F16 */
	uint32_t window;         /* > 0: every second layer is in a WINDOW group of its own */
	uint32_t experts, used;  /* > 0: EXPERTS instead of a dense feed-forward part */
	bool sigmoid, renormalise;
	bool half_rope;    /* else in pairs */
	uint32_t rotated;  /* dims of a head that turn; 0: all */
	bool head_norms;   /* QK norm, one group a head */
	bool layer_norms;  /* LAYER with bias, and biases on matrices */
	bool plus_one;     /* norm weights are added to 1 */
	bool post_norms;   /* gemma's second norms before the residual additions */
	bool ungated;      /* act(x U) D instead of (act(x G) * (x U)) D */
	enum tape_act act; /* of the feed-forward part */
	float limit, softcap, logit_softcap, embed_scale, logit_scale;
};

struct synthetic {
	struct synthetic_spec spec;
	struct tape tape;
	void **raw; /* (n_weights) in the file's layout */
};

/* Builds the tape (tape_check passes) and the weights; cmocka fails the test otherwise. */
void synthetic_create(struct synthetic *, const struct synthetic_spec *, uint64_t seed);
void synthetic_destroy(struct synthetic *);

/* The token whose embedding is NaN, if embed is F32 and not tied. */
static inline uint32_t synthetic_poison(const struct synthetic *model)
{
	return model->spec.vocab - 1;
}

/* Offsets of the f16 scale and minimum in a block of a quantised type; -1: it has no minimum. */
void synthetic_halves(enum weight_type, int *ret_d, int *ret_m);

/* Hands all weights to a program, `rows` at a time (a multiple of PROGRAM_LOAD_ROWS). */
void synthetic_load(const struct synthetic *, struct program *, uint32_t rows);

/* splitmix64 */
static inline uint64_t synthetic_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

#endif
