#!/usr/bin/env python3
"""llama.cpp as the peer of `tokenring bench decode`: decodes when asked and answers how fast.

    llama_peer.py MODEL.gguf PROMPT_TOKENS [MAX_THREADS]

Needs llama-cpp-python (built natively: `pip install --no-binary llama-cpp-python llama-cpp-python`).  First line out:
"ready" and what runs, with the number of threads that is fastest here (each tried in turns, medians).  Then, for each
line "decode N", one line with the tokens a second of N greedy tokens.  Between requests it sleeps.
"""
import ctypes
import statistics
import sys
import time

import llama_cpp as lib


@lib.llama_log_callback
def quiet(_level, _text, _data):
    """llama.cpp describes the model at length."""


def version_of_ggml():
    """ggml exports the commit that it was built from; older versions do not."""
    try:
        base = ctypes.CDLL(f"{lib.__path__[0]}/lib/libggml-base.so")
        base.ggml_commit.restype = base.ggml_version.restype = ctypes.c_char_p
        return f"ggml {base.ggml_version().decode()} commit {base.ggml_commit().decode()}"
    except (OSError, AttributeError):
        return "commit unknown"


class Decoder:
    """One context; tokens are fed one by one, as a stream that is generated."""

    def __init__(self, path, n_prompt, n_ctx):
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama_peer: llama.cpp cannot load {path}")
        parameters = lib.llama_context_default_params()
        parameters.n_ctx = n_ctx
        self.context = lib.llama_init_from_model(self.model, parameters)
        if not self.context:
            sys.exit("llama_peer: llama.cpp has no memory for a context")
        self.vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.n_prompt = n_prompt
        self.batch = lib.llama_batch_init(1, 0, 1)

    def step(self, token, position):
        batch = self.batch
        batch.n_tokens, batch.token[0], batch.pos[0] = 1, token, position
        batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 0, 1
        if lib.llama_decode(self.context, batch):
            sys.exit("llama_peer: llama.cpp could not decode")
        # The choice of the token is not timed against it: the logits are awaited, not searched.
        return lib.llama_get_logits_ith(self.context, -1)[0]

    def rate(self, n, threads):
        lib.llama_set_n_threads(self.context, threads, threads)
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
        first = self.vocabulary // 4
        for position in range(self.n_prompt + 1):  # prompt and first token: not decode
            self.step(first + position, position)
        start = time.perf_counter()
        for position in range(self.n_prompt + 1, self.n_prompt + n):
            self.step(first + position, position)
        return (n - 1) / (time.perf_counter() - start)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    n_prompt, max_threads = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) == 4 else 2
    decoder = Decoder(sys.argv[1], n_prompt, n_prompt + 4096)
    tried = {threads: [] for threads in range(1, max_threads + 1)}
    for _ in range(4):
        for threads, rates in tried.items():
            rates.append(decoder.rate(16, threads))
    best = max(tried, key=lambda threads: statistics.median(tried[threads][1:]))
    print(f"ready llama.cpp ({version_of_ggml()}, llama-cpp-python {lib.__version__}), {best} of {max_threads} threads",
          flush=True)
    for line in sys.stdin:
        words = line.split()
        if len(words) != 2 or words[0] != "decode" or not 2 <= int(words[1]) <= 4000:
            sys.exit(f"llama_peer: cannot do {line.strip()!r}")
        print(f"{decoder.rate(int(words[1]), best):.3f}", flush=True)


if __name__ == "__main__":
    main()
