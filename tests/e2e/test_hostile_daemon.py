#!/usr/bin/env python3
"""Clients that write garbage everywhere beside honest ones whose every answer must have its bits and its time.

    test_hostile_daemon.py SECONDS [SEED]

The hostile ones are users of their own where this runs as root: then they run into every limit, while the honest ones
never do.  Afterwards the daemon holds what it held before, and it ends in good order: nothing leaked, nothing that a
sanitizer had to say."""
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tokenring_e2e import BUILD, SOURCE, Daemon, skip

HOSTILE_UIDS, DENIED_UID = [4321, 4322], 4323
HONEST = 2
TESTS = BUILD / "tests" / "e2e"
MEMORY_SLACK_KIB = 32 << 10
FLAGS = ["--access", "listed", "--allowed-uids", ",".join(map(str, HOSTILE_UIDS)), "--socket-mode", "0666",
         "--max-inflight", "32", "--sq-slots", "64", "--cq-slots", "128", "--arena-bytes", "256K", "--client-stall-ms", "200",
         "--map-timeout-ms", "200", "--threads", "1"]
ROOT = os.getuid() == 0
# Limits that a hostile user reaches; where all are one user they would meet the honest ones too.
FLAGS += ["--max-clients", "64", "--max-clients-per-uid", "16", "--max-half-open-per-uid", "6", "--memory-per-uid", "128M",
          "--max-queue", "64", "--max-queue-per-uid", "24"] if ROOT else [
          "--max-clients", "256", "--max-clients-per-uid", "256", "--memory-per-uid", "16G", "--max-queue-per-uid", "1024"]


def make_model(folder):
    python = next((p for p in ("python3", "/usr/bin/python3") if subprocess.run(
        [p, "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode == 0), None)
    if not python:
        skip("no python3 with numpy (Debian: python3-numpy)")
    path = Path(folder) / "small.gguf"
    subprocess.run([python, SOURCE / "tools" / "make-model", path, "--seed", "5", "--type", "Q8_0"], check=True)
    return path


def status(daemon):
    done = subprocess.run([BUILD / "tools" / "tokenring", "status", "--json", "--socket", daemon.socket],
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def anonymous_kib(daemon):
    text = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon"))


def hostile(daemon, number, seed, seconds):
    user = {"user": HOSTILE_UIDS[number], "group": HOSTILE_UIDS[number], "extra_groups": []} if ROOT else {}
    return subprocess.Popen([TESTS / "hostile_client", daemon.socket, str(seed + number), str(seconds)],
                            stdout=subprocess.PIPE, text=True, **user)


def denied(daemon, seconds):
    """Another user, who may not connect, connects without end."""
    if not ROOT:
        return None
    return subprocess.Popen([TESTS / "hostile_client", daemon.socket, "1", str(seconds)], stdout=subprocess.PIPE, text=True,
                            user=DENIED_UID, group=DENIED_UID, extra_groups=[])


def honest(daemon):
    process = subprocess.Popen([TESTS / "honest_client", daemon.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    assert process.stdout.readline() == "alone\n", "the honest client cannot run alone"
    return process


def finish(process, what):
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, f"{what}: exit status {process.returncode}"
    return json.loads(output.splitlines()[-1])


def check_counters(now, ends, refusals, log):
    """What they lost is counted by its reason, and said."""
    for reason in ("BAD_CONTROL", "ID_ORDER", "BAD_CONSUMED", "PEER_GONE"):
        assert ends.get(reason), f"no channel ended for {reason}: {ends}"
    for reason in ("BAD_BLOCK", "BAD_TLV", "BAD_PADDING", "NOT_SUPPORTED", *["USER_QUEUE"] * ROOT):
        assert refusals.get(reason), f"no request was refused for {reason}: {refusals}"
    assert sum(ends.values()) == now["channels"]["ended"]
    assert sum(refusals.values()) == now["requests"]["refused"]
    assert "a control message is malformed" in log and "requests of a channel of process" in log
    if ROOT:
        assert now["channels"]["refused_by_reason"].get("USER_DENIED"), "nobody was denied"


def held(daemon):
    """What must come back."""
    now = status(daemon)
    return {"channels": now["channels"]["open"] - 1, "requests": now["requests"]["in_flight"], "KV blocks": now["kv"]["used"],
            **daemon.resources()}


def attack(daemon, seconds, seed):
    time.sleep(0.3)
    before = held(daemon)
    friends = [honest(daemon) for _ in range(HONEST)]
    kib = anonymous_kib(daemon)
    for friend in friends:
        friend.stdin.write("go\n")
        friend.stdin.flush()
    enemies = [hostile(daemon, i, seed, seconds) for i in range(len(HOSTILE_UIDS))]
    stranger = denied(daemon, seconds)
    for enemy in enemies + [stranger] * bool(stranger):
        output, _ = enemy.communicate(timeout=seconds + 120)
        print("hostile:", output.strip())
        assert enemy.returncode == 0, f"exit status {enemy.returncode}; 3: something succeeded that must be impossible"
    assert daemon.process.poll() is None, f"the daemon died: {daemon.output()}"
    for friend in friends:
        print("honest:", finish(friend, "an honest client"))
    end = time.monotonic() + 20
    while held(daemon) != before:
        assert time.monotonic() < end, f"not all came back: {before} before, {held(daemon)} after"
        time.sleep(0.1)
    print(f"before and after: {before}; anonymous memory {kib} and {anonymous_kib(daemon)} KiB")
    assert anonymous_kib(daemon) < kib + MEMORY_SLACK_KIB, "the daemon's memory grew"
    return status(daemon)


def main():
    seconds = int(sys.argv[1])
    seed = int(sys.argv[2], 0) if len(sys.argv) > 2 else secrets.randbits(32)
    print(f"seed {seed:#x}: test_hostile_daemon.py {seconds} {seed:#x} begins the same again", flush=True)
    os.environ["ASAN_OPTIONS"] = "quarantine_size_mb=8:detect_leaks=1:abort_on_error=0"
    os.environ["UBSAN_OPTIONS"] = "print_stacktrace=1"
    with tempfile.TemporaryDirectory(prefix="tokenring-model-") as folder, \
            Daemon(*FLAGS, model_file=make_model(folder)) as daemon:
        os.chmod(daemon.folder.name, 0o711)
        daemon.ready(300)
        now = attack(daemon, seconds, seed)
        print("channels", now["channels"], "requests", now["requests"])
        daemon.signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0, f"the daemon ended badly: {daemon.output()}"
        log = daemon.output()
    for word in ("Sanitizer", "runtime error"):
        assert word not in log, log
    check_counters(now, now["channels"]["ended_by_reason"], now["requests"]["refused_by_reason"], log)


main()
