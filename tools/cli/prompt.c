#include "tools/cli/prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/connect.h"

void tokens_free(struct tokens *tokens)
{
	free(tokens->id);
	*tokens = (struct tokens){0};
}

static int make_room(struct tokens *tokens, size_t n)
{
	if (tokens->n + n <= tokens->capacity)
		return 0;
	size_t capacity = 2 * (tokens->n + n);
	uint32_t *id = realloc(tokens->id, capacity * sizeof *id);
	if (!id)
		return -ENOMEM;
	tokens->id = id;
	tokens->capacity = capacity;
	return 0;
}

enum exit_code tokens_append_text(struct tr_client *client, struct tokens *tokens, const char *text,
				  size_t bytes, uint32_t flags)
{
	size_t n = 0;
	int r = make_room(tokens, bytes + 8); /* a token is a byte at least, save begin-of-sequence */
	if (!r)
		r = tr_tokenize(client, 0, text, bytes, flags, tokens->id + tokens->n,
				tokens->capacity - tokens->n, &n);
	if (r == -ENOSPC) {
		r = make_room(tokens, n);
		if (!r)
			r = tr_tokenize(client, 0, text, bytes, flags, tokens->id + tokens->n,
					tokens->capacity - tokens->n, &n);
	}
	if (r == -EMSGSIZE)
		return complain("the text has %zu bytes, more than the daemon tokenizes at once (1 MiB)",
				bytes);
	if (r)
		return complain_call(client, "cannot tokenize the text", r);
	tokens->n += n;
	return EXIT_DONE;
}

enum exit_code tokens_append_chat(struct tr_client *client, struct tokens *tokens,
				  const struct chat_format *format, const char *system, const char *user)
{
	struct chat_part parts[CHAT_PARTS_MAX];
	size_t n = chat_prompt(format, system, user, parts);
	enum exit_code code = EXIT_DONE;
	for (size_t i = 0; i < n && !code; i++) {
		uint32_t flags = (parts[i].marks ? TR_TEXT_SPECIAL : 0) | (i == 0 ? TR_TEXT_BOS : 0);
		code = tokens_append_text(client, tokens, parts[i].text, strlen(parts[i].text), flags);
	}
	return code;
}
