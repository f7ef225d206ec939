#!/usr/bin/env python3
"""Embeddings of a real model: those of transformers, and the same bits whatever computes them and beside whatever."""
import base64
import json
import os
import re
import struct
import subprocess
from pathlib import Path

from tokenring_e2e import BUILD, EMBED, SOURCE, Client, Daemon, join, model, spawn

# In f32 both add up hundreds of products a layer, in another order: 3.2e-6 at most was seen. int8 rounds activations to
# 8 bits before each product: 3.5e-2.
TOLERANCE = {"ref-f32": 2e-5, "cpu": 7e-2}
GOLDEN = json.loads((SOURCE / "tests/golden/embedding.json").read_text())


def cli(daemon, *words, code=0):
    done = subprocess.run([BUILD / "tools/tokenring", *words, "--socket", daemon.socket], capture_output=True, text=True)
    assert done.returncode == code, f"{words} exits with {done.returncode}: {done.stderr}"
    return done.stdout if code == 0 else done.stderr


def all_texts(daemon, pool, texts):
    return cli(daemon, "embed", "--json", "--pool", pool, *texts)


def floats(packed):
    raw = base64.b64decode(packed)
    return struct.unpack(f"<{len(raw) // 4}f", raw)


def distance(a, b):
    return (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b)) ** 0.5


def check_golden(path, backend):
    items = GOLDEN[path.name]
    with Daemon(model_file=path, backend=backend) as daemon:
        daemon.ready()
        for pool in ["last", "mean"]:
            lines = all_texts(daemon, pool, [item["text"] for item in items]).splitlines()
            assert len(lines) == len(items)
            for line, item in zip(map(json.loads, lines), items):
                wanted = floats(item[pool])
                assert line["tokens"] == len(item["ids"]) and line["pool"] == pool
                assert len(line["embedding"]) == len(wanted)
                found = distance(line["embedding"], wanted)
                print(f"{path.name}, {backend}, {line['tokens']} tokens, {pool}: off by {found:.1e}")
                assert found < TOLERANCE[backend]


def embed_forever(socket, expected):
    client = Client(socket)
    tokens = [item["ids"] for item in GOLDEN[model().name]] * 2
    for _ in range(3):
        for pool in [0, 1]:
            answers = client.finish([client.submit(tokens=one, op=EMBED, pool=pool, room=576) for one in tokens])
            assert [answer.records for answer in answers] == [expected[pool][i % 3] for i in range(len(tokens))]
    client.close()


def generate_beside(socket):
    client = Client(socket)
    client.finish([client.submit(tokens=[5, 6, 7 + i], max_new=60, temperature=0.5 * (i % 2)) for i in range(6)])
    client.close()


def check_bits():
    texts = [item["text"] for item in GOLDEN[model().name]]
    seen = set()
    for flags in [{"rows": 512}, {"rows": 7, "flags": ["--threads", "1"]}, {"rows": 50, "flags": ["--isa", "generic"]},
                  {"rows": 512, "backend": "ref-int8"}]:
        extra = flags.pop("flags", [])
        with Daemon(*extra, "--max-batch-sequences", "6", **flags) as daemon:
            daemon.ready()
            seen.add(tuple(all_texts(daemon, pool, texts) for pool in ["last", "mean"]))
            assert len(seen) == 1, f"{flags} {extra} gives other bits"
    return [[struct.pack("<576f", *json.loads(line)["embedding"]) for line in lines.splitlines()] for lines in seen.pop()]


def check_company(expected):
    with Daemon("--max-batch-sequences", "12", rows=32) as daemon:
        daemon.ready()
        join([spawn(embed_forever, daemon.socket, expected) for _ in range(2)] + [spawn(generate_beside, daemon.socket)])


def check_faults():
    with Daemon(context=64) as daemon:
        daemon.ready()
        assert re.search(r"longer than .*\(\d+ asked, the limit is 64\)", cli(daemon, "embed", "one two " * 80, code=1))
        assert "without tokens" in cli(daemon, "embed", "", code=1)
        assert "last or mean" in cli(daemon, "embed", "--pool", "max", "text", code=2)
        words = cli(daemon, "embed", "one", "two").split("\n")
        assert len(words) == 3 and [len(line.split()) for line in words] == [576, 576, 0]
        client = Client(daemon.socket)
        answer = client.run(tokens=[1, 2, 3], op=EMBED, room=575)
        assert answer.refused and answer.reason == 11, answer.reason  # BAD_REPLY
        assert len(client.run(tokens=[1, 2, 3], op=EMBED, room=576).records) == 4 * 576
        client.close()


def main():
    gemma = Path(os.environ["TOKENRING_TEST_MODELS"]) / "gemma-3-270m-q4_k_m.gguf" if model() else None
    for path in [model(), gemma]:
        if not path.exists():
            print(f"not compared: there is no {path.name} (tools/fetch-model gemma3)")
            continue
        for backend in TOLERANCE:
            check_golden(path, backend)
    check_company(check_bits())
    check_faults()


main()
