/* One request from submit to its terminal event, its text streaming to standard output. */
#ifndef TOKENRING_TOOLS_CLI_ANSWER_H
#define TOKENRING_TOOLS_CLI_ANSWER_H

#include <tokenring/tokenring.h>

#include "tools/cli/text_stream.h"
#include "tools/cli/verb.h"

struct answer {
	struct tr_client *client;
	struct text_stream text;
	uint32_t text_flags; /* TR_TEXT_* for the detokenizer */
	bool end_line;       /* ends the last line of the text, so that what follows has one of its own */
	bool show_logprobs;  /* one line a token on standard error, after the text */
	/* results */
	uint8_t finish; /* enum tr_finish */
	bool cancelled; /* by Ctrl-C or a closed output; a stop string is not counted here */
	size_t n_tokens;
	uint64_t submitted_ns, first_ns, last_ns; /* CLOCK_MONOTONIC */
	/* private */
	int output_error;
	bool cancel_sent;
	char last_byte; /* written; 0: none yet */
	struct answer_scored *scored;
	size_t n_scored, scored_capacity;
};

uint64_t answer_now_ns(void);

/* Submits and streams until the terminal event. Ctrl-C, a stop string or a closed output cancels the request
 * and waits for its end all the same. Complains on failure. */
enum exit_code answer_stream(struct answer *answer, const struct tr_request *request);

/* Prints the log-probabilities that were collected. */
void answer_print_logprobs(const struct answer *answer);

void answer_free(struct answer *answer);

#endif
