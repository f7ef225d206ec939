"""Where the peers are, and how they get there: Python packages in a virtual environment in the cache, versions pinned.

Each package is looked for in the pythons that were named, then in the environment.  Libraries that are built for
another instruction set than the machine's best lie beside it, a folder each.
"""
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

PINS = {"llama-cpp-python": "0.3.36", "ik-llama-cpp-python": "0.1.5", "openvino-genai": "2026.4.1.0"}
NUMPY = "numpy>=1.24"
LLAMA_OPTIONS = "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF"
NO_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
AVX2 = "-DGGML_NATIVE=OFF -DGGML_AVX512=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"


class Failed(Exception):
    """One sentence for the user: what, where, the remedy."""


class Build(NamedTuple):
    """A second build of a package: its folder, the package, the library in it, options of cmake."""
    folder: str
    package: str
    library: str
    options: str


def has_amx():
    return "amx_int8" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")


def native(options=""):
    """For this machine; AMX stays off, because it is compared apart."""
    flags = f" -DCMAKE_C_FLAGS='{NO_AMX}' -DCMAKE_CXX_FLAGS='{NO_AMX}'" if has_amx() else ""
    return f"-DGGML_NATIVE=ON {options}{flags}"


def second_builds():
    builds = [Build("llama-avx2", "llama-cpp-python", "llama_cpp/lib/libllama.so", f"{AVX2} {LLAMA_OPTIONS}"),
              Build("ik-native", "ik-llama-cpp-python", "ik_llama_cpp/lib/libllama.so", native())]
    if has_amx():
        builds.append(Build("llama-amx", "llama-cpp-python", "llama_cpp/lib/libllama.so", f"-DGGML_NATIVE=ON {LLAMA_OPTIONS}"))
    return builds


class Places:
    def __init__(self, cache, pythons):
        self.cache = Path(cache)
        self.venv = self.cache / "venv"
        named = [*pythons, *filter(None, os.environ.get("TOKENRING_PEER_PYTHON", "").split(":"))]
        self.pythons = [str(path) for path in (*named, self.venv / "bin/python") if os.access(path, os.X_OK)]

    @functools.cache  # pylint: disable=method-cache-max-size-none
    def python_with(self, package):
        """The first python that has the package, or None."""
        code = f"import importlib.metadata as m; m.version({package!r})"
        for python in self.pythons:
            if subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0:
                return python
        return None

    def library(self, folder):
        """The library of a second build, or None."""
        found = [self.cache / build.folder / build.library for build in second_builds() if build.folder == folder]
        return found[0] if found and found[0].exists() else None


def default_cache():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache) / "tokenring" / "peers"


def tail(log):
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - 40000))
        return file.read().decode(errors="replace")


def last_line(log):
    lines = tail(log).strip().splitlines()
    return lines[-1].strip()[:120] if lines else ""


def progress(log):
    """How far a build is, if the log shows one."""
    steps = re.findall(r"\[(\d+/\d+)\]", tail(log))
    return f", step {steps[-1]}" if steps else ""


def run_step(what, command, log, environment=None):
    """One command with its output in the log and a line of progress every ten seconds."""
    print(f"{what} ...", file=sys.stderr, flush=True)
    start = shown = time.monotonic()
    at = log.stat().st_size if log.exists() else 0
    with open(log, "ab") as output:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       env={**os.environ, **(environment or {})})
        except OSError as error:
            raise Failed(f"{what} fails: {error}") from error
        try:
            while process.poll() is None:
                time.sleep(0.1)
                if time.monotonic() - shown >= 10:
                    shown = time.monotonic()
                    print(f"{what}: {shown - start:.0f} s{progress(log)}", file=sys.stderr, flush=True)
        finally:  # an interrupted installation leaves nothing that goes on
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode:
        said = last_line(log) if log.stat().st_size > at else "it says nothing"
        raise Failed(f"{what} fails: {said}; all that it said is in {log}")
    print(f"{what}: done in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def pip_install(places, log, package, *options, cmake=None):
    pip = [str(places.venv / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": str(len(os.sched_getaffinity(0)))}
    if cmake:
        environment["CMAKE_ARGS"] = f"{cmake} {os.environ.get('CMAKE_ARGS', '')}".strip()
        options = ("-v", "--no-cache-dir", "--no-binary", package, *options)
    target = f"{package}=={PINS[package]}" if package in PINS else package
    if cmake:
        print(f"{target} is built from source with {environment['CMAKE_ARGS']}", file=sys.stderr)
    run_step(f"installing {target}", pip + [*options, target], log, environment)


def install_venv(places, log):
    if not os.access(places.venv / "bin/python", os.X_OK):
        try:
            run_step("making a virtual environment", [sys.executable, "-m", "venv", "--clear", str(places.venv)], log)
        except Failed as error:
            raise Failed(f"{error}; on Debian, `apt-get install python3-venv` provides it") from error
        pip_install(places, log, NUMPY)


def install_second(places, log, build):
    """Into a folder that gets its name when it is whole."""
    folder = places.cache / build.folder
    scratch = places.cache / (build.folder + ".part")
    shutil.rmtree(scratch, ignore_errors=True)
    pip_install(places, log, build.package, "--no-deps", "--target", str(scratch),
                cmake=build.options + " -DCMAKE_INSTALL_RPATH=$ORIGIN")
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)


def install(places, with_native):
    places.cache.mkdir(parents=True, exist_ok=True)
    log = places.cache / "install.log"
    missing = [package for package in PINS if not places.python_with(package)]
    seconds = [build for build in second_builds() if with_native and not places.library(build.folder)]
    if missing or seconds:
        install_venv(places, log)
    for package in reversed(missing):  # the quick ones first
        if package == "llama-cpp-python":
            pip_install(places, log, package, cmake=native(LLAMA_OPTIONS))
        else:
            pip_install(places, log, package, *(["--no-deps"] if package.startswith("ik") else []))
    for build in seconds:
        install_second(places, log, build)
    return Places(places.cache, [python for python in places.pythons if python != str(places.venv / "bin/python")])
