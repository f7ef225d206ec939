#!/usr/bin/env python3
"""Make arch_transformers.txt: what Hugging Face transformers answer in float32 for small random models.

usage: make_arch_transformers_golden.py > arch_transformers.txt      needs numpy, gguf, torch and transformers

Written like arch.txt, which see (make_arch_golden.py).  The models are those of tools/make-model; their tensors are
given to transformers under its own names.  300 tokens: past the windows, and past a segment of attention."""
import os
import subprocess
import sys
import tempfile

import gguf
import torch
import transformers as T

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = [(i * i * 7 + 31 * i + 5) % 512 for i in range(300)]
CASES = [
    "--kv-heads 2 --tied",
    "--arch qwen2 --kv-heads 1 --rope-base 1000000 --eps 1e-6",
    "--arch qwen3 --kv-heads 2 --head-dim 96 --rope-base 1000000 --eps 1e-6 --tied",
    "--arch qwen3 --layers 3 --width 192 --heads 6 --kv-heads 3 --rope-scaling yarn --rope-original 64",
    "--arch gpt2 --context 320 --tied",
    "--arch gpt2 --layers 3 --width 192 --heads 3 --context 301",
    "--width 128 --kv-heads 2 --experts 8 --experts-used 2 --rope-base 1000000",
    "--arch gemma3 --layers 7 --window 40 --kv-heads 1 --rope-base 1000000 --eps 1e-6 --tied",
]


class File:
    """Keys and F32 tensors of a GGUF file."""
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.keys = {name: field.contents() for name, field in reader.fields.items()}
        self.arch = self.keys["general.architecture"]
        self.tensors = {t.name: torch.tensor(t.data.copy()) for t in reader.tensors}

    def key(self, name, absent=None):
        return self.keys.get("%s.%s" % (self.arch, name), absent)

    def pairs_to_halves(self, name, heads):
        """Llama files keep the columns of a head in pairs."""
        w = self.tensors[name]
        return w.reshape(heads, -1, 2, w.shape[1]).transpose(1, 2).reshape(w.shape)


def rope(f, base):
    out = {"rope_type": f.key("rope.scaling.type", "default"), "rope_theta": base}
    if out["rope_type"] != "default":
        out.update(factor=f.key("rope.scaling.factor"),
                   original_max_position_embeddings=f.key("rope.scaling.original_context_length"))
    return out


def shape(f):
    return dict(vocab_size=len(f.keys["tokenizer.ggml.tokens"]), hidden_size=f.key("embedding_length"),
                intermediate_size=f.key("feed_forward_length"), num_hidden_layers=f.key("block_count"),
                num_attention_heads=f.key("attention.head_count"),
                num_key_value_heads=f.key("attention.head_count_kv"), head_dim=f.key("attention.key_length"),
                max_position_embeddings=f.key("context_length"),
                rms_norm_eps=f.key("attention.layer_norm_rms_epsilon"),
                rope_parameters=rope(f, f.key("rope.freq_base")),
                tie_word_embeddings="output.weight" not in f.tensors, attn_implementation="eager")


LAYER = {"attn_norm": "input_layernorm", "attn_output": "self_attn.o_proj", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate"}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
GPT2_LAYER = {"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
              "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
GPT2_WHOLE = {"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f",
              "output": "lm_head"}


def renamed(f, whole, layer, prefix):
    out = {}
    for name, tensor in f.tensors.items():
        base, kind = name.rsplit(".", 1)
        if name.startswith("blk."):
            _, number, part = base.split(".")
            if part in layer:
                out["%s.%s.%s.%s" % (prefix, number, layer[part], kind)] = tensor
        else:
            out["%s.%s" % (whole[base], kind)] = tensor
    return out


def llama(f):
    state = renamed(f, WHOLE, LAYER, "model.layers")
    for i in range(f.key("block_count")):
        name = "model.layers.%d.self_attn.%%s_proj.weight" % i
        state[name % "q"] = f.pairs_to_halves("blk.%d.attn_q.weight" % i, f.key("attention.head_count"))
        state[name % "k"] = f.pairs_to_halves("blk.%d.attn_k.weight" % i, f.key("attention.head_count_kv"))
    if not f.key("expert_count"):
        return T.LlamaForCausalLM(T.LlamaConfig(**shape(f))), state
    for i in range(f.key("block_count")):
        gate, up, down = (f.tensors["blk.%d.ffn_%s_exps.weight" % (i, part)] for part in ("gate", "up", "down"))
        state["model.layers.%d.mlp.experts.gate_up_proj" % i] = torch.cat([gate, up], 1)
        state["model.layers.%d.mlp.experts.down_proj" % i] = down
    config = T.MixtralConfig(num_local_experts=f.key("expert_count"), sliding_window=None,
                             num_experts_per_tok=f.key("expert_used_count"), **shape(f))
    return T.MixtralForCausalLM(config), state


def qwen2(f):
    return T.Qwen2ForCausalLM(T.Qwen2Config(**shape(f))), renamed(f, WHOLE, LAYER, "model.layers")


def qwen3(f):
    return T.Qwen3ForCausalLM(T.Qwen3Config(**shape(f))), renamed(f, WHOLE, LAYER, "model.layers")


def gemma3(f):
    """The file's norms already have the one that Gemma adds."""
    names = dict(LAYER, ffn_norm="pre_feedforward_layernorm", post_attention_norm="post_attention_layernorm",
                 post_ffw_norm="post_feedforward_layernorm")
    state = renamed(f, WHOLE, names, "model.layers")
    state = {name: w - 1 if "norm" in name else w for name, w in state.items()}
    options = shape(f)
    options["rope_parameters"] = {"full_attention": rope(f, f.key("rope.freq_base")),
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    config = T.Gemma3TextConfig(sliding_window=f.key("attention.sliding_window"), **options,
                                query_pre_attn_scalar=f.key("attention.key_length"),
                                layer_types=["full_attention" if i % 6 == 5 else "sliding_attention"
                                             for i in range(f.key("block_count"))])
    return T.Gemma3ForCausalLM(config), state


def gpt2(f):
    state = renamed(f, GPT2_WHOLE, GPT2_LAYER, "transformer.h")
    for name, w in state.items():
        if ".c_" in name and w.dim() == 2:
            state[name] = w.T.contiguous()
    tied = "output.weight" not in f.tensors
    config = T.GPT2Config(vocab_size=len(f.keys["tokenizer.ggml.tokens"]), n_positions=f.key("context_length"),
                          n_embd=f.key("embedding_length"), n_layer=f.key("block_count"),
                          n_head=f.key("attention.head_count"), n_inner=f.key("feed_forward_length"),
                          layer_norm_epsilon=f.key("attention.layer_norm_epsilon"), tie_word_embeddings=tied,
                          attn_implementation="eager")
    return T.GPT2LMHeadModel(config), state


def load(path):
    f = File(path)
    model, state = {"llama": llama, "qwen2": qwen2, "qwen3": qwen3, "gemma3": gemma3, "gpt2": gpt2}[f.arch](f)
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if name != "lm_head.weight" or "output.weight" in f.tensors]
    if missing or unexpected:
        sys.exit("missing %s, unexpected %s" % (missing, unexpected))
    model.tie_weights()
    return model.eval()


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        for options in CASES:
            path = os.path.join(work, "m.gguf")
            subprocess.run([sys.executable, os.path.join(HERE, "../../tools/make-model"), path, "--type", "F32",
                            *options.split()], check=True)
            with torch.no_grad():
                rows = load(path)(torch.tensor([TOKENS])).logits[0].double().log_softmax(-1)
            print(options)
            print(*TOKENS)
            print(*("%d:%.4f" % (int(row.argmax()), float(row.max())) for row in rows))


main()
