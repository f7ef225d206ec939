#!/usr/bin/env python3
"""Eight processes with four requests each at once: every answer equals its answer alone, bit for bit."""
import sys

from tokenring_e2e import Client, Daemon, join, requests, spawn

PROCESSES, EACH = 8, 4


def together(socket, mine, alone):
    client = Client(socket)
    for _ in range(2):
        answers = client.finish([client.submit(**request) for request in mine])
        for answer, expected in zip(answers, alone):
            assert answer.bits() == expected, f"{answer.bits()} is not {expected}"
    client.close()


def main(flags):
    all_requests = requests(PROCESSES * EACH)
    with Daemon("--max-batch-sequences", "24", *flags) as daemon:
        daemon.ready()
        client = Client(daemon.socket)
        alone = [client.run(**request).bits() for request in all_requests]
        assert len(set(alone)) > PROCESSES * EACH - 4, "the answers are different ones"
        before = client.status()["steps"]
        assert before["rows"] >= before["count"]
        join([spawn(together, daemon.socket, all_requests[i::PROCESSES], alone[i::PROCESSES]) for i in range(PROCESSES)])
        after = client.status()
        steps = after["steps"]["count"] - before["count"]
        print(f"{steps} steps for what took {before['count']} alone")
        assert steps < before["count"], "the requests shared steps"
        assert after["kv"]["used"] == 0
        client.close()


main(sys.argv[1:])
