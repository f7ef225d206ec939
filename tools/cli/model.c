/* tokenring model info: what is in a model file, without a daemon. */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/model/gguf.h"
#include "daemon/model/tokenizer.h"
#include "tools/cli/json.h"
#include "tools/cli/verb.h"
#include "tools/cli/work.h"

struct model_options {
	struct common common;
	bool keys;
};

/* Printable ASCII; whatever else is in the file must not reach the terminal. */
static void print_text(struct gguf_text text)
{
	for (size_t i = 0; i < text.bytes && i < 200; i++) {
		unsigned char byte = (unsigned char)text.data[i];
		putchar(byte >= 0x20 && byte < 0x7f ? byte : '?');
	}
	if (text.bytes > 200)
		printf("... (%zu bytes)", text.bytes);
	putchar('\n');
}

static void print_string(const struct gguf *file, const char *label, const char *key)
{
	struct gguf_text text;
	if (gguf_string(file, key, &text))
		return;
	printf("%-16s ", label);
	print_text(text);
}

/* A number under "ARCHITECTURE.name". */
static void print_number(const struct gguf *file, struct gguf_text architecture, const char *label,
			 const char *name)
{
	char key[192];
	uint64_t number;
	snprintf(key, sizeof key, "%.*s.%s", (int)architecture.bytes, architecture.data, name);
	if (!gguf_u64(file, key, &number))
		printf("%-16s %" PRIu64 "\n", label, number);
}

static void print_shape(const struct gguf *file)
{
	static const struct {
		const char *label, *name;
	} rows[] = {
	    {"context", "context_length"},
	    {"layers", "block_count"},
	    {"width", "embedding_length"},
	    {"heads", "attention.head_count"},
	    {"kv heads", "attention.head_count_kv"},
	    {"feed forward", "feed_forward_length"},
	    {"experts", "expert_count"},
	    {"experts used", "expert_used_count"},
	};
	struct gguf_text architecture;
	if (gguf_string(file, "general.architecture", &architecture))
		return;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		print_number(file, architecture, rows[i].label, rows[i].name);
}

static void print_weights(const struct gguf *file)
{
	struct work work;
	work_of_model(file, &work);
	printf("%-16s %" PRIu64 "\n", "parameters", work.parameters);
	printf("%-16s %" PRIu64 " bytes\n", "file", work.file_bytes);
	printf("%-16s %" PRIu64 " bytes a token\n", "decode moves", work.decode_bytes);
	printf("%-16s %" PRIu64 " multiplications a token\n", "prefill needs", work.prefill_multiplies);
	for (int type = 0; type < TYPE_COUNT; type++) {
		uint64_t n = 0, bytes = 0;
		for (size_t i = 0; i < gguf_n_tensors(file); i++) {
			const struct gguf_tensor *tensor = gguf_tensor(file, i);
			n += tensor->type == (enum weight_type)type;
			bytes += tensor->type == (enum weight_type)type ? tensor->bytes : 0;
		}
		if (n)
			printf("%-16s %" PRIu64 " tensors, %" PRIu64 " bytes\n", weight_type_info[type].name,
			       n, bytes);
	}
}

static void print_tokenizer(const struct gguf *file)
{
	char why[256];
	struct tokenizer *tokenizer;
	if (tokenizer_open(file, &tokenizer, why, sizeof why)) {
		printf("%-16s not usable: ", "tokenizer");
		print_text((struct gguf_text){why, __builtin_strlen(why)});
		return;
	}
	printf("%-16s %s, %" PRIu32 " tokens\n", "tokenizer", tokenizer_kind(tokenizer),
	       tokenizer_size(tokenizer));
	size_t n;
	const uint32_t *ends = tokenizer_ends(tokenizer, &n);
	printf("%-16s", "end tokens");
	for (size_t i = 0; i < n; i++)
		printf(" %" PRIu32, ends[i]);
	putchar('\n');
	tokenizer_close(tokenizer);
}

static void print_keys(const struct gguf *file)
{
	for (size_t i = 0; i < gguf_n_keys(file); i++) {
		enum gguf_type type;
		print_text(gguf_key(file, i, &type));
	}
}

static enum exit_code run_model_info(const void *options, const struct positionals *arguments)
{
	const struct model_options *o = options;
	char why[512];
	struct gguf *file;
	if (gguf_open(arguments->text[0], &file, why, sizeof why))
		return complain("%s", why);
	print_string(file, "name", "general.name");
	print_string(file, "architecture", "general.architecture");
	print_string(file, "license", "general.license");
	print_shape(file);
	print_weights(file);
	print_tokenizer(file);
	if (o->keys)
		print_keys(file);
	gguf_close(file);
	return EXIT_DONE;
}

static const struct option_row rows[] = {
    {"keys", 0, OPTION_FLAG, offsetof(struct model_options, keys), NULL, 0, 0,
     "list the keys of the metadata too"},
    COMMON_OPTIONS,
};

const struct verb verb_model_info = {
    .name = "model info",
    .arguments = "FILE",
    .summary = "show what is in a GGUF file (no daemon needed)",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct model_options){.keys = false},
    .bytes = sizeof(struct model_options),
    .min_arguments = 1,
    .max_arguments = 1,
    .handler = run_model_info,
};
