"""The engines under comparison, each a child process that measures what it is asked to, a line in and a line out."""
import os
import re
import select
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from peer_install import Failed

FOLDER = Path(__file__).parent
PATIENCE_S = 300
READY_S = 120


class Ended(Exception):
    """An engine that cannot do what it was asked to; the sentence says why."""


class Child:
    """A process that speaks the lines of llama_peer.py."""

    def __init__(self, name, command, environment=None):
        self.name = name
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        env={**os.environ, "GGML_NO_BACKTRACE": "1", **(environment or {})})
        self.buffer = b""
        self.what = ""

    def wait_ready(self):
        line = self.read_line(READY_S)
        if not line.startswith("ready "):
            raise Ended(f"it answers {line!r} instead of \"ready\"")
        self.what = line.removeprefix("ready ")
        return self

    def read_line(self, patience):
        end = time.monotonic() + patience
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Ended(f"it says nothing for {patience} s")
            new = os.read(self.process.stdout.fileno(), 4096)
            if not new:
                raise Ended(self.last_words())
            self.buffer += new
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode(errors="replace")

    def last_words(self):
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with {self.process.wait()} and said nothing"

    def ask(self, line):
        """The number that it answers."""
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Ended(self.last_words()) from None
        said = self.read_line(PATIENCE_S)
        try:
            return float(said)
        except ValueError:
            raise Ended(said) from None

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Own(Child):
    """tokenringd with a file, and a process of its own that uses the library."""

    def __init__(self, name, programs, path, threads, isa=None, prompt=8):
        self.path = Path(path)
        self.folder = tempfile.TemporaryDirectory()
        socket = str(Path(self.folder.name) / "socket")
        self.log = open(Path(self.folder.name) / "log", "w+", encoding="utf-8", errors="replace")
        options = ["--threads", str(threads), "--kv-tokens", "8192"] + (["--isa", isa] if isa else [])
        self.daemon = subprocess.Popen([programs.daemon, "--model", str(path), "--socket", socket, *options],
                                       stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        try:
            self.wait_socket(socket)
        except Ended:
            self.stop()
            raise
        super().__init__(name, [programs.tokenring, "bench", "lines", "--socket", socket, "--prompt", str(prompt)])

    def wait_socket(self, socket):
        end = time.monotonic() + READY_S
        while not os.path.exists(socket):
            if self.daemon.poll() is not None:
                self.log.seek(0)
                raise Ended("tokenringd stops: " + (self.log.read().strip().splitlines() or ["it says nothing"])[-1])
            if time.monotonic() > end:
                raise Ended(f"tokenringd has no socket after {READY_S} s")
            time.sleep(0.0005)

    def pages(self):
        """What share of the daemon's memory lies on huge pages, of any kind."""
        text = Path(f"/proc/{self.daemon.pid}/smaps_rollup").read_text(encoding="ascii")
        kib = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
        reserved = kib["Shared_Hugetlb"] + kib["Private_Hugetlb"]
        transparent = kib["AnonHugePages"] + kib["ShmemPmdMapped"] + kib["FilePmdMapped"]
        return (f"{(kib['Rss'] + reserved) / 1024:.0f} MiB in use, {reserved / 1024:.0f} on reserved and {transparent / 1024:.0f} "
                "on transparent huge pages")

    def stop(self):
        self.daemon.terminate()
        try:
            self.daemon.wait(10)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        self.log.close()
        self.folder.cleanup()

    def close(self):
        super().close()
        self.stop()


class Programs(NamedTuple):
    tokenring: str
    daemon: str


class Kind(NamedTuple):
    """How a peer is started: its package, its script, options, and a second build's folder."""
    package: str
    script: str
    options: tuple = ()
    build: str = ""
    is_optional_build: bool = False  # the package's own library will do


KINDS = {
    "llama": Kind("llama-cpp-python", "llama_peer.py"),
    "ik": Kind("ik-llama-cpp-python", "llama_peer.py", ("--fork",), "ik-native", True),
    "ik-repacked": Kind("ik-llama-cpp-python", "llama_peer.py", ("--fork", "--repack"), "ik-native", True),
    "openvino": Kind("openvino-genai", "openvino_peer.py"),
    "llama-avx2": Kind("llama-cpp-python", "llama_peer.py", (), "llama-avx2"),
    "ik-avx2": Kind("ik-llama-cpp-python", "llama_peer.py", ("--fork",)),
    "llama-amx": Kind("llama-cpp-python", "llama_peer.py", (), "llama-amx"),
}

# oneDNN, which OpenVINO multiplies with: AMX is compared apart.
ENVIRONMENT = {"openvino": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}}


def start_peer(places, name, path, threads, prompt=8):
    """Raises Failed if it is not installed, Ended if it cannot load the file."""
    kind = KINDS[name]
    python = places.python_with(kind.package)
    library = places.library(kind.build) if kind.build else None
    if not python or (kind.build and not library and not kind.is_optional_build):
        raise Failed(f"{name} is not installed: `tokenring bench peer "
                     f"--install{'-native' if python else ''}` installs it")
    environment = dict(ENVIRONMENT.get(name, {}))
    if library:
        variable = "IK_LLAMA_CPP_LIB_PATH" if "--fork" in kind.options else "LLAMA_CPP_LIB_PATH"
        environment[variable] = str(library if "--fork" in kind.options else library.parent)
        environment["LD_LIBRARY_PATH"] = str(library.parent)
    child = Child(name, [python, str(FOLDER / kind.script), *kind.options, "--threads", str(threads),
                         "--prompt", str(prompt), str(path)], environment)
    try:
        return child.wait_ready()
    except Ended:
        child.close()
        raise
