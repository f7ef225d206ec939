#!/usr/bin/env python3
"""llama.cpp, or its fork ik_llama.cpp, as a peer of our benchmarks: works when asked and answers how fast.

    llama_peer.py [--fork] [--repack] [--threads N | --max-threads N] [--prompt N] [--context N] MODEL

Needs llama-cpp-python, or ik-llama-cpp-python for --fork.  First line out: "ready" and what runs.  Then, for each line
in, one line with tokens a second, or "cannot" and why:

    decode STREAMS N     N tokens for each of STREAMS streams that share each step, of all together
    prefill N            a prompt of N tokens, to the logits of its last one

With --max-threads the number of threads is the fastest up to that, each tried in turns.  Between requests it sleeps.
"""
import argparse
import ctypes
import importlib.metadata
import os
import statistics
import sys
import time
from pathlib import Path


class LlamaCpp:
    """What differs between the two: the names and the layouts of their C interfaces."""

    package = "llama-cpp-python"
    name = "llama.cpp"

    def __init__(self, _arguments):
        import llama_cpp as lib  # pylint: disable=import-outside-toplevel
        self.lib = lib
        self.quiet = lib.llama_log_callback(lambda _level, _text, _data: None)
        lib.llama_log_set(self.quiet, ctypes.c_void_p(0))
        lib.llama_backend_init()

    def model_options(self):
        return self.lib.llama_model_default_params()

    def context_options(self, _streams):
        return self.lib.llama_context_default_params()

    def vocabulary(self, model):
        return self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(model))

    def set_threads(self, context, threads):
        self.lib.llama_set_n_threads(context, threads, threads)

    def clear(self, context):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(context), True)

    def build(self):
        """ggml exports the commit that it was built from, and what of the CPU it uses."""
        folder = os.environ.get("LLAMA_CPP_LIB_PATH") or f"{self.lib.__path__[0]}/lib"
        try:
            base = ctypes.CDLL(f"{folder}/libggml-base.so.0")
            base.ggml_commit.restype = base.ggml_version.restype = ctypes.c_char_p
            ggml = f"ggml {base.ggml_version().decode()} commit {base.ggml_commit().decode()}"
        except (OSError, AttributeError):
            ggml = "commit unknown"
        return f"{ggml}, {widest(self.lib.llama_print_system_info().decode())}"


class IkLlamaCpp(LlamaCpp):
    package = "ik-llama-cpp-python"
    name = "ik_llama.cpp"

    def __init__(self, arguments):  # pylint: disable=super-init-not-called
        from ik_llama_cpp import _ctypes_api as lib  # pylint: disable=import-outside-toplevel
        self.lib = lib
        self.repack = arguments.repack
        self.loaded = lib._lib  # pylint: disable=protected-access
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.loaded.llama_log_set(self.quiet, None)
        self.loaded.llama_set_n_threads.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32]
        lib.llama_backend_init()

    def model_options(self):
        options = super().model_options()
        if self.repack:
            options.repack_tensors, options.use_mmap = True, False
        return options

    def context_options(self, streams):
        """Its flash attention aborts where a stream sees nothing of a block of the others' keys."""
        options = super().context_options(streams)
        if streams > 1:
            options.flash_attn = False
        return options

    def set_threads(self, context, threads):
        self.loaded.llama_set_n_threads(context, threads, threads)

    def clear(self, context):
        self.lib.llama_kv_cache_clear(context)

    def build(self):
        self.loaded.llama_print_system_info.restype = ctypes.c_char_p
        how = "repacked at load" if self.repack else "as in the file"
        return f"{widest(self.loaded.llama_print_system_info().decode())}, {how}"


def widest(system):
    """Of llama.cpp's list of CPU features ("AVX2 = 1 | AVX512 = 0 | ..."), those that decide how fast it is."""
    has = {name.strip().rpartition(" ")[2] for name, _, value in
           (part.rpartition("=") for part in system.split("|")) if value.strip() == "1"}
    return next((name for name in ("AMX_INT8", "AVX512_VNNI", "AVX512", "AVX_VNNI", "AVX2", "AVX") if name in has),
                "baseline")


class Engine:
    def __init__(self, fork, arguments):
        self.fork, self.lib, self.arguments = fork, fork.lib, arguments
        self.model = self.lib.llama_model_load_from_file(arguments.model.encode(), fork.model_options())
        if not self.model:
            sys.exit(f"llama_peer: {fork.name} cannot load {Path(arguments.model).name}")
        self.first = fork.vocabulary(self.model) // 4  # ordinary tokens lie in the middle of a vocabulary
        self.threads = arguments.threads
        self.contexts = {}
        self.turn = 0

    def context(self, streams, tokens):
        """One for each number of streams, made when first asked for, so that a lone stream pays for nothing."""
        context, batch, capacity = self.contexts.get(streams, (None, None, 0))
        if capacity < tokens:
            if context:
                self.lib.llama_free(context)
            self.contexts[streams] = context, batch, capacity = self.new_context(streams, tokens)
        self.fork.set_threads(context, self.threads)
        self.fork.clear(context)
        return context, batch

    def new_context(self, streams, tokens):
        capacity = max(tokens, self.arguments.context)
        options = self.fork.context_options(streams)
        options.n_ctx, options.n_seq_max = streams * capacity, streams
        options.n_batch = options.n_ubatch = 512
        context = self.lib.llama_init_from_model(self.model, options)
        if not context:
            sys.exit(f"llama_peer: {self.fork.name} has no memory for a context")
        return context, self.lib.llama_batch_init(512, 0, 1), capacity

    def run(self, context, batch, rows):
        """One step of rows (stream, position, are its logits wanted)."""
        batch.n_tokens = len(rows)
        for i, (stream, position, wanted) in enumerate(rows):
            batch.token[i] = self.first + (self.turn * 131 + stream * 37 + position) % self.first
            batch.pos[i] = position
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, stream, wanted
        start = time.perf_counter()
        if self.lib.llama_decode(context, batch):
            raise RuntimeError(f"{self.fork.name} could not decode")
        # The choice of the token is not timed against it: the logits are awaited, not searched.
        self.lib.llama_get_logits_ith(context, batch.n_tokens - 1)[0]  # pylint: disable=expression-not-assigned
        return time.perf_counter() - start

    def decode(self, streams, n):
        self.turn += 1
        prompt = self.arguments.prompt
        context, batch = self.context(streams, prompt + n)
        for position in range(prompt + 1):  # prompt and first token: not decode
            self.run(context, batch, [(stream, position, 1) for stream in range(streams)])
        start = time.perf_counter()
        for position in range(prompt + 1, prompt + n):
            self.run(context, batch, [(stream, position, 1) for stream in range(streams)])
        return streams * (n - 1) / (time.perf_counter() - start)

    def prefill(self, n):
        self.turn += 1
        context, batch = self.context(1, n)
        seconds = 0.0
        for at in range(0, n, 512):
            rows = [(0, position, position == n - 1) for position in range(at, min(at + 512, n))]
            seconds += self.run(context, batch, rows)  # filling the batch is not timed against it
        return n / seconds

    def choose_threads(self, most):
        tried = {threads: [] for threads in range(1, most + 1)}
        for _ in range(4):
            for self.threads, rates in tried.items():
                rates.append(self.decode(1, 16))
        self.threads = max(tried, key=lambda threads: statistics.median(tried[threads][1:]))


def answer(engine, line):
    words = line.split()
    if len(words) == 3 and words[0] == "decode" and 1 <= int(words[1]) <= 64 and 2 <= int(words[2]) <= 4000:
        return f"{engine.decode(int(words[1]), int(words[2])):.3f}"
    if len(words) == 2 and words[0] == "prefill" and 1 <= int(words[1]) <= 65536:
        return f"{engine.prefill(int(words[1])):.3f}"
    return f"cannot do {line.strip()!r}"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fork", action="store_true")
    parser.add_argument("--repack", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-threads", type=int)
    parser.add_argument("--prompt", type=int, default=8)
    parser.add_argument("--context", type=int, default=128, help="tokens of a stream that a context is made for")
    parser.add_argument("model", type=lambda path: str(Path(path).resolve()))
    return parser.parse_args()


def main():
    arguments = parse()
    try:
        fork = (IkLlamaCpp if arguments.fork else LlamaCpp)(arguments)
    except ImportError as error:
        sys.exit(f"llama_peer: {error}")
    engine = Engine(fork, arguments)
    threads = f"{engine.threads} threads"
    if arguments.max_threads:
        engine.choose_threads(arguments.max_threads)
        threads = f"{engine.threads} of {arguments.max_threads} threads"
    version = importlib.metadata.version(fork.package)
    print(f"ready {fork.name} ({fork.package} {version}, {fork.build()}), {threads}", flush=True)
    for line in sys.stdin:
        try:
            print(answer(engine, line), flush=True)
        except (ValueError, RuntimeError) as error:
            print(f"cannot: {error}", flush=True)


if __name__ == "__main__":
    main()
