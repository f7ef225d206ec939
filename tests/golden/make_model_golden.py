#!/usr/bin/env python3
"""Writes the golden values of SmolLM2-135M-Instruct.Q4_1.gguf that test_golden compares with.

Two independent programs answer the prompts of prompts.json, token ids given by llama.cpp's tokenizer:
  - Hugging Face transformers in float32, from the same GGUF (it dequantises), whole prompts at once;
  - llama.cpp (llama-cpp-python), one token a decode call, its default F16 cache; then 64 greedy tokens.
Run once, needs numpy, torch, transformers, accelerate, gguf, llama-cpp-python (10 minutes on two cores):

  make_model_golden.py make MODEL.gguf smollm2_q4_1.golden
  make_model_golden.py compare MODEL.gguf DUMP

compare reads what `test_golden dump DUMP` wrote (f32 logits of every position of every prompt) and prints the
largest difference over ALL logits; the golden file can hold only some of them.

The file, little-endian: "TRGOLD1\\n", u32 prompts, u32 vocab, u32 top (20), u32 fixed (44), u32 buckets (16),
u32 whole, f64 mean KL of llama.cpp against Hugging Face; u32 fixed ids; then for each prompt
  u32 n, u32 whole position (n: none), u32 ids (n),
  f64 log-sum-exp (n), u16 top ids (n, top), f32 top logits (n, top), f32 fixed logits (n, fixed),
  f32 bucket sums (n, buckets), f32 KL of llama.cpp (n), i16 all logits of the whole position in 1/1024,
  u32 greedy, u32 greedy ids, f32 difference of llama.cpp's two best log-probabilities before each.
Bucket b of a position is the sum over ids i = b (mod buckets) of sign(i) * logit: every logit is in one of
them. sign(i) is + if the top bit of the 32-bit product (i + 1) * 2654435761 is 0.
"""
import ctypes
import json
import os
import struct
import sys

import numpy as np

TOP, FIXED, BUCKETS, GREEDY, WHOLE = 20, 44, 16, 64, 6
HERE = os.path.dirname(os.path.abspath(__file__))


class Llama:
    def __init__(self, path):
        import llama_cpp as lib

        self.lib = lib
        self.quiet = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self.quiet, ctypes.c_void_p(0))
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_threads, params.n_threads_batch = 1024, 1, 1
        self.context = lib.llama_init_from_model(self.model, params)
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.size = lib.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text):
        raw = text.encode()
        out = (ctypes.c_int32 * (len(raw) + 16))()
        n = self.lib.llama_tokenize(self.vocab, raw, len(raw), out, len(raw) + 16, True, True)
        return list(out[:n])

    def restart(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        self.position = 0

    def feed(self, token):
        batch = self.lib.llama_batch_init(1, 0, 1)
        batch.n_tokens, batch.token[0], batch.pos[0] = 1, token, self.position
        batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 0, 1
        self.position += 1
        if self.lib.llama_decode(self.context, batch):
            sys.exit("llama_decode failed")
        self.lib.llama_batch_free(batch)
        row = self.lib.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(row, (self.size,)).astype(np.float64)


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def open_reference(path):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM

    folder, name = os.path.split(os.path.abspath(path))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    model.eval()

    def logits(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0].double().numpy()

    return logits


def signs(vocab):
    product = (np.arange(vocab, dtype=np.uint64) + 1) * 2654435761 & 0xFFFFFFFF
    return np.where(product >> 31, -1.0, 1.0)


def greedy(llama, row):
    tokens, gaps = [], []
    for _ in range(GREEDY):
        best = np.sort(log_softmax(row))[-2:]
        tokens.append(int(row.argmax()))
        gaps.append(best[1] - best[0])
        row = llama.feed(tokens[-1])
    return tokens, gaps


def record(prompt, ids, exact, kl, tokens, gaps, fixed):
    n, vocab = exact.shape
    whole = n - 1 if prompt % 3 == 2 and prompt // 3 < WHOLE else n
    top = np.argsort(-exact, kind="stable")[:, :TOP]
    sums = (exact * signs(vocab)).reshape(n, vocab // BUCKETS, BUCKETS).sum(1)
    most = exact.max(-1)
    out = struct.pack("<II", n, whole) + np.array(ids, "<u4").tobytes()
    out += (most + np.log(np.exp(exact - most[:, None]).sum(-1))).astype("<f8").tobytes()
    out += top.astype("<u2").tobytes() + np.take_along_axis(exact, top, 1).astype("<f4").tobytes()
    out += exact[:, fixed].astype("<f4").tobytes() + sums.astype("<f4").tobytes()
    out += np.array(kl, "<f4").tobytes()
    if whole < n:
        out += np.round(exact[whole] * 1024).clip(-32768, 32767).astype("<i2").tobytes()
    out += struct.pack("<I", len(tokens)) + np.array(tokens, "<u4").tobytes()
    return out + np.array(gaps, "<f4").tobytes()


def make(model, path):
    with open(os.path.join(HERE, "prompts.json"), encoding="utf-8") as file:
        prompts = json.load(file)
    llama, reference = Llama(model), open_reference(model)
    fixed = np.sort(np.random.default_rng(44).choice(llama.size, FIXED, replace=False))
    body, all_kl, differences = b"", [], []
    for i, text in enumerate(prompts):
        ids = llama.tokenize(text)
        exact, kl = reference(ids), []
        expected = log_softmax(exact)
        llama.restart()
        for p, token in enumerate(ids):
            row = llama.feed(token)
            got = log_softmax(row)
            kl.append(float((np.exp(expected[p]) * (expected[p] - got)).sum()))
            top = np.argsort(-exact[p])[:TOP]
            differences.extend(np.abs(expected[p][top] - got[top]))
        tokens, gaps = greedy(llama, row)
        body += record(i, ids, exact, kl, tokens, gaps, fixed)
        all_kl += kl
        print(i, len(ids), "mean KL", np.mean(kl), flush=True)
    print("positions", len(all_kl), "mean KL", np.mean(all_kl), "p99", np.percentile(differences, 99))
    with open(path, "wb") as out:
        out.write(b"TRGOLD1\n" + struct.pack("<IIIIII", len(prompts), llama.size, TOP, FIXED, BUCKETS, WHOLE))
        out.write(struct.pack("<d", np.mean(all_kl)) + fixed.astype("<u4").tobytes() + body)


def compare(model, dump):
    with open(os.path.join(HERE, "prompts.json"), encoding="utf-8") as file:
        prompts = json.load(file)
    llama, reference = Llama(model), open_reference(model)
    worst, flips, positions = 0.0, 0, 0
    with open(dump, "rb") as file:
        for text in prompts:
            exact = reference(llama.tokenize(text))
            got = np.frombuffer(file.read(exact.size * 4), "<f4").reshape(exact.shape)
            worst = max(worst, float(np.abs(exact - got).max()))
            flips += int((exact.argmax(-1) != got.argmax(-1)).sum())
            positions += len(exact)
    print(f"{positions} positions: largest difference {worst:.2e}, {flips} other arg-maxes")


if __name__ == "__main__":
    {"make": make, "compare": compare}[sys.argv[1]](*sys.argv[2:])
