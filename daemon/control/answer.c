/* What clients may ask for: one handler a type, behind one shared check of lengths. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/control/server_internal.h"

typedef void answer_function(struct connection *connection, const struct incoming *request);

/* ---- profiles ---- */

/* Writes a sentence and returns false. */
static bool bad(const char **ret_why, const char *sentence)
{
	*ret_why = sentence;
	return false;
}

static bool parse_profile(const struct incoming *request, uint32_t vocab, struct profile *profile,
			  const char **ret_why)
{
	struct wire_profile wire;
	struct refusal refusal;

	memcpy(&wire, request->data, sizeof wire);
	if (wire.n_stop > REQUEST_STOP_MAX || request->bytes != sizeof wire + wire.n_stop * sizeof(uint32_t))
		return bad(ret_why, "a profile has at most 64 stop ids, and exactly as many as it says");
	if (wire.max_new == 0 || wire.max_new > UINT16_MAX)
		return bad(ret_why, "a profile's max_new lies between 1 and 65,535");
	if (wire.flags & ~(uint32_t)WIRE_BLOCK_IGNORE_EOS)
		return bad(ret_why, end_sentence(WIRE_REASON_BAD_FLAG));
	*profile = (struct profile){
	    .sampling = {.seed = wire.seed,
			 .temperature = wire.temperature,
			 .top_p = wire.top_p,
			 .min_p = wire.min_p,
			 .penalty = wire.penalty,
			 .top_k = wire.top_k,
			 .ignore_eos = wire.flags & WIRE_BLOCK_IGNORE_EOS},
	    .max_new = wire.max_new,
	    .n_stop = wire.n_stop,
	};
	memcpy(profile->stop, request->data + sizeof wire, wire.n_stop * sizeof(uint32_t));
	if (!sampling_check(&profile->sampling, &refusal))
		return bad(ret_why, end_sentence(refusal.reason));
	if (vocab && !admit_tokens(profile->stop, profile->n_stop, vocab, &refusal))
		return bad(ret_why, end_sentence(refusal.reason));
	return true;
}

static void answer_profile(struct connection *connection, const struct incoming *request)
{
	struct channel *channel = connection->channel;
	const struct server_model *model = server_model_now(connection->server);
	uint32_t number = load_relaxed_u32(&channel->n_profiles) + 1;
	struct profile *profile;
	const char *why;

	if (number >= PROFILE_COUNT) {
		reply_error(connection, request, -ENOSPC, "all 255 profiles of this channel are taken");
		return;
	}
	profile = malloc(sizeof *profile);
	if (!profile) {
		reply_error(connection, request, -ENOMEM, "no memory for the profile");
		return;
	}
	if (!parse_profile(request, model ? model->info.vocab : 0, profile, &why)) {
		free(profile);
		reply_error(connection, request, -EINVAL, why);
		return;
	}
	channel->profiles[number] = profile;
	/* Release: pairs with the front's acquire; the profile is complete before its number counts. */
	store_release_u32(&channel->n_profiles, number);
	reply_copy(connection, request, &number, sizeof number);
}

/* ---- the model ---- */

static void answer_model(struct connection *connection, const struct incoming *request)
{
	const struct server_model *model = server_model_now(connection->server);
	unsigned char reply[sizeof model->info + sizeof model->stop];
	struct wire_model none = {.state = WIRE_MODEL_LOADING};
	uint32_t number, n_stop;

	memcpy(&number, request->data, sizeof number);
	if (number) {
		reply_error(connection, request, -ENOENT, end_sentence(WIRE_REASON_BAD_MODEL));
		return;
	}
	if (!model) {
		reply_copy(connection, request, &none, sizeof none);
		return;
	}
	n_stop = model->info.n_stop < 32 ? model->info.n_stop : 32;
	memcpy(reply, &model->info, sizeof model->info);
	memcpy(reply + sizeof model->info, model->stop, n_stop * sizeof model->stop[0]);
	reply_copy(connection, request, reply, sizeof model->info + n_stop * sizeof model->stop[0]);
}

/* ---- text ---- */

/* The model that a text request names, if it can serve it; else the error is sent and NULL returned. */
static const struct server_model *model_for_text(struct connection *connection,
						 const struct incoming *request)
{
	const struct server_model *model = server_model_now(connection->server);
	struct wire_text head;

	memcpy(&head, request->data, sizeof head);
	if (head.model)
		reply_error(connection, request, -ENOENT, end_sentence(WIRE_REASON_BAD_MODEL));
	else if (head.flags & ~(uint32_t)(WIRE_TEXT_BOS | WIRE_TEXT_SPECIAL))
		reply_error(connection, request, -EINVAL, end_sentence(WIRE_REASON_BAD_FLAG));
	else if (!model || model->info.state == WIRE_MODEL_LOADING)
		reply_error(connection, request, -EAGAIN, "the model is not loaded yet");
	else if (model->info.state == WIRE_MODEL_FAILED)
		reply_error(connection, request, -EIO, end_sentence(WIRE_REASON_MODEL_FAILED));
	else if (!model->tokenize || !model->detokenize)
		reply_error(connection, request, -EOPNOTSUPP, "the model has no tokenizer");
	else
		return model;
	return NULL;
}

static void answer_text(struct connection *connection, const struct incoming *request)
{
	const struct server_model *model = model_for_text(connection, request);
	const unsigned char *payload = request->data + sizeof(struct wire_text);
	size_t bytes = request->bytes - sizeof(struct wire_text), n = 0;
	uint32_t *tokens = NULL;
	char *text = NULL;
	struct wire_text head;
	int error;

	if (!model)
		return;
	memcpy(&head, request->data, sizeof head);
	if (request->type == WIRE_CONTROL_TOKENIZE)
		error =
		    model->tokenize(model->context, (const char *)payload, bytes, head.flags, &tokens, &n);
	else
		error = model->detokenize(model->context, (const uint32_t *)payload, bytes / sizeof *tokens,
					  head.flags, &text, &n);
	if (error < 0)
		reply_error(connection, request, error, strerror(-error));
	else if (tokens)
		reply_with(connection, request, (unsigned char *)tokens, n * sizeof *tokens);
	else
		reply_with(connection, request, (unsigned char *)text, n);
}

/* ---- status ---- */

static void answer_status(struct connection *connection, const struct incoming *request)
{
	const struct server_config *config = &connection->server->config;
	int (*say)(void *context, char *json, size_t capacity) =
	    request->type == WIRE_CONTROL_STATUS ? config->status : config->topology;
	char *json = say ? malloc(STATUS_BYTES_MAX) : NULL;
	int bytes = json ? say(config->status_context, json, STATUS_BYTES_MAX) : -EOPNOTSUPP;

	if (bytes >= 0) {
		reply_with(connection, request, (unsigned char *)json, (size_t)bytes);
		return;
	}
	free(json);
	reply_error(connection, request, bytes, "the daemon cannot say its status");
}

/* ---- dispatch ---- */

static const struct {
	answer_function *answer;
	uint32_t least, most, unit; /* bytes; beyond the least a multiple of the unit */
} answers[] = {
    [WIRE_CONTROL_PROFILE] = {answer_profile, sizeof(struct wire_profile),
			      sizeof(struct wire_profile) + REQUEST_STOP_MAX * sizeof(uint32_t),
			      sizeof(uint32_t)},
    [WIRE_CONTROL_MODEL] = {answer_model, sizeof(uint32_t), sizeof(uint32_t), 1},
    [WIRE_CONTROL_TOKENIZE] = {answer_text, sizeof(struct wire_text),
			       sizeof(struct wire_text) + WIRE_TEXT_BYTES_MAX, 1},
    [WIRE_CONTROL_DETOKENIZE] = {answer_text, sizeof(struct wire_text),
				 sizeof(struct wire_text) + WIRE_TEXT_BYTES_MAX, sizeof(uint32_t)},
    [WIRE_CONTROL_STATUS] = {answer_status, 0, 0, 1},
    [WIRE_CONTROL_TOPOLOGY] = {answer_status, 0, 0, 1},
};

bool answer_known(uint16_t type, uint32_t *ret_most_bytes)
{
	if (type >= sizeof answers / sizeof answers[0] || !answers[type].answer)
		return false;
	*ret_most_bytes = answers[type].most;
	return true;
}

bool answer(struct connection *connection, const struct incoming *request)
{
	uint32_t least = answers[request->type].least;

	if (request->bytes < least || (request->bytes - least) % answers[request->type].unit)
		return false;
	answers[request->type].answer(connection, request);
	return true;
}
