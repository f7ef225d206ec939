#!/usr/bin/env python3
"""Every error that the header names has a sentence of its own with a remedy, and a line in the man page."""
import ctypes
import errno
import os
import re
from pathlib import Path

SOURCE = Path(os.environ["TOKENRING_SOURCE_ROOT"])
LIBRARY = ctypes.CDLL(str(Path(os.environ["TOKENRING_BUILD_ROOT"]) / "libclient" / "libtokenring.so.0"))
LIBRARY.tr_strerror.restype = ctypes.c_char_p


def sentence(number):
    return LIBRARY.tr_strerror(ctypes.c_int(number)).decode()


def main():
    header = (SOURCE / "libclient/include/tokenring/tokenring.h").read_text(encoding="utf-8")
    reasons = (SOURCE / "shm/wire.h").read_text(encoding="utf-8")
    page = (SOURCE / "docs/man/libtokenring.3").read_text(encoding="utf-8").replace("\\-", "-")
    named = set(re.findall(r"-(E[A-Z0-9]+)\b", header))
    in_events = set(re.findall(r"X\(\d+, \w+, (E[A-Z0-9]+),", reasons))
    assert len(named) > 15 and len(in_events) > 10, (named, in_events)
    sentences = {}
    for name in sorted(named | in_events):
        number = getattr(errno, name)
        said = sentence(-number)
        assert said == sentence(number), name
        assert said != os.strerror(number) and re.search(r"[;:] .*\w", said), f"{name}: no remedy in '{said}'"
        assert re.search(rf"^\.B -{name}\b", page, re.M), f"{name} is not in libtokenring.3"
        sentences[name] = said
    assert len(set(sentences.values())) == len(sentences), "two errors share a sentence"
    assert sentence(0) == "no error"
    assert sentence(errno.EXDEV) == os.strerror(errno.EXDEV), "errors of the kernel that nobody expects keep its words"
    assert sentence(123456) and sentence(-123456) == sentence(123456)
    print(f"{len(sentences)} errors, each with its sentence")


main()
