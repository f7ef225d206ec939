#!/usr/bin/env python3
"""SIGKILLs of clients at random instants while others run: no other answer changes, and everything that a victim held
comes back within a step and 10 ms.

usage: test_kills.py KILLS

A kill's time runs from just before kill(2) to the daemon's own note that the last of the process's requests, KV blocks,
mappings, descriptors and charged memory is back (`ended_processes` in its status), both on CLOCK_MONOTONIC.
"""
import os
import random
import sys
import time

from tokenring_e2e import Client, Daemon, ECHO, eventually, join, kill, now, percentiles, requests, spawn

VICTIMS, WITNESSES, ROUNDS = 4, 3, 8
BOUND_MS = 10


def victim(socket):
    """Does what clients do, until it is killed: at any instant, the set-up included."""
    while True:
        client = Client(socket)
        for request in random.sample(requests(32), 3):
            client.submit(**request)
        client.submit([1, 2, 3], op=ECHO)
        for _ in range(random.randrange(20)):
            client.wait(0.01)
        client.close()


def witness(socket, mine, alone, stop, pipe):
    """Runs known requests until the file `stop` appears."""
    client = Client(socket)
    while not os.path.exists(stop):
        answers = client.finish([client.submit(**request) for request in mine])
        assert [answer.bits() for answer in answers] == alone, "an answer changed"
        os.write(pipe, b"r")
    client.close()


def rounds_in(pipe):
    try:
        return len(os.read(pipe, 4096))
    except BlockingIOError:
        return 0


class Kills:
    """When processes were killed, and when the daemon had back what they held."""

    def __init__(self, client):
        self.client, self.killed, self.returned, self.busy, self.steps = client, {}, {}, 0, set()

    def kill(self, pid):
        self.killed[pid] = now()
        kill(pid)
        status = self.look()
        self.busy += status["requests"]["in_flight"] > 0

    def look(self):
        status = self.client.status()
        self.steps.update(map(tuple, status["steps"]["last"]))
        for ended in status["ended_processes"]:
            at = self.returned.get(ended["pid"], 0)
            self.returned[ended["pid"]] = max(at, ended["returned_ns"])
        return status

    def step_ms(self, at):
        """The step that ran at this time, or the first one after it; 0: there was none."""
        after = [step for step in self.steps if step[0] > at]
        return min(after)[1] / 1e6 if after else 0

    def times_ms(self):
        """(until all is back, the same without a step) for each. A victim that was killed before its first channel has
        nothing to give back."""
        times = []
        for pid, at in self.killed.items():
            if pid in self.returned:
                took = (self.returned[pid] - at) / 1e6
                times.append((took, took - self.step_ms(at)))
        return times


def report(kills, rounds, status):
    times, beyond = zip(*kills.times_ms())
    steps = status["steps"]
    longest_ms = steps["longest_ns"] / 1e6
    print(f"{len(kills.killed)} kills, {kills.busy} of them with requests in flight, {len(times)} with channels, "
          f"{rounds} rounds of the witnesses; "
          f"a step takes {steps['busy_ns'] / steps['count'] / 1e6:.2f} ms, the longest took {longest_ms:.2f} ms")
    for what, values in [("until all is back", times), ("beyond the step of that moment", beyond)]:
        print("ms %s: p50 %.2f, p99 %.2f, max %.2f" % (what, *percentiles(values, [50, 99, 100])))
    return percentiles(times, [99])[0], longest_ms


def run(daemon, client, wanted):
    known = requests(9)
    alone = [client.run(**request).bits() for request in known]
    before = daemon.resources()
    print(before)
    stop = f"{daemon.folder.name}/stop"
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    witnesses = [spawn(witness, daemon.socket, known[i::WITNESSES], alone[i::WITNESSES], stop, writer)
                 for i in range(WITNESSES)]
    victims = [spawn(victim, daemon.socket) for _ in range(VICTIMS)]
    kills, rounds, end = Kills(client), 0, time.monotonic() + 120
    kills.look()
    while len(kills.killed) < wanted or (rounds < ROUNDS and time.monotonic() < end):
        time.sleep(random.uniform(0, 0.05 if len(kills.killed) < wanted else 0.5))
        rounds += rounds_in(reader)
        i = random.randrange(VICTIMS)
        kills.kill(victims[i])
        victims[i] = spawn(victim, daemon.socket)
    for pid in victims:
        kills.kill(pid)
    open(stop, "w").close()
    join(witnesses)
    rounds += rounds_in(reader)
    eventually("channels end", lambda: client.status()["channels"]["open"] == 1)
    eventually("requests end", lambda: client.status()["requests"]["in_flight"] == 0)
    eventually("KV blocks return", lambda: client.status()["kv"]["used"] == 0)
    eventually("files, mappings and huge pages return", lambda: daemon.resources() == before)
    assert rounds >= ROUNDS
    assert [client.run(**request).bits() for request in known] == alone
    return kills, rounds


def main():
    random.seed(1)
    wanted = int(sys.argv[1])
    with Daemon("--max-batch-sequences", "16") as daemon:
        daemon.ready()
        client = Client(daemon.socket)
        kills, rounds = run(daemon, client, wanted)
        p99, longest_ms = report(kills, rounds, kills.look())
        assert len(kills.times_ms()) > wanted / 2, "most victims had a channel"
        # A busy machine lengthens the longest step as it lengthens the way back.
        assert p99 < longest_ms + BOUND_MS, (p99, longest_ms)
        client.close()


main()
