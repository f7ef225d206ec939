/* Continues a sentence and prints the tokens as they come. */
#include <stdio.h>
#include <string.h>
#include <tokenring/tokenring.h>

int main(void)
{
	const char *prompt = "The capital of France is"; /* eight tokens at most lie in the request itself */
	struct tr_request request = {.size = sizeof request, .op = TR_GENERATE, .max_new = 16};
	struct tr_event event = {.size = sizeof event, .kind = TR_EVENT_TOKENS};
	struct tr_client *client = NULL;
	char text[256];
	uint64_t id;
	size_t n = 0;
	int error = tr_open(&client, NULL, NULL);

	if (!error)
		error =
		    tr_tokenize(client, 0, prompt, strlen(prompt), 0, request.tokens, TR_INLINE_TOKENS, &n);
	request.n_tokens = (uint8_t)n;
	if (!error)
		error = tr_submit(client, &request, &id);
	while (!error && event.kind == TR_EVENT_TOKENS) {
		error = tr_wait(client, &event, 1, -1);
		if (error == 1)
			error =
			    tr_detokenize(client, 0, event.tokens, event.n_tokens, 0, text, sizeof text, &n);
		printf("%.*s", error ? 0 : (int)n, text);
		fflush(stdout);
	}
	if (error < 0 || event.status < 0)
		fprintf(stderr, "hello: %s\n", error < 0 ? tr_strerror(error) : tr_strreason(event.reason));
	tr_close(client);
	return error < 0 || event.status < 0;
}
