#include "daemon/model/arch_build.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int arch_fail(struct arch_builder *b, int error, const char *format, ...)
{
	if (!b->error) {
		va_list args;
		va_start(args, format);
		vsnprintf(b->why, b->why_bytes, format, args);
		va_end(args);
		b->error = error;
	}
	return b->error;
}

static const char *key_name(const struct arch_builder *b, const char *name, char key[128])
{
	snprintf(key, 128, "%s.%s", b->prefix, name);
	return key;
}

uint32_t arch_u32(struct arch_builder *b, const char *name, uint32_t absent, uint32_t low, uint32_t high)
{
	char key[128];
	uint32_t value = absent;
	int error = gguf_u32(b->source->gguf, key_name(b, name, key), &value);
	if (error == -ENOENT)
		return absent;
	if (error)
		arch_fail(b, -EINVAL, "key '%s' is not an unsigned integer of 32 bits", key);
	else if (value < low || value > high)
		arch_fail(b, -EINVAL, "key '%s' is %u; %u to %u are supported", key, value, low, high);
	return b->error ? low : value;
}

uint32_t arch_need_u32(struct arch_builder *b, const char *name, uint32_t low, uint32_t high)
{
	char key[128];
	uint64_t any;
	if (gguf_u64(b->source->gguf, key_name(b, name, key), &any) == -ENOENT)
		arch_fail(b, -EINVAL, "key '%s' is absent", key);
	return arch_u32(b, name, low, low, high);
}

float arch_f32(struct arch_builder *b, const char *name, float absent, float low, float high)
{
	char key[128];
	float value = absent;
	int error = gguf_f32(b->source->gguf, key_name(b, name, key), &value);
	if (error == -ENOENT)
		return absent;
	if (error)
		arch_fail(b, -EINVAL, "key '%s' is not a float", key);
	else if (!(value >= low && value <= high))
		arch_fail(b, -EINVAL, "key '%s' is %g; %g to %g are supported", key, (double)value,
			  (double)low, (double)high);
	return b->error ? low : value;
}

float arch_need_f32(struct arch_builder *b, const char *name, float low, float high)
{
	char key[128];
	float any;
	if (gguf_f32(b->source->gguf, key_name(b, name, key), &any) == -ENOENT)
		arch_fail(b, -EINVAL, "key '%s' is absent", key);
	return arch_f32(b, name, low, low, high);
}

void arch_only_u32(struct arch_builder *b, const char *name, uint32_t value)
{
	char key[128];
	uint32_t found = value;
	int error = gguf_u32(b->source->gguf, key_name(b, name, key), &found);
	if (error != -ENOENT && (error || found != value))
		arch_fail(b, -ENOTSUP, "key '%s' has a value other than %u, which is not supported", key,
			  value);
}

void arch_only_f32(struct arch_builder *b, const char *name, float value)
{
	char key[128];
	float found = value;
	int error = gguf_f32(b->source->gguf, key_name(b, name, key), &found);
	if (error != -ENOENT && (error || found != value))
		arch_fail(b, -ENOTSUP, "key '%s' has a value other than %g, which is not supported", key,
			  (double)value);
}

void arch_only_true(struct arch_builder *b, const char *name)
{
	char key[128];
	bool found = true;
	int error = gguf_bool(b->source->gguf, key_name(b, name, key), &found);
	if (error != -ENOENT && (error || !found))
		arch_fail(b, -ENOTSUP, "key '%s' is not true, which is not supported", key);
}

void arch_refuse_key(struct arch_builder *b, const char *name)
{
	char key[128];
	uint64_t any;
	if (gguf_u64(b->source->gguf, key_name(b, name, key), &any) != -ENOENT)
		arch_fail(b, -ENOTSUP, "key '%s' is not supported", key);
}

static const char *tensor_name(const struct arch_builder *b, const char *format, char name[TAPE_NAME_BYTES])
{
	const char *layer = strstr(format, "%u");
	if (layer)
		snprintf(name, TAPE_NAME_BYTES, "%.*s%u%s", (int)(layer - format), format, b->layer,
			 layer + 2);
	else
		snprintf(name, TAPE_NAME_BYTES, "%s", format);
	return name;
}

const struct gguf_tensor *arch_tensor(struct arch_builder *b, const char *format)
{
	char name[TAPE_NAME_BYTES];
	return gguf_find_tensor(b->source->gguf, tensor_name(b, format, name));
}

static uint16_t add_weight(struct arch_builder *b, const char *name, const struct gguf_tensor *t,
			   uint32_t experts, uint32_t n, uint32_t k)
{
	const uint64_t *d = t->dims;
	bool fits = experts > 1 ? d[0] == k && d[1] == n && d[2] == experts && d[3] == 1
				: d[0] == k && d[1] == n && d[2] == 1 && d[3] == 1;
	if (!fits) {
		arch_fail(b, -EINVAL,
			  "tensor '%s' has the shape (%" PRIu64 ", %" PRIu64 ", %" PRIu64
			  "), but (%u, %u, %u) is wanted",
			  name, d[0], d[1], d[2], k, n, experts);
		return TAPE_NONE;
	}
	b->n_used++;
	int index = tape_add_weight(b->tape, name, t->type, experts, n, k);
	if (index < 0)
		arch_fail(b, index, "cannot add tensor '%s': %s", name, strerror(-index));
	return index < 0 ? TAPE_NONE : (uint16_t)index;
}

uint16_t arch_weight(struct arch_builder *b, const char *format, uint32_t experts, uint32_t n, uint32_t k)
{
	char name[TAPE_NAME_BYTES];
	if (b->error)
		return TAPE_NONE;
	const struct gguf_tensor *t = gguf_find_tensor(b->source->gguf, tensor_name(b, format, name));
	if (!t) {
		arch_fail(b, -EINVAL, "tensor '%s' is absent", name);
		return TAPE_NONE;
	}
	if (n == 1 && experts == 1 && weight_type_info[t->type].block_weights != 1) {
		arch_fail(b, -ENOTSUP, "vector '%s' has type %s; F32, F16 and BF16 are supported", name,
			  weight_type_info[t->type].name);
		return TAPE_NONE;
	}
	return add_weight(b, name, t, experts, n, k);
}

uint16_t arch_optional_vector(struct arch_builder *b, const char *format, uint32_t k)
{
	return b->error || !arch_tensor(b, format) ? TAPE_NONE : arch_weight(b, format, 1, 1, k);
}

void arch_skip_tensor(struct arch_builder *b, const char *format)
{
	if (arch_tensor(b, format))
		b->n_used++;
}

static bool is_used(const struct arch_builder *b, struct gguf_text name)
{
	for (uint32_t i = 0; i < b->tape->n_weights; i++) {
		const char *used = b->tape->weights[i].name;
		if (strlen(used) == name.bytes && memcmp(used, name.data, name.bytes) == 0)
			return true;
	}
	return false;
}

void arch_refuse_other_tensors(struct arch_builder *b)
{
	const struct gguf *g = b->source->gguf;
	if (b->error || b->n_used == gguf_n_tensors(g))
		return;
	for (size_t i = 0; i < gguf_n_tensors(g); i++) {
		struct gguf_text name = gguf_tensor(g, i)->name;
		if (is_used(b, name) || (name.bytes >= 10 && memcmp(name.data, "rope_freqs", 10) == 0))
			continue;
		arch_fail(b, -ENOTSUP, "tensor '%.*s' is not part of a %s model as tokenring knows it",
			  (int)name.bytes, name.data, b->prefix);
		return;
	}
}

uint16_t arch_buffer(struct arch_builder *b, enum row_kind rows, uint32_t width)
{
	int index = b->error ? b->error : tape_add_buffer(b->tape, rows, width);
	if (index < 0)
		arch_fail(b, index, "cannot add a buffer: %s", strerror(-index));
	return index < 0 ? TAPE_NONE : (uint16_t)index;
}

uint16_t arch_view(struct arch_builder *b, uint16_t parent, uint32_t column, uint32_t width)
{
	int index = b->error ? b->error : tape_add_view(b->tape, parent, column, width);
	if (index < 0)
		arch_fail(b, index, "cannot add a view: %s", strerror(-index));
	return index < 0 ? TAPE_NONE : (uint16_t)index;
}

uint16_t arch_table(struct arch_builder *b, const float *values, uint32_t n)
{
	int index = b->error ? b->error : tape_add_table(b->tape, values, n);
	if (index < 0)
		arch_fail(b, index, "cannot add a table: %s", strerror(-index));
	return index < 0 ? TAPE_NONE : (uint16_t)index;
}

static void add_op(struct arch_builder *b, enum tape_op_kind kind, struct tape_op op)
{
	if (b->error)
		return;
	op.kind = (uint8_t)kind;
	op.layer = b->layer;
	int index = tape_add_op(b->tape, &op);
	if (index < 0)
		arch_fail(b, index, "cannot add an operation: %s", strerror(-index));
}

/* An operation without what few have. */
static struct tape_op make_op(uint16_t out, uint16_t in0, uint16_t in1, uint16_t weight)
{
	return (struct tape_op){
	    .in = {in0, in1},
	    .out = {out},
	    .weight = weight,
	    .bias = TAPE_NONE,
	    .weights = {TAPE_NONE, TAPE_NONE, TAPE_NONE},
	};
}

void arch_embed(struct arch_builder *b, uint16_t out, uint16_t weight, float scale)
{
	struct tape_op op = make_op(out, TAPE_NONE, TAPE_NONE, weight);
	op.u.embed.scale = scale;
	add_op(b, TAPE_EMBED, op);
}

void arch_norm(struct arch_builder *b, uint16_t out, uint16_t in, uint16_t weight, float eps, uint32_t groups)
{
	struct tape_op op = make_op(out, in, TAPE_NONE, weight);
	op.u.norm.kind = NORM_RMS;
	op.u.norm.eps = eps;
	op.u.norm.groups = groups;
	add_op(b, TAPE_NORM, op);
}

void arch_embed_positions(struct arch_builder *b, uint16_t out, uint16_t weight)
{
	struct tape_op op = make_op(out, TAPE_NONE, TAPE_NONE, weight);
	op.u.embed.scale = 1.0f;
	op.u.embed.positions = true;
	add_op(b, TAPE_EMBED, op);
}

void arch_layer_norm(struct arch_builder *b, uint16_t out, uint16_t in, uint16_t weight, uint16_t bias,
		     float eps)
{
	struct tape_op op = make_op(out, in, TAPE_NONE, weight);
	op.bias = bias;
	op.u.norm.kind = NORM_LAYER;
	op.u.norm.eps = eps;
	op.u.norm.groups = 1;
	add_op(b, TAPE_NORM, op);
}

void arch_matmul(struct arch_builder *b, uint16_t out, uint16_t in, uint16_t weight, uint16_t bias)
{
	struct tape_op op = make_op(out, in, TAPE_NONE, weight);
	op.bias = bias;
	op.u.matmul.heads = 1;
	op.u.matmul.adapters = true;
	op.u.matmul.shard = 1;
	add_op(b, TAPE_MATMUL, op);
}

void arch_add(struct arch_builder *b, uint16_t out, uint16_t x, uint16_t y)
{
	add_op(b, TAPE_ADD, make_op(out, x, y, TAPE_NONE));
}

void arch_gated(struct arch_builder *b, enum tape_act act, uint16_t out, uint16_t gate, uint16_t up)
{
	struct tape_op op = make_op(out, gate, up, TAPE_NONE);
	op.u.act.kind = (uint8_t)act;
	op.u.act.gated = true;
	add_op(b, TAPE_ACT, op);
}

void arch_act(struct arch_builder *b, enum tape_act act, uint16_t out, uint16_t in)
{
	struct tape_op op = make_op(out, in, TAPE_NONE, TAPE_NONE);
	op.u.act.kind = (uint8_t)act;
	add_op(b, TAPE_ACT, op);
}

void arch_rope(struct arch_builder *b, uint16_t x, enum tape_rope style, uint16_t table, uint32_t heads,
	       uint32_t head_dim, uint32_t dims)
{
	struct tape_op op = make_op(x, x, TAPE_NONE, TAPE_NONE);
	op.u.rope.style = (uint8_t)style;
	op.u.rope.table = table;
	op.u.rope.heads = heads;
	op.u.rope.head_dim = head_dim;
	op.u.rope.dims = dims;
	add_op(b, TAPE_ROPE, op);
}

void arch_attention(struct arch_builder *b, uint16_t out, const uint16_t qkv[3], uint16_t group,
		    uint16_t layer, uint32_t heads, float scale)
{
	struct tape_op op = make_op(TAPE_NONE, qkv[1], qkv[2], TAPE_NONE);
	op.u.attn.group = group;
	op.u.attn.layer = layer;
	op.u.attn.heads = heads;
	op.u.attn.scale = scale;
	op.u.attn.sinks = TAPE_NONE;
	add_op(b, TAPE_KV_WRITE, op);
	op.in[0] = qkv[0];
	op.in[1] = TAPE_NONE;
	op.out[0] = out;
	add_op(b, TAPE_ATTN, op);
}

void arch_experts(struct arch_builder *b, enum tape_act act, uint16_t out, uint16_t in, uint16_t route,
		  uint16_t router, const uint16_t weights[3], uint32_t experts, uint32_t used)
{
	struct tape_op op = make_op(route, in, TAPE_NONE, router);
	op.u.route.experts = experts;
	op.u.route.used = used;
	op.u.route.groups = op.u.route.top_groups = 1;
	op.u.route.renormalise = true;
	op.u.route.scale = 1.0f;
	op.u.route.act = (uint8_t)act;
	add_op(b, TAPE_ROUTE, op);
	op.in[1] = route;
	op.out[0] = out;
	op.weight = TAPE_NONE;
	memcpy(op.weights, weights, sizeof op.weights);
	add_op(b, TAPE_EXPERTS, op);
}

void arch_output(struct arch_builder *b, uint16_t in, uint16_t embedding)
{
	bool tied = !arch_tensor(b, "output.weight");
	uint16_t weight =
	    tied ? embedding : arch_weight(b, "output.weight", 1, b->tape->vocab, b->tape->width);
	struct tape_op op = make_op(TAPE_NONE, in, TAPE_NONE, weight);
	op.u.logits.scale = 1.0f;
	add_op(b, TAPE_LOGITS, op);
}

uint32_t arch_kv_heads(struct arch_builder *b, uint32_t heads)
{
	uint32_t kv_heads = arch_u32(b, "attention.head_count_kv", heads, 1, heads);
	if (heads % kv_heads)
		arch_fail(b, -EINVAL, "%u query heads are no multiple of %u key heads", heads, kv_heads);
	return kv_heads;
}

uint32_t arch_vocabulary(struct arch_builder *b, uint32_t width)
{
	struct gguf_array tokens = {0};
	const struct gguf_tensor *embedding = arch_tensor(b, "token_embd.weight");
	if (!embedding) {
		arch_fail(b, -EINVAL, "tensor 'token_embd.weight' is absent");
		return 1;
	}
	uint64_t rows = embedding->dims[1];
	if (embedding->dims[0] != width || rows > 1u << 24) {
		arch_fail(b, -EINVAL,
			  "tensor 'token_embd.weight' has the shape (%" PRIu64 ", %" PRIu64
			  "), but %u columns are wanted",
			  embedding->dims[0], rows, width);
		return 1;
	}
	if (gguf_array(b->source->gguf, "tokenizer.ggml.tokens", &tokens) == 0 && tokens.n != rows)
		arch_fail(b, -EINVAL,
			  "the tokenizer has %" PRIu64 " tokens, but the embedding %" PRIu64 " rows",
			  tokens.n, rows);
	b->tape->vocab = (uint32_t)rows;
	b->tape->width = width;
	return (uint32_t)rows;
}
