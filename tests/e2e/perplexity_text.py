#!/usr/bin/python3
"""Prints a fixed text of ordinary English about 20,000 tokens long: the help topics of Debian 12's Python 3.11
(pydoc_data/topics.py, PSF licence), in the order of their names.  Exits with 77 and a reason where they are others."""
import hashlib
import sys

BYTES = 120_000
SHA256 = "8cc916448af239dc0a9fe55234076c6c09e801bbfaf3d6afb47c94b17bbf412c"


def main():
    try:
        from pydoc_data.topics import topics
    except ImportError:
        print("skip: this Python has no help topics", file=sys.stderr)
        sys.exit(77)
    text = "\n".join(topics[name] for name in sorted(topics)).encode()[:BYTES]
    found = hashlib.sha256(text).hexdigest()
    if found != SHA256:
        print(f"skip: the help topics of Python {sys.version.split()[0]} are others (SHA-256 {found})", file=sys.stderr)
        sys.exit(77)
    sys.stdout.buffer.write(text)


if __name__ == "__main__":
    main()
