/* Architecture "gemma3" (text): five layers of a sliding window, then one of full attention; norms before and
 * after each half layer, and of each head's queries and keys.  The pattern and the local RoPE base are not in
 * the file. */
#include <errno.h>
#include <math.h>

#include "daemon/model/arch_build.h"

enum { PATTERN = 6, GROUP_WINDOW = 0, GROUP_FULL = 1 };

static const double local_base = 10000;

struct gemma3 {
	uint32_t layers, width, ffn, vocab, window;
	uint32_t heads, kv_heads, dk;
	float eps, scale;
	uint16_t local_table, global_table;
	/* buffers */
	uint16_t x, h, qkv[3], attended, gate, up;
};

static void read_shape(struct arch_builder *b, struct gemma3 *m)
{
	b->tape->context = arch_need_u32(b, "context_length", 1, 1u << 24);
	m->layers = arch_need_u32(b, "block_count", PATTERN, 1024);
	m->width = arch_need_u32(b, "embedding_length", 1, 1u << 18);
	m->ffn = arch_need_u32(b, "feed_forward_length", 1, 1u << 20);
	m->window = arch_need_u32(b, "attention.sliding_window", 1, 1u << 24);
	m->heads = arch_need_u32(b, "attention.head_count", 1, 1u << 12);
	m->kv_heads = arch_kv_heads(b, m->heads);
	m->dk = arch_need_u32(b, "attention.key_length", 2, 1u << 12);
	m->eps = arch_need_f32(b, "attention.layer_norm_rms_epsilon", 0, 1);
	arch_only_u32(b, "attention.value_length", m->dk);
	arch_only_u32(b, "rope.dimension_count", m->dk);
	arch_only_f32(b, "attn_logit_softcapping", 0);
	arch_only_f32(b, "final_logit_softcapping", 0);
	arch_only_u32(b, "attention.sliding_window_pattern", PATTERN);
	m->vocab = arch_vocabulary(b, m->width);
}

static void read_attention(struct arch_builder *b, struct gemma3 *m)
{
	float magnitude = 1.0f;
	m->local_table = arch_rope_table(b, local_base, m->dk, NULL);
	m->global_table =
	    arch_rope_table(b, arch_f32(b, "rope.freq_base", 1e6f, 1, 1e12f), m->dk, &magnitude);
	if (magnitude != 1)
		arch_fail(b, -ENOTSUP, "YaRN in a gemma3 model is not supported");
	/* The 27B model alone, the one of 62 layers, scales by its columns a head. */
	m->scale = (float)(1 / sqrt(m->layers == 62 ? m->width / m->heads : m->dk));
}

static void make_buffers(struct arch_builder *b, struct gemma3 *m)
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

static void make_groups(struct tape *tape, const struct gemma3 *m)
{
	uint32_t full = m->layers / PATTERN;
	tape->n_groups = 2;
	tape->groups[GROUP_WINDOW] =
	    (struct tape_group){KV_WINDOW, m->layers - full, m->kv_heads, m->dk, m->dk, m->window};
	tape->groups[GROUP_FULL] = (struct tape_group){KV_FULL, full, m->kv_heads, m->dk, m->dk, 0};
}

static void norm(struct arch_builder *b, const struct gemma3 *m, uint16_t out, uint16_t in,
		 const char *weight)
{
	arch_norm(b, out, in, arch_weight(b, weight, 1, 1, m->width), m->eps, 1);
}

static void matmul(struct arch_builder *b, uint16_t out, uint16_t in, const char *weight, uint32_t n,
		   uint32_t k)
{
	arch_matmul(b, out, in, arch_weight(b, weight, 1, n, k), TAPE_NONE);
}

static void attention(struct arch_builder *b, const struct gemma3 *m)
{
	uint32_t q = m->heads * m->dk, kv = m->kv_heads * m->dk;
	bool full = (b->layer + 1) % PATTERN == 0;
	uint16_t table = full ? m->global_table : m->local_table;
	uint16_t layer = full ? b->layer / PATTERN : b->layer - b->layer / PATTERN;
	norm(b, m, m->h, m->x, "blk.%u.attn_norm.weight");
	matmul(b, m->qkv[0], m->h, "blk.%u.attn_q.weight", q, m->width);
	matmul(b, m->qkv[1], m->h, "blk.%u.attn_k.weight", kv, m->width);
	matmul(b, m->qkv[2], m->h, "blk.%u.attn_v.weight", kv, m->width);
	arch_norm(b, m->qkv[0], m->qkv[0], arch_weight(b, "blk.%u.attn_q_norm.weight", 1, 1, m->dk), m->eps,
		  m->heads);
	arch_norm(b, m->qkv[1], m->qkv[1], arch_weight(b, "blk.%u.attn_k_norm.weight", 1, 1, m->dk), m->eps,
		  m->kv_heads);
	arch_rope(b, m->qkv[0], ROPE_HALF, table, m->heads, m->dk, m->dk);
	arch_rope(b, m->qkv[1], ROPE_HALF, table, m->kv_heads, m->dk, m->dk);
	arch_attention(b, m->attended, m->qkv, full ? GROUP_FULL : GROUP_WINDOW, layer, m->heads, m->scale);
	matmul(b, m->h, m->attended, "blk.%u.attn_output.weight", m->width, q);
	norm(b, m, m->h, m->h, "blk.%u.post_attention_norm.weight");
	arch_add(b, m->x, m->x, m->h);
}

static void feed_forward(struct arch_builder *b, const struct gemma3 *m)
{
	norm(b, m, m->h, m->x, "blk.%u.ffn_norm.weight");
	matmul(b, m->gate, m->h, "blk.%u.ffn_gate.weight", m->ffn, m->width);
	matmul(b, m->up, m->h, "blk.%u.ffn_up.weight", m->ffn, m->width);
	arch_gated(b, ACT_GELU_TANH, m->gate, m->gate, m->up);
	matmul(b, m->h, m->gate, "blk.%u.ffn_down.weight", m->width, m->ffn);
	norm(b, m, m->h, m->h, "blk.%u.post_ffw_norm.weight");
	arch_add(b, m->x, m->x, m->h);
}

static void output(struct arch_builder *b, const struct gemma3 *m, uint16_t embedding)
{
	uint16_t y = arch_buffer(b, ROW_OUTPUT, m->width);
	norm(b, m, y, m->x, "output_norm.weight");
	arch_output(b, y, embedding);
}

int arch_gemma3_build(const struct arch_source *source, struct tape *tape, char *why, size_t why_bytes)
{
	struct arch_builder b = {
	    .source = source, .tape = tape, .prefix = "gemma3", .why = why, .why_bytes = why_bytes};
	struct gemma3 m = {0};
	read_shape(&b, &m);
	if (b.error)
		return b.error;
	read_attention(&b, &m);
	make_buffers(&b, &m);
	make_groups(tape, &m);
	uint16_t embedding = arch_weight(&b, "token_embd.weight", 1, m.vocab, m.width);
	arch_embed(&b, m.x, embedding, sqrtf((float)m.width));
	for (b.layer = 0; b.layer < m.layers && !b.error; b.layer++) {
		attention(&b, &m);
		feed_forward(&b, &m);
	}
	b.layer = (uint16_t)(m.layers - 1);
	output(&b, &m, embedding);
	arch_refuse_other_tensors(&b);
	return b.error;
}
