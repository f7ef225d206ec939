#!/usr/bin/env python3
"""No system call a message in a daemon that computes: strace counts what its engine's thread asks of the kernel.

Front and engine share the thread. It may look at its sockets once in 2 ms; the tokens of a small model and echoes
come far more often.
"""
import collections
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tokenring_e2e import Client, Daemon, ECHO, SOURCE, skip, u32

STREAMS, TOKENS, ECHOES = 8, 1500, 3000
LOOK_S, SLACK, TRIES = 0.002, 60, 20


class Options(ctypes.Structure):
    _fields_ = [("size", u32), ("spin_ns", u32), ("timeout_ms", u32), ("flags", u32)]


def busy_client(socket):
    """One that never sleeps, so that nothing ever has to wake it."""
    client = Client(socket)
    client.close()
    options = Options(ctypes.sizeof(Options), 0xffffffff, 0, 0)
    client.handle = ctypes.c_void_p()
    assert client.lib.tr_open(ctypes.byref(client.handle), str(socket).encode(), ctypes.byref(options)) == 0
    return client


def small_model(path):
    options = ["--layers", "1", "--width", "32", "--heads", "2", "--ffn", "64", "--vocab", "300", "--context", "4096"]
    for python in (sys.executable, "/usr/bin/python3"):  # numpy is Debian's, and may not be the first one's
        made = subprocess.run([python, SOURCE / "tools" / "make-model", path, *options], check=False, capture_output=True, text=True)
        if made.returncode == 0:
            return
    skip(made.stderr.strip())


def engine_thread(pid):
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "engine":
            return task.name
    raise AssertionError("no thread is called engine")


def traced(thread, file, work):
    """Runs the work; the calls that the thread made meanwhile, and how long that took."""
    began = time.monotonic()
    strace = subprocess.Popen(["strace", "-q", "-p", thread, "-o", file], stderr=subprocess.PIPE, text=True)
    try:
        while f"TracerPid:\t{strace.pid}" not in Path(f"/proc/{thread}/status").read_text():
            if strace.poll() is not None:
                skip(f"strace may not look: {strace.stderr.read().strip()}")
            time.sleep(0.01)
        work()
    finally:
        strace.terminate()
        strace.wait()
    calls = [line.split("(")[0] for line in open(file) if "(" in line and "resumed" not in line]
    return collections.Counter(calls), time.monotonic() - began


def check(what, messages, trace):
    """Tries again while others take the CPUs and messages are too slow to tell a call each from a look in 2 ms."""
    for _ in range(TRIES):
        calls, took_s = trace()
        allowed = took_s / LOOK_S + SLACK
        print(f"{messages} {what} in {took_s:.2f} s: {dict(calls)}", flush=True)
        assert sum(calls.values()) <= allowed, f"more than {allowed:.0f} calls"
        if messages > 3 * allowed:
            return
    raise AssertionError(f"{what} are too slow to tell")


def main():
    if not shutil.which("strace"):
        skip("strace is not installed")
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "small.gguf")
        small_model(model)
        with Daemon("--threads", "1", "--front", "shared", "--spin-us", "1000000", model_file=model, context=4096) as daemon:
            daemon.ready()
            client = busy_client(daemon.socket)
            thread, file = engine_thread(daemon.process.pid), os.path.join(folder, "calls")

            def streams():
                ids = [client.submit(tokens=[i + 1, 2, 3], max_new=TOKENS) for i in range(STREAMS)]
                assert all(len(answer.tokens) == TOKENS for answer in client.finish(ids))

            def echoes():
                for i in range(ECHOES):
                    assert client.run(tokens=[i % 300], op=ECHO).tokens == [i % 300]

            streams()
            check("tokens", STREAMS * TOKENS, lambda: traced(thread, file, streams))
            check("echoes", ECHOES, lambda: traced(thread, file, echoes))
            client.close()


main()
