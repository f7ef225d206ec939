#!/usr/bin/env python3
"""Writes quantised.bin: rows that llama.cpp's own quantiser wrote, of every type, and what gguf-py decodes them to.

A synthetic llama model of width 512 (a multiple of the 256 weights of a K-quant's block, which SmolLM2's 576 is not) is
quantised once for each type, all tensors alike.  Its rows are ordinary, zero, so small that scales become subnormal
halves, large, and constant.  Layout as in formats.bin.  Needs numpy, gguf and llama-cpp-python.
Run once: python3 make_quantised_golden.py quantised.bin
"""
import ctypes
import struct
import sys
import tempfile

import gguf
import llama_cpp as lib
import numpy as np

WIDTH, ROWS, NAME = 512, 32, "blk.0.ffn_up.weight"
# The first five rows of that tensor are kept; ftype numbers are those of llama.h.
KEPT = 5
FTYPES = {"F32": 0, "F16": 1, "BF16": 32, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q8_0": 7, "Q2_K": 10, "Q3_K": 11,
          "Q4_K": 14, "Q5_K": 16, "Q6_K": 18}


def rows_of(rng):
    rows = rng.standard_normal((ROWS, WIDTH)).astype(np.float32) * np.float32(0.04)
    rows[1] = 0
    rows[2] *= np.float32(2e-6)
    rows[3] *= np.float32(1e4)
    rows[4] = np.float32(-0.37)
    return rows


def write_model(path, rng):
    shapes = {"token_embd.weight": (64, WIDTH), "blk.0.attn_q.weight": (WIDTH, WIDTH), "blk.0.attn_k.weight": (128, WIDTH),
              "blk.0.attn_v.weight": (128, WIDTH), "blk.0.attn_output.weight": (WIDTH, WIDTH),
              "blk.0.ffn_gate.weight": (ROWS, WIDTH), NAME: (ROWS, WIDTH)}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(ROWS)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(64)
    for name, shape in shapes.items():
        writer.add_tensor(name, rows_of(rng) if name == NAME else rng.standard_normal(shape).astype(np.float32))
    for name in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"):
        writer.add_tensor(name, np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantise(source, target, ftype):
    parameters = lib.llama_model_quantize_default_params()
    parameters.ftype, parameters.pure, parameters.nthread = ftype, True, 1
    if lib.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(parameters)):
        sys.exit(f"llama.cpp cannot quantise to type {ftype}")


def main():
    with tempfile.TemporaryDirectory() as folder, open(sys.argv[1], "wb") as out:
        source, target = f"{folder}/f32.gguf", f"{folder}/quantised.gguf"
        write_model(source, np.random.default_rng(31))
        for kind, ftype in FTYPES.items():
            quantise(source, target, ftype)
            (tensor,) = (one for one in gguf.GGUFReader(target).tensors if one.name == NAME)
            if tensor.tensor_type.name != kind:
                sys.exit(f"{NAME} became {tensor.tensor_type.name} instead of {kind}")
            raw = np.ascontiguousarray(tensor.data[:KEPT])
            values = gguf.dequantize(raw, tensor.tensor_type).astype("<f4")
            for row in range(KEPT):
                out.write(struct.pack("<II", int(tensor.tensor_type), WIDTH))
                out.write(raw[row].tobytes() + values[row].tobytes())


if __name__ == "__main__":
    main()
