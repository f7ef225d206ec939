#!/usr/bin/env python3
"""Make embedding.json: the last hidden states of Hugging Face transformers in float32, from the same GGUF files.

usage: make_embedding_golden.py SmolLM2-135M-Instruct.Q4_1.gguf gemma-3-270m-q4_k_m.gguf > embedding.json

Needs numpy, torch, transformers, accelerate, gguf and llama-cpp-python, whose tokenizer gives the ids. A file has for each text
its ids and, as base64 of little-endian float32, the state of the last token after the final norm, and the mean over all tokens
in float64, rounded once."""
import base64
import ctypes
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from transformers import AutoModelForCausalLM

TEXTS = ["Hello", "The capital of France is", (
    "Die Börse schloss am Dienstag leicht im Plus; Анна считает до ста, and then 3,14159 more lines follow:\n"
    "\tfor (int i = 0; i < n; i++)\n\t\tsum += x[i] * y[i];\n"
    "Prices rose for the third day in a row, and the volume was the highest since 2019. 東京の市場も続伸した。")]


def tokenize(path):
    import llama_cpp as lib

    quiet = lib.llama_log_callback(lambda level, text, data: None)
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(path.encode(), params)
    vocab = lib.llama_model_get_vocab(model)
    for text in TEXTS:
        raw = text.encode()
        out = (ctypes.c_int32 * (len(raw) + 16))()
        n = lib.llama_tokenize(vocab, raw, len(raw), out, len(raw) + 16, True, False)
        yield list(out[:n])


def pack(values):
    return base64.b64encode(np.asarray(values, "<f4").tobytes()).decode()


def embed(path):
    folder, name = os.path.split(os.path.abspath(path))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    for text, ids in zip(TEXTS, tokenize(path)):
        with torch.no_grad():
            states = model.model(torch.tensor([ids])).last_hidden_state[0].numpy()
        yield {"text": text, "ids": ids, "last": pack(states[-1]), "mean": pack(states.astype(np.float64).mean(0))}


json.dump({os.path.basename(path): list(embed(path)) for path in sys.argv[1:]}, sys.stdout, ensure_ascii=False, indent=0)
print()
