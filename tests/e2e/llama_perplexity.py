#!/usr/bin/env python3
"""llama.cpp's perplexity of tokens, cut into chunks as `tokenring bench perplexity` cuts them.

    llama_perplexity.py MODEL.gguf CHUNK [THREADS] <ids

The ids are those of `tokenring tokenize --ids --bos`; each chunk is a context of its own, begins with the model's
begin-of-sequence if the ids do, and its first token is not judged.  Prints one JSON object.  Needs llama-cpp-python.
"""
import ctypes
import json
import math
import sys

import llama_cpp as lib
import numpy as np

ROWS = 64  # logits of so many rows at once


@lib.llama_log_callback
def quiet(_level, _text, _data):
    """llama.cpp describes the model at length."""


def open_context(path, chunk, threads):
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    if not model:
        sys.exit(f"llama_perplexity: llama.cpp cannot load {path}")
    parameters = lib.llama_context_default_params()
    parameters.n_ctx = chunk
    parameters.n_batch = parameters.n_ubatch = ROWS
    parameters.n_threads = parameters.n_threads_batch = threads
    context = lib.llama_init_from_model(model, parameters)
    if not context:
        sys.exit("llama_perplexity: llama.cpp has no memory for a context")
    return lib.llama_model_get_vocab(model), context


def decode(context, batch, ids, first):
    """Logits of ids at the positions from `first` on."""
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i] = token, first + i
        batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
    if lib.llama_decode(context, batch):
        sys.exit("llama_perplexity: llama.cpp could not decode")


def score(context, batch, vocabulary, ids):
    """Sum of -log(p) of ids[1:]."""
    lib.llama_memory_clear(lib.llama_get_memory(context), True)
    total = 0.0
    for first in range(0, len(ids) - 1, ROWS):
        part = ids[first:min(first + ROWS, len(ids) - 1)]
        decode(context, batch, part, first)
        for i in range(len(part)):
            row = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, i), (vocabulary,))
            largest = float(row.max())
            log_sum = largest + math.log(float(np.exp(row - np.float32(largest)).sum(dtype=np.float64)))
            total += log_sum - float(row[ids[first + i + 1]])
    return total


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    chunk, threads = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) == 4 else 2
    ids = [int(word) for word in sys.stdin.read().split()]
    vocab, context = open_context(sys.argv[1], chunk, threads)
    vocabulary, bos = lib.llama_vocab_n_tokens(vocab), lib.llama_vocab_bos(vocab)
    head = [bos] if lib.llama_vocab_get_add_bos(vocab) and ids[0] == bos else []
    batch = lib.llama_batch_init(ROWS, 0, 1)
    step, total, scored = chunk - len(head), 0.0, 0
    for at in range(len(head), len(ids), step):
        part = head + ids[at:at + step]
        if len(part) > 1:
            total += score(context, batch, vocabulary, part)
            scored += len(part) - 1
    mean = total / scored
    print(json.dumps({"perplexity": round(math.exp(mean), 6), "nll": round(mean, 8), "scored": scored, "chunk": chunk}))


if __name__ == "__main__":
    main()
