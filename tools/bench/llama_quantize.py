#!/usr/bin/env python3
"""Writes a model file in another format, by llama.cpp's own quantiser: llama_quantize.py FROM.gguf TO.gguf FORMAT"""
import ctypes
import sys

import llama_cpp as lib

TYPES = {"q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0, "q4_1": lib.LLAMA_FTYPE_MOSTLY_Q4_1, "q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0,
         "q4_k_m": lib.LLAMA_FTYPE_MOSTLY_Q4_K_M, "bf16": lib.LLAMA_FTYPE_MOSTLY_BF16}


@lib.llama_log_callback
def quiet(_level, _text, _data):
    """It names each tensor."""


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in TYPES:
        sys.exit(__doc__ + "formats: " + ", ".join(TYPES))
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    options = lib.llama_model_quantize_default_params()
    options.ftype = TYPES[sys.argv[3]]
    options.allow_requantize = True
    if lib.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(options)):
        sys.exit(f"llama_quantize: llama.cpp cannot write {sys.argv[1]} as {sys.argv[3]}")


if __name__ == "__main__":
    main()
