/* A sequence: a request that holds a slot, its tokens, its KV blocks, and how far it has come.
 *
 * GENERATE computes the prompt, then feeds back each token drawn. SCORE computes the prompt, reads the logits
 * of its last position, and then runs the continuations one after another over the same positions behind the
 * prompt: keys of the one before are overwritten, and attention never looks beyond the row's own position.
 * EMBED computes the prompt; a mean adds up hidden states as they come, so that chunks change no bit.
 *
 * Thread rule: the engine's thread. No allocation. */
#ifndef TOKENRING_DAEMON_ENGINE_SEQUENCE_H
#define TOKENRING_DAEMON_ENGINE_SEQUENCE_H

#include "daemon/engine/kv.h"
#include "daemon/engine/sampler.h"
#include "kernels/backend.h"

struct sequence {
	struct request *request; /* NULL: the slot is free */
	uint32_t *tokens;        /* (context) the prompt, then what follows it */
	float *sums;             /* (width) EMBED, mean: of the hidden states so far */
	uint32_t n_tokens;       /* known */
	uint32_t computed;       /* of those, with keys and values in the cache */
	uint32_t generated;      /* drawn and sent */
	uint32_t records;        /* written to the reply area: of EMBED, floats */
	uint32_t continuation;   /* SCORE: the one that runs; n_continuations: none left */
	uint32_t scored;         /* SCORE: tokens of the continuations before that one */
	struct kv_table table[TAPE_GROUPS_MAX];
	/* ---- its part of the step that runs ---- */
	uint32_t first_row, rows, first_output, outputs;
	uint32_t first_logits; /* row of program_logits of its first output, if those want logits */
};

/* What a step computed for the outputs of a sequence: what they want. */
struct sequence_outputs {
	const float *logits;            /* (outputs, vocab) */
	const struct output_best *best; /* (outputs) */
	const float *hidden;            /* (outputs) rows of `width`, hidden_stride floats apart */
	size_t hidden_stride;
	uint32_t width;
};

/* What became of a sequence after a step. */
struct sequence_result {
	bool has_token, ended;
	uint32_t token;
	uint8_t finish;  /* enum wire_finish, if ended */
	uint32_t reason; /* enum wire_reason */
};

/* The most keys that the request can ever need. */
uint64_t sequence_keys(const struct request *);

/* Bytes of reply that the request asks for; 0: none. width: of the model. */
uint64_t sequence_reply_bytes(const struct request *, uint32_t width);

void sequence_begin(struct sequence *, struct request *);

/* Tokens to compute next; never 0 while it runs. */
uint32_t sequence_pending(const struct sequence *);

/* Whether every row gives an output (a continuation, a mean), not only the last of all. */
bool sequence_all_rows_output(const struct sequence *);

/* What its outputs want of the next step. */
struct batch_output sequence_wants(const struct sequence *);

/* Takes its outputs after a step of `rows` rows; draws or scores, writes records. eos: (n_eos) the model's
 * end-of-generation ids. */
struct sequence_result sequence_advance(struct sequence *, struct sampler *, const struct sequence_outputs *,
					const uint32_t *eos, uint32_t n_eos);

/* Bytes written to the reply area so far. */
uint32_t sequence_reply_written(const struct sequence *);

#endif
