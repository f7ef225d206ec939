#!/usr/bin/env python3
"""Clients with a quarter of a gigabyte mapped in ordinary pages come and go, by closing and by dying: the echo of another
client waits for none of it.

How long an echo takes at worst depends on the machine and what else it does; how long the kernel takes to free so much
memory is measured beside it. Had the echo to wait for that, then at each leaving one would take that long: the median of
the longest echo of each leaving stays below a quarter of it.
"""
import mmap
import os
import signal
import statistics
import time

from tokenring_e2e import Client, Daemon, ECHO, eventually, join, now, spawn

ARENA_BYTES, ROUNDS, WINDOW_S, LONG_NS = 256 << 20, 12, 0.3, 1000000


def witness(socket, stop, pipe):
    """Echoes without a pause; says when each long one ended and how long it took."""
    client = Client(socket)
    while not os.path.exists(stop):
        began = now()
        client.run(tokens=[1, 2, 3], op=ECHO)
        ended = now()
        if ended - began > LONG_NS:
            os.write(pipe, f"{ended} {ended - began}\n".encode())
    client.close()


def leaver(socket, dies, pipe):
    client = Client(socket)
    client.run(tokens=[1], op=ECHO)
    os.write(pipe, b"r")
    time.sleep(WINDOW_S)
    os.write(pipe, str(now()).encode().rjust(20))
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    client.close()
    time.sleep(WINDOW_S)


def free_ns():
    """What it costs to free as much memory."""
    memory = mmap.mmap(-1, ARENA_BYTES)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    memory.madvise(23)  # MADV_POPULATE_WRITE
    began = now()
    memory.close()
    return now() - began


def leave(socket, client, dies):
    """When a large client left: its channel is gone when this returns."""
    reader, writer = os.pipe()
    pid = spawn(leaver, socket, dies, writer)
    assert os.read(reader, 1) == b"r"
    left = int(os.read(reader, 20))
    os.waitpid(pid, 0)
    eventually("the channel ends", lambda: client.status()["channels"]["open"] == 2)
    time.sleep(WINDOW_S / 2)
    os.close(reader)
    os.close(writer)
    return left


def longest(echoes, start, end):
    return max([took for ended, took in echoes if start <= ended and ended - took <= end], default=LONG_NS)


def read_all(reader):
    os.set_blocking(reader, False)
    text = b""
    try:
        while part := os.read(reader, 1 << 16):
            text += part
    except BlockingIOError:
        pass
    return [tuple(map(int, line.split())) for line in text.splitlines()]


def run(daemon):
    client, stop, (reader, writer) = Client(daemon.socket), f"{daemon.folder.name}/stop", os.pipe()
    pid = spawn(witness, daemon.socket, stop, writer)
    eventually("both have channels", lambda: client.status()["channels"]["open"] == 2)
    costs, left = [], []
    for i in range(ROUNDS):
        costs.append(free_ns())
        left.append(leave(daemon.socket, client, i % 2))
    open(stop, "w").close()
    join([pid])
    client.close()
    return statistics.median(costs), left, read_all(reader)


def main():
    with Daemon("--arena-bytes", str(ARENA_BYTES), "--huge-pages", "never", "--max-clients", "8", "--memory-per-uid", "16G",
                "--max-inflight", "8") as daemon:
        daemon.ready()
        cost, left, echoes = run(daemon)
    window = int(WINDOW_S * 0.45e9)
    leaving = statistics.median(longest(echoes, at, at + window) for at in left)
    quiet = statistics.median(longest(echoes, at - window, at) for at in left)
    print(f"longest echo within {window / 1e6:.0f} ms, median of {ROUNDS}: {leaving / 1e6:.2f} ms after a leaving, "
          f"{quiet / 1e6:.2f} ms before it; the kernel frees so much memory in {cost / 1e6:.2f} ms")
    assert leaving < cost / 4 or leaving < 3 * quiet, (leaving, quiet, cost)


main()
