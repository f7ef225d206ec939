#!/usr/bin/env python3
"""OpenVINO GenAI as a peer of our benchmarks; the same lines in and out as llama_peer.py.

    openvino_peer.py [--threads N] [--prompt N] MODEL.gguf

Needs openvino-genai.  It reads files of the llama and qwen architectures only.
"""
import argparse
import importlib.metadata
import sys
import time
from pathlib import Path


import numpy
import openvino
import openvino_genai


class Engine:
    def __init__(self, arguments):
        self.prompt = arguments.prompt
        self.pipe = openvino_genai.LLMPipeline(arguments.model, "CPU", INFERENCE_NUM_THREADS=arguments.threads)
        self.random = numpy.random.default_rng(1)

    def generate(self, streams, n_prompt, n):
        """Seconds to the first token, and from there to the end."""
        ids = self.random.integers(10000, 30000, (streams, n_prompt), dtype=numpy.int64)
        prompt = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
        config = openvino_genai.GenerationConfig(max_new_tokens=n, ignore_eos=True, do_sample=False)
        start = time.perf_counter()
        result = self.pipe.generate(prompt, config)
        seconds = time.perf_counter() - start
        if any(len(tokens) != n for tokens in result.tokens):
            raise RuntimeError("an answer is shorter than it was asked for")
        first = 1e-3 * result.perf_metrics.get_ttft().mean
        return first, seconds - first

    def decode(self, streams, n):
        return streams * (n - 1) / self.generate(streams, self.prompt, n)[1]

    def prefill(self, n):
        return n / self.generate(1, n, 1)[0]


def answer(engine, line):
    words = line.split()
    if len(words) == 3 and words[0] == "decode":
        return f"{engine.decode(int(words[1]), int(words[2])):.3f}"
    if len(words) == 2 and words[0] == "prefill":
        return f"{engine.prefill(int(words[1])):.3f}"
    return f"cannot do {line.strip()!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=8)
    parser.add_argument("model")
    arguments = parser.parse_args()
    try:
        engine = Engine(arguments)
    except RuntimeError as error:
        sys.exit(f"openvino_peer: cannot load {Path(arguments.model).name}: {str(error).strip().splitlines()[-1]}")
    version = importlib.metadata.version("openvino-genai")
    print(f"ready OpenVINO (openvino-genai {version}, openvino {openvino.get_version()}), {arguments.threads} threads",
          flush=True)
    for line in sys.stdin:
        try:
            print(answer(engine, line), flush=True)
        except (ValueError, RuntimeError) as error:
            print(f"cannot: {str(error).strip().splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    main()
