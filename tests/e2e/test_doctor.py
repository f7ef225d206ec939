#!/usr/bin/env python3
"""tokenring doctor on this machine and on a small tree: lines, objects and exit codes, with and without a daemon."""
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

BUILD = Path(os.environ["TOKENRING_BUILD_ROOT"])
ITEMS = ["kernel", "clock", "hypervisor", "gaps", "governor", "energy-preference", "idle-states", "smt", "isolated-cpus",
         "interrupts", "mitigations", "thp", "huge-pages-2m", "huge-pages-1g", "numa-balancing", "swap", "cgroup-cpu",
         "cgroup-memory", "cpuset", "memlock", "nofile", "socket", "daemon"]


def doctor(*arguments, socket="/nowhere/socket"):
    done = subprocess.run([BUILD / "tools" / "tokenring", "doctor", *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "TOKENRING_SOCKET": str(socket)})
    return done.returncode, done.stdout, done.stderr


def findings(*arguments, **where):
    code, output, errors = doctor("--json", *arguments, **where)
    assert not errors, errors
    found = [json.loads(line) for line in output.splitlines()]
    assert [one["item"] for one in found] == ITEMS
    assert all(sorted(one) == ["cost", "fix", "found", "item", "state"] for one in found)
    assert code == any(one["state"] in ("costs", "wrong") for one in found), (code, output)
    return {one["item"]: one for one in found}


def test_this_machine():
    found = findings()
    assert os.uname().release in found["kernel"]["found"]
    spun = re.search(r" in (\d+) ms on CPU \d+", found["gaps"]["found"])
    assert spun and int(spun[1]) >= 200, found["gaps"]  # more if the CPU was away when the time was over
    assert re.search(r", \d+ ns a read$", found["clock"]["found"]), found["clock"]
    cpus = len(os.sched_getaffinity(0))
    if cpus == os.cpu_count() and cpus > 1:
        assert found["cpuset"]["found"] == f"all {cpus} CPUs", found["cpuset"]
    assert found["socket"] == {"item": "socket", "state": "note", "found": "/nowhere/socket: No such file or directory",
                               "cost": "", "fix": ""}
    assert found["daemon"]["state"] == "note" and "systemctl start" in found["daemon"]["fix"]
    for one in found.values():
        assert one["state"] != "costs" or one["cost"] and one["fix"], one


def test_lines_for_people():
    code, output, errors = doctor()
    lines = output.splitlines()
    assert code in (0, 1) and not errors
    heads = [line for line in lines[:-1] if not line.startswith(" ")]
    assert [line[9:27].strip() for line in heads] == ITEMS, output
    assert {line[:8].strip() for line in heads} <= {"ok", "note", "unknown", "costs", "wrong"}
    assert re.fullmatch(r"\d+ ok, \d+ notes?, \d+ unknown, \d+ costs? latency, \d+ wrong", lines[-1])


def test_a_tree_decides_the_exit_code():
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, "sys/kernel/mm/transparent_hugepage")
        folder.mkdir(parents=True)
        isolated = Path(root, "sys/devices/system/cpu")
        isolated.mkdir(parents=True)
        (isolated / "isolated").write_text("1\n")
        (isolated / "nohz_full").write_text("1\n")
        (folder / "enabled").write_text("always [madvise] never\n")
        assert {one["state"] for one in findings("--root", root).values()} <= {"ok", "note", "unknown"}
        os.mkfifo(isolated / "online")  # must not hang it
        os.mkfifo(folder / "defrag")
        Path(root, "dev").mkdir()
        os.mkfifo(Path(root, "dev/cpu_dma_latency"))
        os.mkfifo(Path(root, "sys/devices/system/cpu/possible"))
        (folder / "enabled").write_text("always madvise [never]\n")
        found = findings("--root", root)
        assert [item for item in ITEMS if found[item]["state"] == "costs"] == ["thp"]
        assert found["gaps"]["state"] == found["daemon"]["state"] == "unknown"


def test_usage():
    assert doctor("--loud")[0] == 2 and doctor("extra")[0] == 2
    code, output, errors = doctor("--root", "/nowhere")
    assert code == 1 and not output and "cannot read /nowhere" in errors


def test_a_daemon_of_another_version():
    with subprocess.Popen([BUILD / "tests" / "e2e" / "cli_daemon"], stdout=subprocess.PIPE, text=True) as daemon:
        try:
            socket = daemon.stdout.readline().strip()
            found = findings("--socket", socket)
            assert found["socket"]["state"] == "ok", found["socket"]
            assert found["daemon"]["state"] == "wrong" and "version unknown" in found["daemon"]["found"], found["daemon"]
        finally:
            daemon.terminate()
    stale = findings("--socket", socket)["daemon"] if os.path.exists(socket) else None
    assert stale is None or (stale["state"] == "wrong" and "Connection refused" in stale["found"]), stale


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(f"ok: {name[5:].replace('_', ' ')}")
