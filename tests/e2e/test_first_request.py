#!/usr/bin/env python3
"""The first request of a daemon that is ready pays for nothing that the second does not pay for: the kernel counts the page faults
of the threads that serve it. Kinds of requests that the warm-up has not run are among them.
"""
from pathlib import Path

from tokenring_e2e import Client, Daemon, SCORE

ROWS, STREAMS, TRIES = 512, 32, 3
SERVING = ("engine", "worker", "front")


def faults(daemon):
    """Of each thread that serves, the minor and major ones so far."""
    counts = {}
    for task in Path(f"/proc/{daemon.process.pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        if name in SERVING:
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            counts[f"{name} {task.name}"] = int(fields[7]) + int(fields[9])
    return counts


def full_steps(client):
    assert len(client.run(tokens=[i * 7 % 40000 for i in range(3 * ROWS)], max_new=4).tokens) == 4


def crowd(client):
    ids = [client.submit(tokens=[i + 1] * 40, max_new=8, temperature=0.7, top_k=40, top_p=0.9, penalty=1.1, seed=i, logprobs=3)
           for i in range(STREAMS)]
    assert all(len(answer.tokens) == 8 for answer in client.finish(ids))


def score(client):
    client.run(tokens=[1, 2, 3], op=SCORE, candidates=[5, 6, 7], max_new=0)


def extra_faults(*flags):
    """What first requests took more than second ones, by thread and kind; what others do to memory may be among it."""
    extra = {}
    with Daemon("--max-step-us", "60000000", *flags, rows=ROWS, context=4 * ROWS) as daemon:
        daemon.ready()
        client = Client(daemon.socket)
        for work in (full_steps, crowd, score):
            seen = [faults(daemon)]
            for _ in range(2):
                work(client)
                seen.append(faults(daemon))
            assert len(seen[0]) >= 2, "the engine and a worker or the front serve"
            for thread in seen[0]:
                first, second = (after[thread] - before[thread] for before, after in zip(seen, seen[1:]))
                if first > second:
                    extra[f"{work.__name__}, {thread.split()[0]}"] = first - second
        client.close()
    return extra


def main():
    for flags in (["--threads", "2"], ["--threads", "1", "--front", "own"], ["--threads", "2", "--huge-pages", "never"]):
        found = [extra_faults(*flags)]
        while found[-1] and len(found) < TRIES:
            found.append(extra_faults(*flags))
        print(f"{' '.join(flags)}: {found[-1] or 'none'}" + f" in try {len(found)}" * (len(found) > 1), flush=True)
        assert not found[-1], f"each time the first request took page faults that the second did not: {found}"


main()
