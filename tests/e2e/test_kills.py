#!/usr/bin/env python3
"""200 SIGKILLs of clients at random while others run: no other answer changes, and everything comes back."""
import os
import random
import time

from tokenring_e2e import Client, Daemon, ECHO, eventually, join, kill, requests, spawn

KILLS, VICTIMS, ROUNDS = 200, 4, 8


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


def main():
    random.seed(1)
    known = requests(8)
    with Daemon("--max-batch-sequences", "16") as daemon:
        daemon.ready()
        client = Client(daemon.socket)
        alone = [client.run(**request).bits() for request in known]
        before = daemon.resources()
        print(before)
        stop = f"{daemon.folder.name}/stop"
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        witnesses = [spawn(witness, daemon.socket, known[i::2], alone[i::2], stop, writer) for i in range(2)]
        victims = [spawn(victim, daemon.socket) for _ in range(VICTIMS)]
        kills = rounds = 0
        end = time.monotonic() + 120
        while kills < KILLS or (rounds < ROUNDS and time.monotonic() < end):
            time.sleep(random.uniform(0, 0.05 if kills < KILLS else 0.5))
            kills += 1
            rounds += rounds_in(reader)
            i = random.randrange(VICTIMS)
            kill(victims[i])
            victims[i] = spawn(victim, daemon.socket)
        for pid in victims:
            kill(pid)
        open(stop, "w").close()
        join(witnesses)
        eventually("channels end", lambda: client.status()["channels"]["open"] == 1)
        eventually("requests end", lambda: client.status()["requests"]["in_flight"] == 0)
        eventually("KV blocks return", lambda: client.status()["kv"]["used"] == 0)
        eventually("files, mappings and huge pages return", lambda: daemon.resources() == before)
        print(f"{kills} kills, {rounds} rounds of the witnesses", client.status()["channels"])
        assert rounds >= ROUNDS
        assert [client.run(**request).bits() for request in known] == alone
        client.close()


main()
