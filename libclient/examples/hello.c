/* Continues a sentence and prints the tokens as they come: hello ["The capital of France is"] */
#include <stdio.h>
#include <string.h>
#include <tokenring/tokenring.h>

int main(int argc, char **argv)
{
	const char *prompt = argc > 1 ? argv[1] : "The capital of France is";
	uint32_t tokens[512];
	struct tr_request_extra extra = {.size = sizeof extra, .tokens = tokens, .max_new = 16};
	struct tr_request request = {.size = sizeof request, .op = TR_GENERATE, .extra = &extra};
	struct tr_event event = {.size = sizeof event, .kind = TR_EVENT_TOKENS};
	struct tr_client *client = NULL;
	size_t n = 0, bytes = 0;
	uint64_t id;
	char text[512];
	int error = tr_open(&client, NULL, NULL);

	if (error == 0)
		error = tr_tokenize(client, 0, prompt, strlen(prompt), TR_TEXT_BOS, tokens, 512, &n);
	extra.n_tokens = (uint32_t)n;
	if (error == 0)
		error = tr_submit(client, &request, &id);
	while (error == 0 && event.kind == TR_EVENT_TOKENS) {
		error = tr_wait(client, &event, 1, -1);
		if (error == 1)
			error = tr_detokenize(client, 0, event.tokens, event.n_tokens, 0, text, sizeof text,
					      &bytes);
		if (error == 0) {
			fwrite(text, 1, bytes, stdout);
			fflush(stdout);
		}
	}
	putchar('\n');
	if (error < 0 || event.status < 0)
		fprintf(stderr, "hello: %s\n", error < 0 ? strerror(-error) : tr_strreason(event.reason));
	tr_close(client);
	return error < 0 || event.status < 0;
}
