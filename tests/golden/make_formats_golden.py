#!/usr/bin/env python3
"""Writes formats.bin: random blocks of every weight type and what gguf-py decodes them to.

Layout, a record a type: u32 GGUF type number, u32 weights, raw bytes, f32 values. Needs numpy and gguf.
Run once: python3 make_formats_golden.py formats.bin
"""
import struct
import sys

import gguf
import numpy as np

T = gguf.GGMLQuantizationType
TYPES = [T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K]
# Offsets of the f16 members inside a block: random bits there would often be NaN or infinite.
HALVES = {
    T.F16: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82],
    T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}


def main():
    rng = np.random.default_rng(20)
    with open(sys.argv[1], "wb") as out:
        for kind in TYPES:
            weights, size = gguf.GGML_QUANT_SIZES[kind]
            blocks = 512 // weights
            raw = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
            for offset in HALVES.get(kind, []):
                half = (rng.standard_normal(blocks) * 10.0 ** rng.integers(-7, 2, blocks)).astype("<f2")
                raw[:, offset:offset + 2] = half.view(np.uint8).reshape(blocks, 2)
            if kind == T.BF16:
                value = rng.standard_normal(blocks).astype("<f4").view("<u4") >> 16
                raw = value.astype("<u2").view(np.uint8).reshape(blocks, 2)
            with np.errstate(over="ignore"):
                values = gguf.dequantize(raw.reshape(1, -1), kind).astype("<f4")
            out.write(struct.pack("<II", int(kind), values.size) + raw.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
