#!/usr/bin/env python3
"""Front and engine on one thread or two: the same answers, and neither allocates after the start.

The allocation guard is preloaded: a thread that allocates in its loop aborts the daemon. First the guard itself is
seen to work.
"""
import os
import signal
import time

from tokenring_e2e import BUILD, Client, Daemon, ECHO, kill, requests, spawn

GUARD = BUILD / "tests" / "e2e" / "liballocation_guard.so"


def abandoned(socket):
    client = Client(socket)
    for request in requests(8):
        client.submit(**request)
    time.sleep(60)


def exercise(socket):
    """All kinds of requests, cancels, a deadline, and a client that dies; the answers' bits."""
    client = Client(socket)
    bits = [answer.bits() for answer in client.finish([client.submit(**request) for request in requests(24)])]
    cancelled = client.submit([1, 2, 3], max_new=400)
    client.wait(0.1)
    client.lib.tr_cancel(client.handle, cancelled)
    client.finish([cancelled])
    client.run(tokens=[3, 4], max_new=300, deadline_ms=100)
    client.run(tokens=[3, 4], op=ECHO)
    victim = spawn(abandoned, socket)
    time.sleep(0.5)
    kill(victim)
    assert [answer.bits() for answer in client.finish([client.submit(**request) for request in requests(24)])] == bits
    client.close()
    return bits


def run(front):
    with Daemon("--front", front, "--threads", "1", preload=GUARD) as daemon:
        daemon.ready()
        bits = exercise(daemon.socket)
        assert Client(daemon.socket).status()["front"] == ("own thread" if front == "own" else "engine's thread")
        daemon.signal(signal.SIGTERM)
        assert daemon.process.wait(timeout=15) == 0, daemon.output()
    return bits


def main():
    os.environ["TOKENRING_TRIP_GUARD"] = "1"
    with Daemon(preload=GUARD) as daemon:
        assert daemon.process.wait(timeout=20) == -signal.SIGABRT, daemon.output()
        assert "allocation guard: a thread allocates" in daemon.output()
    del os.environ["TOKENRING_TRIP_GUARD"]
    assert run("shared") == run("own")


main()
