"""The model in each format: requantised by llama.cpp's own quantiser, kept in the cache, and counted."""
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from peer_install import Failed

FORMATS = ["q4_1", "q4_0", "q8_0", "q4_k_m", "bf16"]


class ModelFile(NamedTuple):
    path: Path
    format: str
    bytes: int
    decode_bytes: int        # of weights that a token moves
    prefill_multiplies: int  # that a token of a long prompt needs
    census: dict             # type: (tensors, bytes)


def read_info(text):
    """What `tokenring model info` says of a file: (file bytes, decode bytes, multiplies, census)."""
    def number(label):
        found = re.search(rf"^{label}\s+(\d+)", text, re.M)
        if not found:
            raise Failed(f"`tokenring model info` does not say \"{label}\"")
        return int(found.group(1))
    census = {name: (int(tensors), int(size)) for name, tensors, size in
              re.findall(r"^(\S+)\s+(\d+) tensors, (\d+) bytes$", text, re.M)}
    return number("file"), number("decode moves"), number("prefill needs"), census


def main_type(census):
    """The type that most bytes of matrices are in."""
    return max(census, key=lambda name: census[name][1])


def words_of_census(census):
    return ", ".join(f"{tensors} {name} ({size / 1e6:.1f} MB)" for name, (tensors, size) in census.items())


def describe(tokenring, path, name):
    done = subprocess.run([tokenring, "model", "info", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr.strip() or f"{path} cannot be read")
    return ModelFile(path, name, *read_info(done.stdout))


def quantise(python, source, target, name):
    part = target.with_suffix(".part")
    script = Path(__file__).with_name("llama_quantize.py")
    done = subprocess.run([python, str(script), str(source), str(part), name], capture_output=True, text=True, check=False)
    if done.returncode:
        part.unlink(missing_ok=True)
        raise Failed((done.stderr.strip().splitlines() or [f"llama.cpp cannot make {name}"])[-1])
    part.rename(target)


def file_of(places, tokenring, source, name):
    """The source itself if it is of that format, or "file"; else its copy in the cache."""
    own = describe(tokenring, source, name)
    if name in ("file", main_type(own.census).lower()):
        return own
    target = places.cache / "files" / f"{source.stem}-{own.bytes}-{name}.gguf"
    if not target.exists():
        python = places.python_with("llama-cpp-python")
        if not python:
            raise Failed(f"{name} of {source.name} is not in the cache, and llama.cpp, which makes it, is not installed")
        target.parent.mkdir(parents=True, exist_ok=True)
        quantise(python, source, target, name)
    return describe(tokenring, target, name)
