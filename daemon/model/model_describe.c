#include <stdio.h>

#include "daemon/model/arch.h"
#include "daemon/model/model.h"

static uint32_t read_key(const struct gguf *g, struct gguf_text architecture, const char *name)
{
	char key[192];
	uint32_t value = 0;
	if (architecture.bytes > 100)
		return 0;
	snprintf(key, sizeof key, "%.*s.%s", (int)architecture.bytes, architecture.data, name);
	(void)gguf_u32(g, key, &value);
	return value;
}

static void read_shape(const struct gguf *g, struct model_description *d)
{
	struct gguf_text a = d->architecture;
	d->layers = read_key(g, a, "block_count");
	d->width = read_key(g, a, "embedding_length");
	d->ffn = read_key(g, a, "feed_forward_length");
	d->context = read_key(g, a, "context_length");
	d->heads = read_key(g, a, "attention.head_count");
	d->kv_heads = read_key(g, a, "attention.head_count_kv");
	d->head_dim = read_key(g, a, "attention.key_length");
	d->experts = read_key(g, a, "expert_count");
	d->experts_used = read_key(g, a, "expert_used_count");
	if (!d->kv_heads)
		d->kv_heads = d->heads;
	if (!d->head_dim && d->heads)
		d->head_dim = d->width / d->heads;
}

static void add_tensors(const struct gguf *g, struct model_description *d)
{
	d->tensors = (uint32_t)gguf_n_tensors(g);
	for (uint32_t i = 0; i < d->tensors; i++) {
		const struct gguf_tensor *t = gguf_tensor(g, i);
		d->parameters += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
		d->bytes += t->bytes;
		d->bytes_of_type[t->type] += t->bytes;
	}
}

void model_describe(const struct gguf *g, struct model_description *ret)
{
	struct model_description d = {0};
	struct gguf_array tokens;
	const struct gguf_tensor *embedding = gguf_find_tensor(g, "token_embd.weight");
	(void)gguf_string(g, "general.name", &d.name);
	(void)gguf_string(g, "general.architecture", &d.architecture);
	read_shape(g, &d);
	add_tensors(g, &d);
	if (embedding)
		d.vocab = (uint32_t)embedding->dims[1];
	else if (gguf_array(g, "tokenizer.ggml.tokens", &tokens) == 0)
		d.vocab = (uint32_t)tokens.n;
	d.supported = arch_find(d.architecture) != NULL;
	*ret = d;
}
