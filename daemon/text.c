/* What clients are told of the model, and text to tokens and back for them; on the control thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/daemon_internal.h"

static unsigned tokenizer_flags_of(uint32_t flags)
{
	return (flags & WIRE_TEXT_BOS ? TOKENIZER_BOS : 0u) |
	       (flags & WIRE_TEXT_SPECIAL ? TOKENIZER_SPECIAL : 0u);
}

/* A token stands for one byte at least, save BOS and a leading space: one pass is enough. */
static int tokenize(void *context, const char *text, size_t bytes, uint32_t flags, uint32_t **ret,
		    size_t *ret_n)
{
	size_t capacity = bytes + 8, n;
	uint32_t *tokens = malloc(capacity * sizeof(*tokens));
	int error;

	if (!tokens)
		return -ENOMEM;
	error = tokenizer_encode(context, text, bytes, tokenizer_flags_of(flags), tokens, capacity, &n);
	if (error) {
		free(tokens);
		return error;
	}
	*ret = tokens;
	*ret_n = n;
	return 0;
}

static int detokenize(void *context, const uint32_t *tokens, size_t n, uint32_t flags, char **ret,
		      size_t *ret_bytes)
{
	unsigned how = tokenizer_flags_of(flags) & TOKENIZER_SPECIAL;
	size_t bytes = 0;
	char *text;
	int error = tokenizer_decode(context, tokens, n, how, NULL, 0, &bytes);

	if (error && error != -ENOSPC)
		return error;
	text = malloc(bytes + 1);
	if (!text)
		return -ENOMEM;
	error = tokenizer_decode(context, tokens, n, how, text, bytes, &bytes);
	if (error) {
		free(text);
		return error;
	}
	*ret = text;
	*ret_bytes = bytes;
	return 0;
}

void daemon_fill_model(struct daemon *daemon)
{
	const struct load_model *loaded = load_model(daemon->load);
	struct wire_model *info = &daemon->model.info;
	size_t n_ends = 0;
	const uint32_t *ends = loaded->tokenizer ? tokenizer_ends(loaded->tokenizer, &n_ends) : NULL;

	*info = (struct wire_model){
	    .vocab = loaded->tape->vocab,
	    .context = loaded->limits.context,
	    .bos = loaded->tokenizer ? tokenizer_bos(loaded->tokenizer) : UINT32_MAX,
	    .eos = loaded->tokenizer ? tokenizer_eos(loaded->tokenizer) : UINT32_MAX,
	    .state = WIRE_MODEL_READY,
	    .bytes = loaded->bytes,
	    .parameters = loaded->parameters,
	    .width = loaded->tape->width,
	};
	for (size_t i = 0; i < n_ends && info->n_stop < 32; i++)
		daemon->model.stop[info->n_stop++] = ends[i];
	snprintf(info->name, sizeof(info->name), "%s", loaded->name);
	snprintf(info->architecture, sizeof(info->architecture), "%s", loaded->architecture);
	snprintf(info->numerics, sizeof(info->numerics), "%s", backend_numerics(loaded->backend));
	snprintf(info->isa, sizeof(info->isa), "%s", backend_isa(loaded->backend));
	if (!loaded->tokenizer)
		return;
	daemon->model.tokenize = tokenize;
	daemon->model.detokenize = detokenize;
	daemon->model.context = loaded->tokenizer;
}
