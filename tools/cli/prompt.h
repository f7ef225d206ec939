/* A prompt as tokens: what the user wrote, in the form that the model expects. */
#ifndef TOKENRING_TOOLS_CLI_PROMPT_H
#define TOKENRING_TOOLS_CLI_PROMPT_H

#include <tokenring/tokenring.h>

#include "tools/cli/chat.h"
#include "tools/cli/verb.h"

struct tokens {
	uint32_t *id;
	size_t n, capacity;
};

void tokens_free(struct tokens *tokens);

/* Appends the tokens of a text. flags: TR_TEXT_*. Complains on failure. */
enum exit_code tokens_append_text(struct tr_client *client, struct tokens *tokens, const char *text,
				  size_t bytes, uint32_t flags);

/* Appends a whole chat prompt, begin-of-sequence first where the model has one. */
enum exit_code tokens_append_chat(struct tr_client *client, struct tokens *tokens,
				  const struct chat_format *format, const char *system, const char *user);

#endif
