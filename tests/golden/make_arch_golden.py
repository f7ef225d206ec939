#!/usr/bin/env python3
"""Make arch.txt: what llama.cpp answers for small random models of each architecture and option.

usage: make_arch_golden.py > arch.txt      needs numpy and llama-cpp-python

Each case is three lines: the options of tools/make-model, the tokens, and for each position the best token and its
log-probability.  Matrices are F32, so is llama.cpp's cache, and its flash attention, which rounds to halves, is off."""
import ctypes
import os
import subprocess
import sys
import tempfile

import llama_cpp as L
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = [5, 100, 200, 300, 17, 42, 9, 8, 250, 101, 77, 31]
CASES = [
    "",
    "--kv-heads 2 --tied --rope-scaling linear",
    "--rope-scaling yarn",
    "--rope-freqs --rope-base 500000",
    "--head-dim 32",
    "--width 128 --experts 8 --experts-used 2",
    "--width 96 --heads 3 --kv-heads 1 --experts 5 --experts-used 3",
    "--arch gemma3 --layers 7 --window 4 --kv-heads 1 --rope-base 1000000 --eps 1e-6",
    "--arch gemma3 --layers 6 --window 5 --rope-scaling linear --rope-base 1000000",
    "--arch qwen2 --kv-heads 1 --rope-base 1000000 --eps 1e-6",
    "--arch qwen3 --kv-heads 2 --head-dim 96 --rope-base 1000000 --eps 1e-6 --tied",
    "--arch qwen3 --rope-scaling yarn",
    "--arch gpt2 --context 64 --tied",
    "--arch gpt2 --layers 3 --width 192 --heads 3 --context 64",
]


def open_model(path):
    model = L.llama_model_load_from_file(path.encode(), L.llama_model_default_params())
    params = L.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 64
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = 0  # F32
    params.flash_attn_type = 0
    return model, L.llama_init_from_model(model, params)


def answers(path):
    model, context = open_model(path)
    n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    batch = L.llama_batch_init(1, 0, 1)
    for position, token in enumerate(TOKENS):
        batch.n_tokens, batch.token[0], batch.pos[0] = 1, token, position
        batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 0, 1
        if L.llama_decode(context, batch):
            sys.exit("decode failed")
        row = np.ctypeslib.as_array(L.llama_get_logits_ith(context, -1), (n_vocab,)).astype(np.float64)
        row -= row.max()
        row -= np.log(np.exp(row).sum())
        yield int(row.argmax()), float(row.max())


def main():
    quiet = L.llama_log_callback(lambda level, text, data: None)
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    with tempfile.TemporaryDirectory() as work:
        for options in CASES:
            path = os.path.join(work, "m.gguf")
            subprocess.run([sys.executable, os.path.join(HERE, "../../tools/make-model"), path, "--type", "F32",
                            *options.split()], check=True)
            print(options)
            print(*TOKENS)
            print(*("%d:%.4f" % best for best in answers(path)))


main()
