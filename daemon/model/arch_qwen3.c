/* Architectures "qwen3", whose heads' queries and keys are normed, and "qwen2", whose projections of queries,
 * keys and values have biases instead; dense. */
#include <errno.h>
#include <math.h>

#include "daemon/model/arch_build.h"

struct qwen {
	bool head_norms; /* qwen3 */
	uint32_t layers, width, ffn, vocab;
	uint32_t heads, kv_heads, dk;
	float eps, scale;
	uint16_t rope_table;
	/* buffers */
	uint16_t x, h, qkv[3], attended, gate, up;
};

static void read_shape(struct arch_builder *b, struct qwen *m)
{
	b->tape->context = arch_need_u32(b, "context_length", 1, 1u << 24);
	m->layers = arch_need_u32(b, "block_count", 1, 1024);
	m->width = arch_need_u32(b, "embedding_length", 1, 1u << 18);
	m->ffn = arch_need_u32(b, "feed_forward_length", 1, 1u << 20);
	m->heads = arch_need_u32(b, "attention.head_count", 1, 1u << 12);
	m->kv_heads = arch_kv_heads(b, m->heads);
	m->dk = arch_u32(b, "attention.key_length", m->width / m->heads, 2, 1u << 12);
	m->eps = arch_need_f32(b, "attention.layer_norm_rms_epsilon", 0, 1);
	arch_only_u32(b, "attention.value_length", m->dk);
	arch_only_u32(b, "rope.dimension_count", m->dk);
	arch_only_u32(b, "attention.sliding_window", 0);
	arch_only_u32(b, "expert_count", 0);
	arch_only_u32(b, "pooling_type", 0);
	arch_only_true(b, "attention.causal");
	m->vocab = arch_vocabulary(b, m->width);
}

static void read_rope(struct arch_builder *b, struct qwen *m)
{
	float magnitude = 1.0f;
	double base = arch_f32(b, "rope.freq_base", 10000, 1, 1e12f);
	m->rope_table = arch_rope_table(b, base, m->dk, &magnitude);
	/* Turned queries and keys would each be multiplied by it: their product is by its square. */
	m->scale = (float)((double)magnitude * (double)magnitude / sqrt(m->dk));
}

static void make_buffers(struct arch_builder *b, struct qwen *m)
{
	m->x = arch_buffer(b, ROW_TOKEN, m->width);
	m->h = arch_buffer(b, ROW_TOKEN, m->width);
	m->qkv[0] = arch_buffer(b, ROW_TOKEN, m->heads * m->dk);
	m->qkv[1] = arch_buffer(b, ROW_TOKEN, m->kv_heads * m->dk);
	m->qkv[2] = arch_buffer(b, ROW_TOKEN, m->kv_heads * m->dk);
	m->attended = arch_buffer(b, ROW_TOKEN, m->heads * m->dk);
	m->gate = arch_buffer(b, ROW_TOKEN, m->ffn);
	m->up = arch_buffer(b, ROW_TOKEN, m->ffn);
}

static void norm(struct arch_builder *b, const struct qwen *m, uint16_t out, uint16_t in, const char *weight)
{
	arch_norm(b, out, in, arch_weight(b, weight, 1, 1, m->width), m->eps, 1);
}

static void matmul(struct arch_builder *b, uint16_t out, uint16_t in, const char *weight, uint32_t n,
		   uint32_t k)
{
	arch_matmul(b, out, in, arch_weight(b, weight, 1, n, k), TAPE_NONE);
}

static void project(struct arch_builder *b, const struct qwen *m, uint16_t out, const char *weight,
		    const char *bias, uint32_t n)
{
	uint16_t matrix = arch_weight(b, weight, 1, n, m->width);
	arch_matmul(b, out, m->h, matrix, m->head_norms ? TAPE_NONE : arch_weight(b, bias, 1, 1, n));
}

static void turn(struct arch_builder *b, const struct qwen *m, uint16_t x, const char *weight, uint32_t heads)
{
	if (m->head_norms)
		arch_norm(b, x, x, arch_weight(b, weight, 1, 1, m->dk), m->eps, heads);
	arch_rope(b, x, ROPE_HALF, m->rope_table, heads, m->dk, m->dk);
}

static void attention(struct arch_builder *b, const struct qwen *m)
{
	uint32_t q = m->heads * m->dk, kv = m->kv_heads * m->dk;
	norm(b, m, m->h, m->x, "blk.%u.attn_norm.weight");
	project(b, m, m->qkv[0], "blk.%u.attn_q.weight", "blk.%u.attn_q.bias", q);
	project(b, m, m->qkv[1], "blk.%u.attn_k.weight", "blk.%u.attn_k.bias", kv);
	project(b, m, m->qkv[2], "blk.%u.attn_v.weight", "blk.%u.attn_v.bias", kv);
	turn(b, m, m->qkv[0], "blk.%u.attn_q_norm.weight", m->heads);
	turn(b, m, m->qkv[1], "blk.%u.attn_k_norm.weight", m->kv_heads);
	arch_attention(b, m->attended, m->qkv, 0, b->layer, m->heads, m->scale);
	matmul(b, m->h, m->attended, "blk.%u.attn_output.weight", m->width, q);
	arch_add(b, m->x, m->x, m->h);
}

static void feed_forward(struct arch_builder *b, const struct qwen *m)
{
	norm(b, m, m->h, m->x, "blk.%u.ffn_norm.weight");
	matmul(b, m->gate, m->h, "blk.%u.ffn_gate.weight", m->ffn, m->width);
	matmul(b, m->up, m->h, "blk.%u.ffn_up.weight", m->ffn, m->width);
	arch_gated(b, ACT_SILU, m->gate, m->gate, m->up);
	matmul(b, m->h, m->gate, "blk.%u.ffn_down.weight", m->width, m->ffn);
	arch_add(b, m->x, m->x, m->h);
}

static void output(struct arch_builder *b, const struct qwen *m, uint16_t embedding)
{
	uint16_t y = arch_buffer(b, ROW_OUTPUT, m->width);
	norm(b, m, y, m->x, "output_norm.weight");
	arch_output(b, y, embedding);
}

static int build(struct arch_builder *b, struct qwen *m)
{
	read_shape(b, m);
	if (b->error)
		return b->error;
	read_rope(b, m);
	make_buffers(b, m);
	b->tape->n_groups = 1;
	b->tape->groups[0] = (struct tape_group){KV_FULL, m->layers, m->kv_heads, m->dk, m->dk, 0};
	uint16_t embedding = arch_weight(b, "token_embd.weight", 1, m->vocab, m->width);
	arch_embed(b, m->x, embedding, 1.0f);
	for (b->layer = 0; b->layer < m->layers && !b->error; b->layer++) {
		attention(b, m);
		feed_forward(b, m);
	}
	b->layer = (uint16_t)(m->layers - 1);
	output(b, m, embedding);
	arch_refuse_other_tensors(b);
	return b->error;
}

int arch_qwen2_build(const struct arch_source *source, struct tape *tape, char *why, size_t why_bytes)
{
	struct arch_builder b = {
	    .source = source, .tape = tape, .prefix = "qwen2", .why = why, .why_bytes = why_bytes};
	return build(&b, &(struct qwen){.head_norms = false});
}

int arch_qwen3_build(const struct arch_source *source, struct tape *tape, char *why, size_t why_bytes)
{
	struct arch_builder b = {
	    .source = source, .tape = tape, .prefix = "qwen3", .why = why, .why_bytes = why_bytes};
	return build(&b, &(struct qwen){.head_norms = true});
}
