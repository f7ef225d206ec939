#!/usr/bin/env python3
"""What each setting of the host is worth, measured: the tables of docs/latency.md.

  tests/bench/latency.py --build BUILD --model FILE [EXPERIMENT...]      as root, on a machine where nothing else runs

All variants of an experiment have daemons of their own and take turns; a figure is the median over the rounds (of the
maximum: the largest). What is changed in /sys and /proc is put back.
"""
import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DAEMON_CPU, CLIENT_CPU = "0", "1"
NEVER_SLEEP = "4294967295"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
HUGE = "/proc/sys/vm/nr_hugepages"


class Bench:
    def __init__(self, arguments):
        self.build, self.model, self.rounds = Path(arguments.build), arguments.model, arguments.rounds
        self.stack = contextlib.ExitStack()
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="tokenring-latency-"))
        self.started = 0

    def daemon(self, *flags, wrapper=(), threads=1):
        """Starts a daemon and returns its socket when the model is ready."""
        self.started += 1
        socket = f"{self.folder}/{self.started}"
        with open(f"{socket}.log", "w") as log:
            process = subprocess.Popen(
                [*wrapper, self.build / "daemon/tokenringd", "--model", self.model, "--socket", socket, "--threads", str(threads),
                 "--front", "shared", "--engine-cpu", DAEMON_CPU, "--max-context-tokens", "512", "--max-batch-tokens", "32",
                 *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.stack.callback(process.wait)
        self.stack.callback(process.terminate)
        while not Path(socket).exists():
            assert process.poll() is None, Path(f"{socket}.log").read_text()
            time.sleep(0.02)
        subprocess.run([self.build / "tools/tokenring", "status", "--wait", "--socket", socket], check=True,
                       stdout=subprocess.DEVNULL)
        return socket

    def echo(self, socket, trips, pause_us=0, spin_ns=NEVER_SLEEP, cpu=CLIENT_CPU, wrapper=(), channels=1):
        command = ["taskset", "-c", cpu, *wrapper, self.build / "tests/bench/bench_latency", socket, trips, pause_us, spin_ns,
                   channels]
        return json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True).stdout)

    def write(self, path, text):
        """Changes a setting of the machine until the experiment ends."""
        before = Path(path).read_text().strip()
        before = before[before.index("[") + 1:before.index("]")] if "[" in before else before
        self.stack.callback(Path(path).write_text, before)
        Path(path).write_text(text)

    def compare(self, variants):
        """variants: name -> function that measures once. Prints a row each: µs."""
        samples = {name: [] for name in variants}
        for _ in range(self.rounds):
            for name, once in variants.items():
                samples[name].append(once())
        print("| | p50 µs | p99 µs | p99.9 µs | max µs |\n|---|---|---|---|---|")
        for name, found in samples.items():
            cells = [statistics.median(one[key] for one in found) for key in ("p50", "p99", "p999")]
            cells.append(max(one["max"] for one in found))
            print(f"| {name} | " + " | ".join(f"{cell / 1000:.4g}" for cell in cells) + " |")


def cores(bench):
    two_spin, two_sleep = bench.daemon(), bench.daemon("--spin-us", "0")
    bench.compare({
        "two CPUs, both spin": lambda: bench.echo(two_spin, 50000),
        "two CPUs, both sleep at once": lambda: bench.echo(two_sleep, 3000, spin_ns=1),
        "one CPU, both sleep at once": lambda: bench.echo(two_sleep, 3000, spin_ns=1, cpu=DAEMON_CPU),
        "one CPU, both spin 50 µs first": lambda: bench.echo(two_spin, 1000, spin_ns=50000, cpu=DAEMON_CPU),
    })


def sleep(bench):
    """One request a millisecond: who still polls when it comes."""
    default, awake = bench.daemon(), bench.daemon("--spin-us", "5000")
    bench.compare({
        "daemon and client asleep": lambda: bench.echo(default, 500, 1000, spin_ns=1),
        "daemon asleep, client spins": lambda: bench.echo(default, 500, 1000),
        "both spin (spin_us = 5000)": lambda: bench.echo(awake, 500, 1000),
    })


def idle(bench):
    """The same, while idle CPUs may halt and while a program forbids it by /dev/cpu_dma_latency."""
    socket = bench.daemon()

    def forbidden():
        with open("/dev/cpu_dma_latency", "wb", buffering=0) as limit:
            limit.write(bytes(4))
            return bench.echo(socket, 500, 1000, spin_ns=1)

    bench.compare({"idle CPUs halt": lambda: bench.echo(socket, 500, 1000, spin_ns=1),
                   "/dev/cpu_dma_latency held at 0": forbidden})


def pages(bench):
    """Channels: one, and 64 that take turns."""
    reserved = int(Path(HUGE).read_text())
    bench.write(HUGE, str(reserved))
    sockets = {name: bench.daemon("--huge-pages", name) for name in ("never", "auto")}
    Path(HUGE).write_text(str(reserved + 512))  # for the weights of the third one, too
    sockets["require"] = bench.daemon("--huge-pages", "require")

    def once(name, channels):
        Path(HUGE).write_text(str(reserved + 512 if name == "require" else 0))  # pages in use stay
        return bench.echo(sockets[name], 100000, channels=channels)

    titles = {"never": "4 KiB (never)", "auto": "4 KiB collapsed to 2 MiB (auto, none reserved)", "require": "2 MiB, reserved (require)"}
    for channels in (1, 64):
        print(f"{channels} channels:\n")
        bench.compare({title: lambda name=name: once(name, channels) for name, title in titles.items()})


def scheduling(bench, trips, pause_us):
    fifo, high = ("chrt", "-f", "10"), ("nice", "-n", "-15")
    plain, nice, real = bench.daemon(), bench.daemon(wrapper=high), bench.daemon(wrapper=fifo)
    bench.compare({
        "SCHED_OTHER": lambda: bench.echo(plain, trips, pause_us),
        "nice -15": lambda: bench.echo(nice, trips, pause_us, wrapper=high),
        "SCHED_FIFO": lambda: bench.echo(real, trips, pause_us, wrapper=fifo),
    })


def alone(bench):
    """Scheduling policies while nothing else runs."""
    scheduling(bench, 1000000, 0)


def crowded(bench):
    """One request a millisecond beside two programs that never stop, one on each CPU."""
    hogs = [subprocess.Popen(["taskset", "-c", cpu, "sh", "-c", "while :; do :; done"]) for cpu in (DAEMON_CPU, CLIENT_CPU)]
    try:
        scheduling(bench, 500, 1000)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def thp(bench):
    """Weights in 4 KiB and in 2 MiB pages: tokens a second of one stream."""
    bench.write(THP, "never")
    small = bench.daemon(threads=2)
    Path(THP).write_text("madvise")
    large = bench.daemon(threads=2)
    rates = {"4 KiB (never)": [], "2 MiB (madvise)": []}
    for _ in range(bench.rounds):
        for name, socket in zip(rates, (small, large)):
            output = subprocess.run([bench.build / "tools/tokenring", "bench", "decode", "--json", "-r", "1", "-n", "96", "--socket",
                                     socket], check=True, capture_output=True).stdout
            rates[name] += [one["p50"] for one in map(json.loads, output.splitlines()) if one["metric"] == "tokens_per_second"]
    print("| pages of the weights | tokens/s |\n|---|---|")
    for name, found in rates.items():
        print(f"| {name} | {statistics.median(found):.4g} ({min(found):.4g} to {max(found):.4g}) |")


EXPERIMENTS = {run.__name__: run for run in (cores, sleep, idle, pages, alone, crowded, thp)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    for name in arguments.experiments or EXPERIMENTS:
        bench = Bench(arguments)
        with bench.stack:
            print(f"\n{name}:\n")
            EXPERIMENTS[name](bench)


if __name__ == "__main__":
    main()
