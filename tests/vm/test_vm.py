#!/usr/bin/env python3
"""Plan and reality on a real kernel with two nodes: what `tokenring status --topology` says is compared with what the
kernel's own files say in the same machine, and both with where things must be.

The expected places follow from the machine (machine.py) and the rules of numa/plan.h: node 1 has more memory, so that
threads begin there.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import machine

SOURCE = Path(os.environ["TOKENRING_SOURCE_ROOT"])
BUILD = Path(os.environ["TOKENRING_BUILD_ROOT"])
SHAPE = ["--layers", "2", "--width", "256", "--heads", "4", "--kv-heads", "4", "--ffn", "4096", "--vocab", "16384", "--context", "512"]
PAGE = 2 << 20
MAPPED_BY_US = re.compile(r"^\w+ (?:bind|prefer|interleave)[:=]")


def sections(console):
    """{title: text}"""
    parts = re.split(r"^@@ (.*)$", console, flags=re.M)
    return dict(zip(parts[1::2], (text.strip("\n") for text in parts[2::2])))


class Scene:
    """What was seen of one daemon."""

    def __init__(self, found, name):
        self.name = name
        self.log, self.text = found[f"{name} log"], found[f"{name} text"]
        self.said = json.loads(found[f"{name} json"])
        self.status = json.loads(found[f"{name} status"])
        self.free, self.used = ([int(word) for word in found[f"{name} {when}"].split()] for when in ("free", "used"))
        self.threads = dict(line.rsplit(" ", 1) for line in found[f"{name} threads"].splitlines())
        self.seen = set(found[f"{name} seen"].splitlines())
        self.workers = sorted(line.split()[1] for line in found[f"{name} threads"].splitlines() if line.startswith("worker "))
        self.maps = [line for line in found[f"{name} numa_maps"].splitlines() if MAPPED_BY_US.match(line)]
        self.memory = {line["name"]: line for line in self.said["memory"]}
        self.lines = {line["name"]: line for line in self.said["threads"]}
        self.ended = f"{name} end 0" in found

    def taken(self, node, size=0):
        """Reserved pages of a node that the daemon holds; size 0: 2 MiB, 1: 1 GiB."""
        return self.free[2 * size + node] - self.used[2 * size + node]

    def kernel_bytes(self):
        """By node, from numa_maps: all memory that has a policy of its own."""
        total = {0: 0, 1: 0}
        for line in self.maps:
            page = int(re.search(r"kernelpagesize_kB=(\d+)", line + " kernelpagesize_kB=4").group(1)) * 1024
            for node, count in re.findall(r" N(\d)=(\d+)", line):
                total[int(node)] += int(count) * page
        return total

    def said_bytes(self, *names):
        total = {0: 0, 1: 0}
        for name in names or self.memory:
            for place in self.memory[name]["on_nodes"]:
                total[place["node"]] += place["bytes"]
        return total

    def expect(self, what, holds):
        if not holds:
            raise AssertionError(f"{self.name}: {what}\n{self.text}\n{self.log}")

    def expect_threads(self, engine, workers, front):
        """CPU lists as the kernel prints them; front None: it has no thread."""
        self.expect("the engine's CPU", self.threads["engine"] == engine)
        self.expect("the workers' CPUs", self.workers == workers)
        self.expect("the front's CPU", self.threads.get("front") == front)

    def expect_loading(self, loader, reader):
        """The loader may have been seen before it went to its node; a reader is born there."""
        self.expect(f"loader on {loader}, readers on {reader}, not {self.seen}",
                    {f"loader {loader}", f"reader {reader}"} <= self.seen and
                    sum(line.startswith("reader") for line in self.seen) == 1)

    def expect_only_on(self, node, *names):
        there = self.said_bytes(*names)
        self.expect(f"{names} on node {node}", there[node] > 0 and there[1 - node] == 0)

    def expect_honest(self):
        """The daemon's figures are the kernel's. A call opens a channel of its own: numa_maps was read beside none."""
        kernel, said = self.kernel_bytes(), self.said_bytes("weights", "kv", "scratch")
        self.expect(f"numa_maps has {kernel}, the daemon says {said}", kernel == said)
        sizes = self.status["memory"]
        for name in ("weights", "kv", "scratch"):
            here = self.memory[name]["bytes"]
            self.expect(f"{name} has the size of the status", -65536 <= here - sizes[f"{name}_bytes"] <= max(PAGE, here / 8))
        self.expect("the daemon ends in order", self.ended)

    def expect_agreement(self):
        self.expect("plan and reality agree", self.said["differences"] == 0 and "plan and reality agree" in self.text)
        self.expect("nothing is marked", not re.search(r"^!", self.text, re.M))


def check_machine(scene):
    nodes = {node["id"]: node for node in scene.said["nodes"]}
    scene.expect("two nodes of two CPUs", [nodes[0]["cpus"], nodes[1]["cpus"]] == ["0-1", "2-3"])
    scene.expect("distances", [node["distances"] for node in nodes.values()] == [[10, 21], [21, 10]])
    scene.expect("reserved pages", [nodes[n][f"pages_{size}"] for n in (0, 1) for size in ("2m", "1g")] == [8, 0, 64, 1])
    devices = {device["kind"]: device["node"] for device in scene.said["devices"]}
    scene.expect("drive and network card are on node 1", devices == {"nvme": 1, "network": 1})


def check_near(scene):
    """Two threads fill node 1; the front goes to node 0, and with it the channels. The rest is in huge pages on node 1."""
    check_machine(scene)
    scene.expect_threads("2", ["3"], "0")
    scene.expect_loading("2-3", "2-3")
    scene.expect_only_on(1, "weights", "kv", "scratch")
    scene.expect_only_on(0, "channels")
    scene.expect("weights and KV take 2 MiB pages of node 1 and a channel one of node 0, none now",
                 scene.taken(1) == (scene.memory["weights"]["huge_bytes"] + scene.memory["kv"]["huge_bytes"]) // PAGE > 14)
    scene.expect("huge pages", scene.memory["kv"]["huge_bytes"] == scene.memory["kv"]["bytes"])
    scene.expect("a channel in a huge page", scene.memory["channels"]["page_bytes"] == PAGE)
    reader = scene.lines["reader"]
    scene.expect("readers go near the drive", reader["node"] == 1 and "near the drive with the weights, PCI 0000:" in reader["why"])
    scene.expect("the log says it", re.search(r"weights: 15\.\d MiB in 2 MiB pages, node 1", scene.log))
    scene.expect_agreement()


def check_spread(scene):
    """Threads on both nodes read everything: halves on each."""
    scene.expect_threads("2", ["0", "1", "3"], None)
    for name in ("weights", "kv"):
        there = scene.said_bytes(name)
        scene.expect(f"{name} interleaved", abs(there[0] - there[1]) <= max(PAGE, sum(there.values()) // 10) and there[0] > 0)
    scene.expect_only_on(1, "scratch", "channels")
    scene.expect_agreement()


def check_told(scene):
    """The options say node 0: its 8 huge pages hold the weights; KV is in other pages there, not in huge ones of node 1.
    The drive stays on node 1, and so do the readers."""
    scene.expect_threads("3", [], "0")
    scene.expect_loading("0-1", "2-3")
    scene.expect_only_on(0, "weights", "kv", "channels")
    scene.expect("8 huge pages of node 0, none of node 1", scene.taken(0) == 8 and scene.taken(1) == 0)
    scene.expect("KV in ordinary mappings", scene.memory["kv"]["page_bytes"] == 4096)
    scene.expect("the log says what is missing", re.search(r"huge-pages: 8 free 2 MiB pages of node 0 would hold it: echo 16 >", scene.log))
    scene.expect_agreement()


def check_full(scene):
    """The model takes all reserved pages of the front's node: its channels stay there, in other pages."""
    scene.expect_threads("2", [], "3")
    scene.expect("all 64 huge pages", scene.used[1] == 0 and scene.taken(0) == 0)
    scene.expect_only_on(1, "weights", "kv", "scratch", "channels")
    scene.expect_agreement()


def check_large(scene):
    """950 MiB of KV fill a page of 1 GiB well enough."""
    scene.expect("the page of 1 GiB", scene.taken(1, 1) == 1)
    scene.expect("KV in it", scene.memory["kv"]["page_bytes"] == scene.memory["kv"]["huge_bytes"] == 1 << 30)
    scene.expect_only_on(1, "weights", "kv", "scratch")
    scene.expect("the log says it", re.search(r"kv: 9\d\d\.\d MiB in 1 GiB pages, node 1", scene.log))
    scene.expect_agreement()


def check_plain(scene):
    scene.expect_only_on(1, "weights", "kv", "scratch")
    scene.expect("no huge page", scene.taken(0) == scene.taken(1) == 0 and all(m["huge_bytes"] == 0 for m in scene.memory.values()))
    scene.expect_agreement()


def check_moved(scene):
    """Somebody moved the engine to CPU 0 behind the daemon's back."""
    scene.expect("the kernel says so", scene.threads["engine"] == "0")
    scene.expect("so does the daemon", scene.said["differences"] == 1 and scene.lines["engine"]["allowed"] == "0")
    scene.expect("the line is marked", re.search(r"^! engine    CPU 2, node 1    now: may run on 0,", scene.text, re.M))


CHECKS = {"near": check_near, "spread": check_spread, "told": check_told, "full": check_full, "large": check_large,
          "plain": check_plain, "moved": check_moved}


def main():
    for tool in ("qemu-system-x86_64", "busybox", "cpio", "zstd", "dpkg-deb", "apt-get", "mke2fs", "depmod"):
        machine.find_tool(tool)
    if os.environ.get("TOKENRING_SANITIZER"):
        machine.skip("under emulation an instrumented daemon takes minutes")
    vmlinux, package, version = machine.fetch_kernel(BUILD / "tests" / "vm" / "kernel")
    folder = Path(tempfile.mkdtemp(prefix="tokenring-vm-"))
    try:
        subprocess.run(["/usr/bin/python3", SOURCE / "tools" / "make-model", *SHAPE, folder / "model.gguf"], check=True)
        programs = [BUILD / "daemon" / "tokenringd", BUILD / "tools" / "tokenring"]
        initramfs = machine.make_initramfs(folder, package, version, programs)
        console = machine.boot(vmlinux, initramfs, machine.make_drive(folder, [folder / "model.gguf"]), 400)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = sections(console)
    if "over" not in found:
        sys.exit("the machine did not come to its end:\n" + console)
    for name, check in CHECKS.items():
        try:
            scene = Scene(found, name)
        except ValueError:  # no answer, no JSON
            sys.exit("\n".join(f"@@ {title}\n{text}" for title, text in found.items() if title.startswith(name)))
        scene.expect_honest()
        check(scene)
        print(f"{name}: as planned (Linux {version})")


main()
