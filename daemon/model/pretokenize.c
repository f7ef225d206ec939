#include "daemon/model/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* White_Space of Unicode, spelled out: PCRE2's \s with UCP also takes U+180E, which is none since
 * Unicode 6.3. */
#define SPACES \
	"\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACE "[" SPACES "]"

/* The expression of GPT-2's release. */
#define GPT2                                                                                              \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|" SPACE "+(?![^" SPACES \
	"])|" SPACE "+"

/* Each digit alone, then GPT-2's expression inside what is between: blanks before a digit therefore stand at
 * the end of their part and stay together, which the look-ahead says here in one pass. */
#define SMOLLM                                                                                         \
	"\\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?[^" SPACES "\\p{L}\\p{N}]+|" SPACE "+(?![^" SPACES \
	"\\p{N}])|" SPACE "+"

/* cl100k and its relatives; they differ in how many digits go together. */
#define CL100K(digits)                                                                      \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACES \
	"\\p{L}\\p{N}]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE "+(?![^" SPACES "])|" SPACE "+"

struct kind {
	const char *name;
	const char *pattern;
	bool whole_pieces_first;
	bool wants_bos;
};

static const struct kind kinds[] = {
    {"smollm", SMOLLM, false, false},
    {"gpt-2", GPT2, false, false},
    {"llama-bpe", CL100K("\\p{N}{1,3}"), true, true},
    {"qwen2", CL100K("\\p{N}"), false, false},
};

struct pretokenizer {
	const struct kind *kind;
	pcre2_code *code;
};

static const struct kind *find_kind(struct gguf_text name)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strlen(kinds[i].name) == name.bytes && memcmp(kinds[i].name, name.data, name.bytes) == 0)
			return &kinds[i];
	return NULL;
}

static void explain(struct gguf_text name, char *why, size_t why_bytes)
{
	int shown = name.bytes < 60 ? (int)name.bytes : 60;
	int n =
	    snprintf(why, why_bytes, "pre-tokenizer '%.*s' is not supported; known are", shown, name.data);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds && (size_t)n < why_bytes; i++)
		n += snprintf(why + n, why_bytes - (size_t)n, "%s %s", i ? "," : "", kinds[i].name);
}

int pretokenizer_open(struct gguf_text name, struct pretokenizer **ret, char *why, size_t why_bytes)
{
	int code;
	PCRE2_SIZE at;
	uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED; /* anchoring later would bypass the JIT */
	const struct kind *kind = find_kind(name);
	if (!kind) {
		explain(name, why, why_bytes);
		return -ENOTSUP;
	}
	struct pretokenizer *p = calloc(1, sizeof *p);
	if (p)
		p->code = pcre2_compile((PCRE2_SPTR)kind->pattern, PCRE2_ZERO_TERMINATED, options, &code, &at,
					NULL);
	if (!p || !p->code) {
		snprintf(why, why_bytes, "no memory for pre-tokenizer '%s'", kind->name);
		free(p);
		return -ENOMEM;
	}
	p->kind = kind;
	/* Without permission for executable memory this fails and pcre2_match interprets. */
	(void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
	*ret = p;
	return 0;
}

void pretokenizer_close(struct pretokenizer *p)
{
	if (!p)
		return;
	pcre2_code_free(p->code);
	free(p);
}

const char *pretokenizer_name(const struct pretokenizer *p)
{
	return p->kind->name;
}

bool pretokenizer_whole_pieces_first(const struct pretokenizer *p)
{
	return p->kind->whole_pieces_first;
}

bool pretokenizer_wants_bos(const struct pretokenizer *p)
{
	return p->kind->wants_bos;
}

/* The piece at `at`: every character begins a match of some alternative, so a match always starts there. */
static int match(const struct pretokenizer *p, const char *text, size_t bytes, size_t at,
		 pcre2_match_data *data, pcre2_match_context *limits, size_t *ret_end)
{
	int n = pcre2_match(p->code, (PCRE2_SPTR)text, bytes, at, PCRE2_NO_UTF_CHECK, data, limits);
	if (n == PCRE2_ERROR_JIT_STACKLIMIT)
		n = pcre2_match(p->code, (PCRE2_SPTR)text, bytes, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
				limits);
	if (n < 0)
		return -ENOMEM;
	*ret_end = pcre2_get_ovector_pointer(data)[1];
	return 0;
}

int pretokenizer_split(const struct pretokenizer *p, const char *text, size_t bytes,
		       int (*piece)(void *context, const char *text, size_t bytes), void *context)
{
	int error = -ENOMEM;
	pcre2_match_data *data = pcre2_match_data_create(1, NULL);
	pcre2_match_context *limits = pcre2_match_context_create(NULL);
	if (!data || !limits)
		goto done;
	/* The default limits are for hostile expressions; ours backtrack at most once over a piece. */
	pcre2_set_match_limit(limits, UINT32_MAX);
	error = 0;
	for (size_t at = 0, end = 0; at < bytes && !error; at = end) {
		error = match(p, text, bytes, at, data, limits, &end);
		if (!error)
			error = piece(context, text + at, end - at);
	}
done:
	pcre2_match_data_free(data);
	pcre2_match_context_free(limits);
	return error;
}
