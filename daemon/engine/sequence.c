#include "daemon/engine/sequence.h"

#include <string.h>

#include "kernels/contract.h"

enum { RECORD_BYTES = sizeof(struct wire_scored) };

static bool wants_logits(const struct request *request)
{
	return request->op == WIRE_OP_SCORE && request->n_candidates;
}

static uint32_t longest_continuation(const struct request *request)
{
	uint32_t longest = 0;

	for (uint32_t i = 0; i < request->n_continuations; i++)
		if (request->continuation_lengths[i] > longest)
			longest = request->continuation_lengths[i];
	return longest;
}

uint64_t sequence_keys(const struct request *request)
{
	uint64_t after = request->op == WIRE_OP_SCORE ? longest_continuation(request) : request->max_new;

	/* The last token is answered, never fed back. */
	return request->n_tokens + (after ? after - 1 : 0);
}

uint64_t sequence_reply_bytes(const struct request *request, uint32_t width)
{
	uint64_t records = 0;

	if (request->op == WIRE_OP_EMBED)
		return embedding_bytes(width);
	if (request->op == WIRE_OP_GENERATE) {
		records = request->logprobs ? (uint64_t)request->max_new * (1 + request->n_logprobs) : 0;
	} else {
		records = request->n_candidates;
		for (uint32_t i = 0; i < request->n_continuations && !request->n_candidates; i++)
			records += request->continuation_lengths[i];
	}
	return records ? sizeof(struct wire_reply) + records * RECORD_BYTES : 0;
}

void sequence_begin(struct sequence *sequence, struct request *request)
{
	sequence->request = request;
	memcpy(sequence->tokens, request->tokens, request->n_tokens * sizeof(*request->tokens));
	sequence->n_tokens = request->n_tokens;
	sequence->computed = sequence->generated = sequence->records = 0;
	sequence->continuation = sequence->scored = 0;
}

uint32_t sequence_pending(const struct sequence *sequence)
{
	return sequence->n_tokens - sequence->computed;
}

bool sequence_all_rows_output(const struct sequence *sequence)
{
	const struct request *request = sequence->request;

	if (request->op == WIRE_OP_EMBED)
		return request->mean;
	return request->op == WIRE_OP_SCORE && sequence->n_tokens > request->n_tokens;
}

struct batch_output sequence_wants(const struct sequence *sequence)
{
	const struct request *request = sequence->request;

	if (request->op == WIRE_OP_EMBED)
		return (struct batch_output){.want = OUTPUT_HIDDEN};
	if (wants_logits(request))
		return (struct batch_output){OUTPUT_CHOSEN, request->n_candidates, request->candidates};
	if (request->op != WIRE_OP_GENERATE || request->logprobs)
		return (struct batch_output){.want = OUTPUT_LOGITS};
	if (sampler_takes_best(request))
		return (struct batch_output){.want = OUTPUT_BEST};
	if (request->n_allowed)
		return (struct batch_output){OUTPUT_CHOSEN, request->n_allowed, request->allowed};
	return (struct batch_output){.want = OUTPUT_LOGITS};
}

/* ---- the reply area: the client's memory, written within reply_cap and never read ---- */

static void put_record(struct sequence *sequence, uint32_t index, struct wire_scored record)
{
	const struct request *request = sequence->request;
	uint64_t at = sizeof(struct wire_reply) + (uint64_t)index * RECORD_BYTES;

	if (!request->reply || at + RECORD_BYTES > request->reply_cap)
		return;
	memcpy(request->reply + at, &record, sizeof(record));
	sequence->records++;
}

static uint32_t record_bytes(const struct request *request)
{
	return request->op == WIRE_OP_EMBED ? sizeof(float) : RECORD_BYTES;
}

uint32_t sequence_reply_written(const struct sequence *sequence)
{
	uint32_t bytes = sequence->records * record_bytes(sequence->request);

	return sequence->records ? (uint32_t)sizeof(struct wire_reply) + bytes : 0;
}

static void put_header(const struct sequence *sequence)
{
	const struct request *request = sequence->request;
	struct wire_reply header = {
	    .kind = request->op == WIRE_OP_EMBED ? WIRE_REPLY_EMBEDDING
		    : wants_logits(request)      ? WIRE_REPLY_LOGITS
						 : WIRE_REPLY_LOGPROBS,
	    .count = sequence->records,
	    .stride = record_bytes(request),
	    .bytes = sequence_reply_written(sequence),
	};

	if (sequence->records)
		memcpy(request->reply, &header, sizeof(header));
}

/* ---- score ---- */

static const struct sequence_result done = {.ended = true, .finish = WIRE_FINISH_DONE};
static const struct sequence_result not_a_number = {
    .ended = true, .finish = WIRE_FINISH_ERROR, .reason = WIRE_REASON_NUMERIC};

static void score_candidates(struct sequence *sequence, const float *logits)
{
	const struct request *request = sequence->request;

	for (uint32_t i = 0; i < request->n_candidates; i++) {
		uint32_t id = request->candidates[i];

		put_record(sequence, i, (struct wire_scored){.id = id, .value = logits[id]});
	}
}

/* The first token of every continuation is judged by the prompt's last position. */
static void score_first_tokens(struct sequence *sequence, const float *logits, const struct log_sum *sum)
{
	const struct request *request = sequence->request;
	uint32_t at = 0;

	for (uint32_t i = 0; i < request->n_continuations; i++) {
		uint32_t id = request->continuations[at];

		put_record(sequence, at,
			   (struct wire_scored){.id = id, .value = log_probability(logits[id], sum)});
		at += request->continuation_lengths[i];
	}
}

static int score_continuation_rows(struct sequence *sequence, struct sampler *sampler, const float *logits)
{
	const struct request *request = sequence->request;
	const uint32_t *tokens = request->continuations + sequence->scored;
	uint32_t first = sequence->computed - sequence->outputs - request->n_tokens;

	for (uint32_t i = 0; i < sequence->outputs; i++) {
		const float *row = logits + (size_t)i * sampler->vocab;
		uint32_t id = tokens[first + i + 1];
		struct log_sum sum;
		int error = sampler_log_sum(sampler, row, &sum);

		if (error)
			return error;
		put_record(sequence, sequence->scored + first + i + 1,
			   (struct wire_scored){.id = id, .value = log_probability(row[id], &sum)});
	}
	return 0;
}

/* Puts the next continuation that has more than its first token behind the prompt. False: none is left. */
static bool next_continuation(struct sequence *sequence)
{
	const struct request *request = sequence->request;

	while (sequence->continuation < request->n_continuations) {
		uint32_t length = request->continuation_lengths[sequence->continuation];

		if (length > 1) {
			memcpy(sequence->tokens + request->n_tokens,
			       request->continuations + sequence->scored,
			       (length - 1) * sizeof(*request->continuations));
			sequence->n_tokens = request->n_tokens + length - 1;
			sequence->computed = request->n_tokens;
			return true;
		}
		sequence->scored += length;
		sequence->continuation++;
	}
	return false;
}

static struct sequence_result advance_score(struct sequence *sequence, struct sampler *sampler,
					    const float *logits)
{
	const struct request *request = sequence->request;
	struct log_sum sum;

	if (sequence_all_rows_output(sequence)) {
		if (score_continuation_rows(sequence, sampler, logits))
			return not_a_number;
		if (sequence_pending(sequence))
			return (struct sequence_result){0};
		sequence->scored += request->continuation_lengths[sequence->continuation++];
	} else if (sequence_pending(sequence)) {
		return (struct sequence_result){0};
	} else if (request->n_candidates) {
		score_candidates(sequence, logits);
		put_header(sequence);
		return done;
	} else if (sampler_log_sum(sampler, logits, &sum)) {
		return not_a_number;
	} else {
		score_first_tokens(sequence, logits, &sum);
	}
	if (next_continuation(sequence))
		return (struct sequence_result){0};
	put_header(sequence);
	return done;
}

/* ---- embed ---- */

static void add_up(struct sequence *sequence, const struct sequence_outputs *outputs)
{
	const float *row = outputs->hidden;

	if (sequence->computed == sequence->rows)
		memset(sequence->sums, 0, outputs->width * sizeof(float));
	for (uint32_t i = 0; i < sequence->outputs; i++, row += outputs->hidden_stride)
		for (uint32_t k = 0; k < outputs->width; k++)
			sequence->sums[k] += row[k];
}

static bool all_finite(const float *x, uint32_t n)
{
	bool finite = true;

	for (uint32_t i = 0; i < n; i++)
		finite &= float_finite(x[i]);
	return finite;
}

static void put_embedding(struct sequence *sequence, const float *x, uint32_t width)
{
	const struct request *request = sequence->request;

	if (!request->reply || embedding_bytes(width) > request->reply_cap)
		return;
	memcpy(request->reply + sizeof(struct wire_reply), x, width * sizeof(*x));
	sequence->records = width;
	put_header(sequence);
}

static struct sequence_result advance_embed(struct sequence *sequence, const struct sequence_outputs *outputs)
{
	const float *x = outputs->hidden;

	if (sequence->request->mean)
		add_up(sequence, outputs);
	if (sequence_pending(sequence))
		return (struct sequence_result){0};
	if (sequence->request->mean) {
		x = sequence->sums;
		for (uint32_t k = 0; k < outputs->width; k++)
			sequence->sums[k] /= (float)sequence->n_tokens;
	}
	if (!all_finite(x, outputs->width)) /* a sum may overflow where no term does */
		return not_a_number;
	put_embedding(sequence, x, outputs->width);
	return done;
}

/* ---- generate ---- */

static int put_log_probabilities(struct sequence *sequence, struct sampler *sampler, const float *logits,
				 uint32_t token)
{
	const struct request *request = sequence->request;
	struct wire_scored record[1 + WIRE_LOGPROBS_MAX] = {0};
	uint32_t top = request->n_logprobs < WIRE_LOGPROBS_MAX ? request->n_logprobs : WIRE_LOGPROBS_MAX;
	struct log_sum sum;
	int error;

	if (!request->logprobs)
		return 0;
	error = sampler_log_sum(sampler, logits, &sum);
	if (error)
		return error;
	record[0] = (struct wire_scored){.id = token, .value = log_probability(logits[token], &sum)};
	sampler_top(sampler, logits, &sum, top, record + 1);
	for (uint32_t i = 0; i <= top; i++)
		put_record(sequence, sequence->generated * (1 + top) + i, record[i]);
	put_header(sequence);
	return 0;
}

static bool contains(const uint32_t *ids, uint32_t n, uint32_t id)
{
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

static int draw(const struct sequence *sequence, struct sampler *sampler,
		const struct sequence_outputs *outputs, uint32_t *ret_token)
{
	if (sequence_wants(sequence).want == OUTPUT_BEST) {
		*ret_token = outputs->best->id;
		return 0;
	}
	return sampler_draw(sampler, sequence->request, outputs->logits, sequence->tokens, sequence->n_tokens,
			    ret_token);
}

static struct sequence_result advance_generate(struct sequence *sequence, struct sampler *sampler,
					       const struct sequence_outputs *outputs, const uint32_t *eos,
					       uint32_t n_eos)
{
	const struct request *request = sequence->request;
	struct sequence_result result = {0};

	if (sequence_pending(sequence))
		return result;
	if (draw(sequence, sampler, outputs, &result.token) ||
	    put_log_probabilities(sequence, sampler, outputs->logits, result.token))
		return not_a_number;
	result.has_token = true;
	sequence->generated++;
	if (contains(request->stop, request->n_stop, result.token) ||
	    (!request->sampling.ignore_eos && contains(eos, n_eos, result.token)))
		result.finish = WIRE_FINISH_STOP;
	else if (sequence->generated >= request->max_new)
		result.finish = WIRE_FINISH_LENGTH;
	else
		sequence->tokens[sequence->n_tokens++] = result.token;
	result.ended = result.finish != WIRE_FINISH_NONE;
	return result;
}

struct sequence_result sequence_advance(struct sequence *sequence, struct sampler *sampler,
					const struct sequence_outputs *outputs, const uint32_t *eos,
					uint32_t n_eos)
{
	sequence->computed += sequence->rows;
	if (sequence->request->op == WIRE_OP_EMBED)
		return advance_embed(sequence, outputs);
	if (sequence->request->op == WIRE_OP_SCORE)
		return advance_score(sequence, sampler, outputs->logits);
	return advance_generate(sequence, sampler, outputs, eos, n_eos);
}
