/* Architecture "llama": Llama 1 to 3, Mistral, SmolLM and relatives; with experts, Mixtral. */
#include <errno.h>
#include <math.h>

#include "daemon/model/arch_build.h"

struct llama {
	uint32_t layers, width, ffn, vocab;
	uint32_t heads, kv_heads, dk, dv, rope_dims;
	uint32_t experts, used;
	float eps, scale;
	uint16_t rope_table;
	/* buffers */
	uint16_t x, h, qkv[3], attended, gate, up, route, down;
};

static void read_shape(struct arch_builder *b, struct llama *m)
{
	b->tape->context = arch_need_u32(b, "context_length", 1, 1u << 24);
	m->layers = arch_need_u32(b, "block_count", 1, 1024);
	m->width = arch_need_u32(b, "embedding_length", 1, 1u << 18);
	m->ffn = arch_need_u32(b, "feed_forward_length", 1, 1u << 20);
	m->heads = arch_need_u32(b, "attention.head_count", 1, 1u << 12);
	m->kv_heads = arch_kv_heads(b, m->heads);
	m->dk = arch_u32(b, "attention.key_length", m->width / m->heads, 1, 1u << 12);
	m->dv = arch_u32(b, "attention.value_length", m->width / m->heads, 1, 1u << 12);
	m->rope_dims = arch_u32(b, "rope.dimension_count", m->dk, 2, m->dk);
	m->experts = arch_u32(b, "expert_count", 0, 0, 4096);
	m->used = m->experts ? arch_need_u32(b, "expert_used_count", 1, m->experts) : 0;
	m->eps = arch_need_f32(b, "attention.layer_norm_rms_epsilon", 0, 1);
	if (m->dk == 0 || m->dv == 0)
		arch_fail(b, -EINVAL, "%u columns are too few for %u heads", m->width, m->heads);
	m->vocab = arch_vocabulary(b, m->width);
}

/* What relatives of Llama add under this name and the tape does not express. */
static void refuse_strangers(struct arch_builder *b)
{
	arch_only_true(b, "attention.causal");
	arch_only_f32(b, "attention.clamp_kqv", 0);
	arch_only_f32(b, "attention.max_alibi_bias", 0);
	arch_only_f32(b, "logit_scale", 1);
	arch_only_f32(b, "residual_scale", 1);
	arch_only_f32(b, "embedding_scale", 1);
	arch_only_u32(b, "attention.sliding_window", 0);
	arch_only_u32(b, "expert_shared_count", 0);
}

static void read_rope(struct arch_builder *b, struct llama *m)
{
	float magnitude = 1.0f;
	double base = arch_f32(b, "rope.freq_base", 10000, 1, 1e12f);
	m->rope_table = arch_rope_table(b, base, m->rope_dims, &magnitude);
	if (magnitude != 1 && m->rope_dims != m->dk)
		arch_fail(b, -ENOTSUP, "YaRN over %u of %u dimensions is not supported", m->rope_dims, m->dk);
	/* Turned queries and keys would each be multiplied by it: their product is by its square. */
	double scale = (double)magnitude * (double)magnitude / sqrt(m->dk);
	m->scale = arch_f32(b, "attention.scale", (float)scale, 1e-6f, 1e6f);
}

static void make_buffers(struct arch_builder *b, struct llama *m)
{
	m->x = arch_buffer(b, ROW_TOKEN, m->width);
	m->h = arch_buffer(b, ROW_TOKEN, m->width);
	m->qkv[0] = arch_buffer(b, ROW_TOKEN, m->heads * m->dk);
	m->qkv[1] = arch_buffer(b, ROW_TOKEN, m->kv_heads * m->dk);
	m->qkv[2] = arch_buffer(b, ROW_TOKEN, m->kv_heads * m->dv);
	m->attended = arch_buffer(b, ROW_TOKEN, m->heads * m->dv);
	if (m->experts) {
		m->route = arch_buffer(b, ROW_TOKEN, 2 * m->used);
		m->down = arch_buffer(b, ROW_TOKEN, m->width);
		return;
	}
	m->gate = arch_buffer(b, ROW_TOKEN, m->ffn);
	m->up = arch_buffer(b, ROW_TOKEN, m->ffn);
}

static void project(struct arch_builder *b, uint16_t out, uint16_t in, const char *weight, const char *bias,
		    uint32_t n, uint32_t k)
{
	arch_matmul(b, out, in, arch_weight(b, weight, 1, n, k), arch_optional_vector(b, bias, n));
}

static void attention(struct arch_builder *b, const struct llama *m)
{
	const uint16_t *qkv = m->qkv;
	arch_norm(b, m->h, m->x, arch_weight(b, "blk.%u.attn_norm.weight", 1, 1, m->width), m->eps, 1);
	project(b, qkv[0], m->h, "blk.%u.attn_q.weight", "blk.%u.attn_q.bias", m->heads * m->dk, m->width);
	project(b, qkv[1], m->h, "blk.%u.attn_k.weight", "blk.%u.attn_k.bias", m->kv_heads * m->dk, m->width);
	project(b, qkv[2], m->h, "blk.%u.attn_v.weight", "blk.%u.attn_v.bias", m->kv_heads * m->dv, m->width);
	arch_rope(b, qkv[0], ROPE_PAIR, m->rope_table, m->heads, m->dk, m->rope_dims);
	arch_rope(b, qkv[1], ROPE_PAIR, m->rope_table, m->kv_heads, m->dk, m->rope_dims);
	arch_attention(b, m->attended, qkv, 0, b->layer, m->heads, m->scale);
	project(b, m->h, m->attended, "blk.%u.attn_output.weight", "blk.%u.attn_output.bias", m->width,
		m->heads * m->dv);
	arch_add(b, m->x, m->x, m->h);
	arch_skip_tensor(b, "blk.%u.attn_rot_embd"); /* frequencies in very old files */
}

static void dense(struct arch_builder *b, const struct llama *m)
{
	project(b, m->gate, m->h, "blk.%u.ffn_gate.weight", "blk.%u.ffn_gate.bias", m->ffn, m->width);
	project(b, m->up, m->h, "blk.%u.ffn_up.weight", "blk.%u.ffn_up.bias", m->ffn, m->width);
	arch_gated(b, ACT_SILU, m->gate, m->gate, m->up);
	project(b, m->h, m->gate, "blk.%u.ffn_down.weight", "blk.%u.ffn_down.bias", m->width, m->ffn);
}

static void experts(struct arch_builder *b, const struct llama *m)
{
	const uint16_t weights[3] = {
	    arch_weight(b, "blk.%u.ffn_gate_exps.weight", m->experts, m->ffn, m->width),
	    arch_weight(b, "blk.%u.ffn_up_exps.weight", m->experts, m->ffn, m->width),
	    arch_weight(b, "blk.%u.ffn_down_exps.weight", m->experts, m->width, m->ffn),
	};
	uint16_t router = arch_weight(b, "blk.%u.ffn_gate_inp.weight", 1, m->experts, m->width);
	arch_experts(b, ACT_SILU, m->down, m->h, m->route, router, weights, m->experts, m->used);
}

static void feed_forward(struct arch_builder *b, const struct llama *m)
{
	arch_norm(b, m->h, m->x, arch_weight(b, "blk.%u.ffn_norm.weight", 1, 1, m->width), m->eps, 1);
	if (m->experts)
		experts(b, m);
	else
		dense(b, m);
	arch_add(b, m->x, m->x, m->experts ? m->down : m->h);
}

static void output(struct arch_builder *b, const struct llama *m, uint16_t embedding)
{
	uint16_t y = arch_buffer(b, ROW_OUTPUT, m->width);
	arch_norm(b, y, m->x, arch_weight(b, "output_norm.weight", 1, 1, m->width), m->eps, 1);
	arch_output(b, y, embedding);
}

int arch_llama_build(const struct arch_source *source, struct tape *tape, char *why, size_t why_bytes)
{
	struct arch_builder b = {
	    .source = source, .tape = tape, .prefix = "llama", .why = why, .why_bytes = why_bytes};
	struct llama m = {0};
	read_shape(&b, &m);
	refuse_strangers(&b);
	if (b.error)
		return b.error;
	read_rope(&b, &m);
	make_buffers(&b, &m);
	tape->n_groups = 1;
	tape->groups[0] = (struct tape_group){KV_FULL, m.layers, m.kv_heads, m.dk, m.dv, 0};
	uint16_t embedding = arch_weight(&b, "token_embd.weight", 1, m.vocab, m.width);
	arch_embed(&b, m.x, embedding, 1.0f);
	for (b.layer = 0; b.layer < m.layers && !b.error; b.layer++) {
		attention(&b, &m);
		feed_forward(&b, &m);
	}
	b.layer = (uint16_t)(m.layers - 1);
	output(&b, &m, embedding);
	arch_refuse_other_tensors(&b);
	return b.error;
}
