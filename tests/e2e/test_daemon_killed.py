#!/usr/bin/env python3
"""SIGKILLs of the daemon at random instants: every call of every client returns an error within 10 ms, clients reconnect
to the next daemon, and each request has an answer or an error, once.

usage: test_daemon_killed.py KILLS
"""
import collections
import ctypes
import errno
import os
import random
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

from tokenring_e2e import Client, Daemon, ECHO, join, now, percentiles, requests, spawn

LIMIT_MS, KNOWN = 10, 6


# ---- what clients are doing when the daemon dies: each runs until a call fails ----

def streams(client):
    while True:
        client.finish([client.submit([1, 2, 3], max_new=100) for _ in range(3)])


def sleeps(client):
    client.wait()


def echoes(client):
    while True:
        client.finish([client.submit([5], op=ECHO)])


def polls(client):
    client.submit([1, 2, 3], max_new=400)
    while True:
        client.poll()
        time.sleep(0.0005)


def arms(client):
    """An event loop: sleeps in epoll on the client's descriptor, for ever if nobody wakes it."""
    client.submit([1, 2, 3], max_new=50)
    with select.epoll() as loop:
        loop.register(client.fd(), select.EPOLLIN)
        while True:
            if client.arm() == 0:
                loop.poll()
            client.poll()


def asks(client):
    while True:
        client.status()


KINDS = [streams, sleeps, echoes, polls, arms, asks]


class Reports:
    """Lines that the clients write and the test reads: EVENT NUMBER."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        self.unread, self.heard = b"", collections.defaultdict(list)

    def say(self, event, number=0):
        os.write(self.writer, f"{event} {number}\n".encode())

    def hear(self, event, n):
        """The numbers of n reports of this event."""
        while len(self.heard[event]) < n:
            assert select.select([self.reader], [], [], 60)[0], f"{len(self.heard[event])} of {n} clients said '{event}'"
            *lines, self.unread = (self.unread + os.read(self.reader, 4096)).split(b"\n")
            for line in lines:
                word, number = line.decode().split()
                self.heard[word].append(int(number))
        numbers, self.heard[event] = self.heard[event][:n], self.heard[event][n:]
        return numbers


def persist(connect, stop):
    """Until it succeeds, or the test is over."""
    while not stop.exists():
        try:
            return connect() or True
        except OSError as error:
            # No socket, a dead one, or one whose daemon dies as we come.
            assert error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET), error
            time.sleep(0.005)
    return False


def expect_reset(call):
    try:
        call()
    except OSError as error:
        assert error.errno == errno.ECONNRESET, error
    else:
        raise AssertionError("a call on a dead channel succeeded")


def be_served(client, kind, request, alone):
    """Until the daemon dies; returns when that was heard."""
    heard = None
    while not heard:
        try:
            assert client.run(**request).bits() == alone, "an answer changed"
            kind(client)
        except OSError as error:
            heard = now() if error.errno == errno.ECONNRESET else None
            assert heard or error.errno == errno.EHOSTDOWN, error  # a busy machine lets the daemon wait for a CPU
    try:
        while client.poll():  # answers from before the death come first, those handed out already never
            pass
    except OSError:
        pass
    for call in [client.poll, client.arm, client.status, lambda: client.submit([1], op=ECHO), client.wait]:
        expect_reset(call)
    return heard


def live(socket, kind, known, alone, stop, reports):
    # What is measured is how soon the kernel and the library tell, not how long a busy machine lets clients wait.
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pass
    client = persist(lambda: Client(socket), stop)
    while True:
        reports.say("connected")
        i = random.randrange(KNOWN)
        reports.say("heard", be_served(client, kind, known[i], alone[i]))
        if not persist(client.reconnect, stop):
            return


def start(kill, socket):
    # A killed process's memory must not delay the news: a gigabyte in ordinary pages takes a tenth of a second to free.
    return Daemon("--max-batch-sequences", "16", "--kv-tokens", str(49152 if large(kill) else 2048), socket=socket)


def large(kill):
    return kill % 5 == 4


def kill_one(kill, socket, reports):
    """Milliseconds from the kill to each client's error."""
    with start(kill, socket) as daemon:
        reports.hear("connected", len(KINDS))
        time.sleep(random.uniform(0, 1))
        killed = now()
        daemon.signal(signal.SIGKILL)
        return [(heard - killed) / 1e6 for heard in reports.hear("heard", len(KINDS))]


def right_answers(socket, known):
    with start(0, socket) as daemon:
        daemon.ready()
        client = Client(socket)
        return [client.run(**request).bits() for request in known]


def run(kills, folder):
    """Times by whether the daemon held much memory."""
    socket, stop, known, times = folder / "socket", folder / "stop", requests(KNOWN), {False: [], True: []}
    alone, reports = right_answers(socket, known), Reports()
    clients = [spawn(live, socket, kind, known, alone, stop, reports) for kind in KINDS]
    for kill in range(kills):
        times[large(kill)] += kill_one(kill, socket, reports)
    stop.touch()
    join(clients)
    return times


def main():
    kills = int(sys.argv[1])
    random.seed(1)
    PR_SET_THP_DISABLE = 41  # inherited by the daemons
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="tokenring-e2e-") as folder:
        times = run(kills, Path(folder))
    for much, values in times.items():
        print(f"{'a gigabyte' if much else '45 MiB'} of KV cache in ordinary pages: ms until the error: "
              "p50 %.2f, p99 %.2f, max %.2f" % tuple(percentiles(values, [50, 99, 100])))
        # Not the maximum: a busy machine may let a process wait.
        assert percentiles(values, [50])[0] < LIMIT_MS and percentiles(values, [90])[0] < 10 * LIMIT_MS, values


main()
