#!/usr/bin/env python3
"""Requantises a model by llama.cpp's own quantiser: llama_requantise.py IN.gguf OUT.gguf Q4_0|Q4_1|Q8_0|Q4_K_M|BF16

What is quantised already is quantised again (allow_requantize).  Needs llama-cpp-python.
"""
import ctypes
import sys

import llama_cpp as lib

TYPES = {"Q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0, "Q4_1": lib.LLAMA_FTYPE_MOSTLY_Q4_1, "Q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0,
         "Q4_K_M": lib.LLAMA_FTYPE_MOSTLY_Q4_K_M, "BF16": lib.LLAMA_FTYPE_MOSTLY_BF16}


@lib.llama_log_callback
def quiet(_level, _text, _data):
    """llama.cpp lists every tensor."""


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in TYPES:
        sys.exit(__doc__)
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    parameters = lib.llama_model_quantize_default_params()
    parameters.ftype, parameters.allow_requantize = TYPES[sys.argv[3]], True
    if lib.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(parameters)):
        sys.exit(f"llama_requantise: llama.cpp cannot make {sys.argv[2]}")


if __name__ == "__main__":
    main()
