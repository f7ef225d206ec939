/* An engine that makes tokens up: the front's other side in tests that need no model.
 *
 * The answer to a prompt is a chain: each token is fake_next of the one before, so that a test can compute
 * what it must get. Scores are a function of the id. It keeps the rules of engine/request.h: it pauses a
 * request with 64 undelivered tokens and sends exactly one terminal event for each.
 *
 * Thread rule: fake_engine_turn on one thread; the knobs from any. */
#ifndef TOKENRING_TESTS_HARNESS_FAKE_ENGINE_H
#define TOKENRING_TESTS_HARNESS_FAKE_ENGINE_H

#include "daemon/engine/request.h"

enum { FAKE_WIDTH = 24 };
enum { FAKE_VOCAB = 1000, FAKE_CONTEXT = 65536, FAKE_MAX_PROMPT = 50000, FAKE_KV_TOKENS = 55000 };

struct fake_sequence {
	bool running;
	uint32_t produced, last;
	uint8_t finish; /* asked by COMMAND_END; 0: not */
	uint16_t reason;
};

struct fake_engine {
	struct engine_link link;
	struct fake_sequence *sequences; /* (n_requests) */
	uint32_t n_running;
	shared_u32 paused;  /* knob: 1: produces nothing, but obeys commands */
	shared_u32 stuck;   /* knob: 1: does nothing and hears nothing, as during a long step */
	shared_u32 fails;   /* knob: enum wire_reason that every request ends with; 0: none */
	shared_u32 running; /* n_running, for tests */
	shared_u32 most_undelivered;
};

int fake_engine_init(struct fake_engine *engine, uint32_t n_requests);
void fake_engine_destroy(struct fake_engine *engine);

/* Publishes the limits and the state. */
void fake_engine_ready(struct fake_engine *engine, uint32_t state);

/* Takes commands, makes one token for each running request. Returns how much it did. */
unsigned fake_engine_turn(struct fake_engine *engine);

static inline uint32_t fake_next(uint32_t token)
{
	return (token * 7 + 1) % FAKE_VOCAB;
}

static inline float fake_embedding(bool mean, uint32_t i)
{
	return (float)i * 0.25f - (mean ? 1 : 2);
}

static inline float fake_score(uint32_t id)
{
	return (float)id * 0.5f - 3;
}

#endif
