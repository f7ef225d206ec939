/* Architecture "gpt2": learned positions, layer norms, biases everywhere, one product for queries, keys and
 * values, and a feed-forward layer without a gate. */
#include <errno.h>
#include <math.h>

#include "daemon/model/arch_build.h"

struct gpt2 {
	uint32_t layers, width, ffn, vocab, heads;
	float eps;
	/* buffers */
	uint16_t x, h, joint, qkv[3], attended, up;
};

static void read_shape(struct arch_builder *b, struct gpt2 *m)
{
	b->tape->context = arch_need_u32(b, "context_length", 1, 1u << 24);
	m->layers = arch_need_u32(b, "block_count", 1, 1024);
	m->width = arch_need_u32(b, "embedding_length", 1, 1u << 18);
	m->ffn = arch_need_u32(b, "feed_forward_length", 1, 1u << 20);
	m->heads = arch_need_u32(b, "attention.head_count", 1, 1u << 12);
	m->eps = arch_need_f32(b, "attention.layer_norm_epsilon", 0, 1);
	arch_only_u32(b, "attention.head_count_kv", m->heads);
	arch_only_true(b, "attention.causal");
	if (m->width % m->heads)
		arch_fail(b, -EINVAL, "%u columns do not make %u heads", m->width, m->heads);
	m->vocab = arch_vocabulary(b, m->width);
}

static void make_buffers(struct arch_builder *b, struct gpt2 *m)
{
	m->x = arch_buffer(b, ROW_TOKEN, m->width);
	m->h = arch_buffer(b, ROW_TOKEN, m->width);
	m->joint = arch_buffer(b, ROW_TOKEN, 3 * m->width);
	for (uint32_t i = 0; i < 3; i++)
		m->qkv[i] = arch_view(b, m->joint, i * m->width, m->width);
	m->attended = arch_buffer(b, ROW_TOKEN, m->width);
	m->up = arch_buffer(b, ROW_TOKEN, m->ffn);
}

static void norm(struct arch_builder *b, const struct gpt2 *m, uint16_t out, const char *weight,
		 const char *bias)
{
	uint16_t gain = arch_weight(b, weight, 1, 1, m->width);
	arch_layer_norm(b, out, m->x, gain, arch_weight(b, bias, 1, 1, m->width), m->eps);
}

static void project(struct arch_builder *b, uint16_t out, uint16_t in, const char *weight, const char *bias,
		    uint32_t n, uint32_t k)
{
	uint16_t matrix = arch_weight(b, weight, 1, n, k);
	arch_matmul(b, out, in, matrix, arch_weight(b, bias, 1, 1, n));
}

static void attention(struct arch_builder *b, const struct gpt2 *m)
{
	float scale = (float)(1 / sqrt(m->width / m->heads));
	norm(b, m, m->h, "blk.%u.attn_norm.weight", "blk.%u.attn_norm.bias");
	project(b, m->joint, m->h, "blk.%u.attn_qkv.weight", "blk.%u.attn_qkv.bias", 3 * m->width, m->width);
	arch_attention(b, m->attended, m->qkv, 0, b->layer, m->heads, scale);
	project(b, m->h, m->attended, "blk.%u.attn_output.weight", "blk.%u.attn_output.bias", m->width,
		m->width);
	arch_add(b, m->x, m->x, m->h);
}

static void feed_forward(struct arch_builder *b, const struct gpt2 *m)
{
	norm(b, m, m->h, "blk.%u.ffn_norm.weight", "blk.%u.ffn_norm.bias");
	project(b, m->up, m->h, "blk.%u.ffn_up.weight", "blk.%u.ffn_up.bias", m->ffn, m->width);
	arch_act(b, ACT_GELU_TANH, m->up, m->up);
	project(b, m->h, m->up, "blk.%u.ffn_down.weight", "blk.%u.ffn_down.bias", m->width, m->ffn);
	arch_add(b, m->x, m->x, m->h);
}

static void output(struct arch_builder *b, const struct gpt2 *m, uint16_t embedding)
{
	uint16_t y = arch_buffer(b, ROW_OUTPUT, m->width);
	norm(b, m, y, "output_norm.weight", "output_norm.bias");
	arch_output(b, y, embedding);
}

int arch_gpt2_build(const struct arch_source *source, struct tape *tape, char *why, size_t why_bytes)
{
	struct arch_builder b = {
	    .source = source, .tape = tape, .prefix = "gpt2", .why = why, .why_bytes = why_bytes};
	struct gpt2 m = {0};
	read_shape(&b, &m);
	if (b.error)
		return b.error;
	make_buffers(&b, &m);
	tape->n_groups = 1;
	tape->groups[0] =
	    (struct tape_group){KV_FULL, m.layers, m.heads, m.width / m.heads, m.width / m.heads, 0};
	uint16_t embedding = arch_weight(&b, "token_embd.weight", 1, m.vocab, m.width);
	arch_embed(&b, m.x, embedding, 1.0f);
	arch_embed_positions(&b, m.h, arch_weight(&b, "position_embd.weight", 1, tape->context, m.width));
	arch_add(&b, m.x, m.x, m.h);
	for (b.layer = 0; b.layer < m.layers && !b.error; b.layer++) {
		attention(&b, &m);
		feed_forward(&b, &m);
	}
	b.layer = (uint16_t)(m.layers - 1);
	output(&b, &m, embedding);
	arch_refuse_other_tensors(&b);
	return b.error;
}
