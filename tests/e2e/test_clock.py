#!/usr/bin/env python3
"""Somebody sets the time of day, all the time: neither the daemon nor the library cares.

This process and the daemon run with wild_clock.c preloaded; what it expects is measured by CLOCK_MONOTONIC.
"""
import os
import signal
import sys
import time

from tokenring_e2e import BUILD, Client, Daemon, DEADLINE, ECHO, LENGTH, SHUTDOWN

CLOCK = BUILD / "tests" / "e2e" / "libwild_clock.so"


def main():
    looks = [time.time() for _ in range(4)]
    assert max(looks) - min(looks) > 15 * 365 * 86400, "the clock is not wild"
    with Daemon("--drain-ms", "500") as daemon:
        daemon.ready()
        client = Client(daemon.socket)
        assert client.run(tokens=[1, 2, 3], op=ECHO, deadline_ms=60000).tokens == [1, 2, 3]
        assert client.run(tokens=[1, 2, 3], max_new=5, deadline_ms=60000).finish == LENGTH
        late = client.run(tokens=[1, 2, 3], max_new=500, deadline_ms=300)
        assert late.finish == DEADLINE and 0 < len(late.tokens) < 500, late.bits()
        began = time.monotonic()
        assert client.wait(2.5) == 0  # the heartbeat stays fresh
        assert 2.5 <= time.monotonic() - began < 10
        client.reconnect()
        endless = client.submit(tokens=[1, 2, 3], max_new=500)
        client.wait(5)
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert client.finish([endless])[0].finish == SHUTDOWN
        assert daemon.process.wait(timeout=20) == 0
        assert 0.4 < time.monotonic() - began < 10
        client.close()


if os.environ.get("LD_PRELOAD") != str(CLOCK):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_PRELOAD": str(CLOCK)})
main()
