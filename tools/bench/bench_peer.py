#!/usr/bin/env python3
"""tokenring bench peer: the same model files in other engines and in ours, in turns, beside what the machine gives.

Run by `tokenring bench peer`, whose manual page tells what the options mean.
"""
import argparse
import json
import os
import signal
import statistics
import sys
import time
from pathlib import Path

import peer_engines
import peer_page
from machine import describe_machine
from peer_engines import Ended, Own, Programs
from peer_files import FORMATS, file_of, words_of_census
from peer_install import PINS, Failed, Places, default_cache, has_amx, install
from peer_rounds import interleave, summarise

PEERS = ["llama", "ik", "ik-repacked", "openvino"]
TASKS = ["decode", "prefill", "streams", "best", "avx2", "start"]
PROMPT, DECODE, PREFILL = 8, 48, 512
STREAMS = {8: 24, 16: 16, 32: 12}  # tokens of each stream's answer
PARTS = {"decode": [("decode", f"decode 1 {DECODE}")], "prefill": [("prefill", f"prefill {PREFILL}")],
         "streams": [(f"streams {n}", f"decode {n} {tokens}") for n, tokens in STREAMS.items()]}


class Run:
    def __init__(self, arguments):
        self.arguments = arguments
        self.programs = Programs(arguments.tokenring, arguments.daemon)
        self.places = Places(arguments.cache, arguments.peer_python)
        self.source = Path(arguments.model).resolve()
        self.records = []
        self.announced = set()

    # ---- what is said ----

    def remark(self, text):
        print(text, file=sys.stderr if self.arguments.json else sys.stdout, flush=True)

    def emit(self, **record):
        record = {"bench": "peer", "model": self.source.name, **record}
        self.records.append(record)
        line = json.dumps(record)
        if self.arguments.json:
            print(line, flush=True)
        if self.arguments.save:
            with open(self.arguments.save, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def missing(self, name, what, why):
        self.remark(f"MISSING: {name}, {what}: {why}")
        self.emit(task="missing", engine=name, what=what, why=str(why))

    def announce(self, child):
        if child.what not in self.announced:
            self.announced.add(child.what)
            self.emit(task="engine", engine=child.name, what=child.what)
            self.remark(f"{child.name}: {child.what}")

    def report(self, name, task, file, taken, cost):
        for engine, samples in taken.items():
            summary = summarise(samples, taken["tokenring"], cost)
            record = {"format": name, "task": task, "engine": engine, **summary._asdict()}
            if engine == "tokenring":
                record["ratio"] = None
            self.emit(**record, cost=cost)
            self.remark(peer_page.words_of_figure(record))

    # ---- what is measured ----

    def start_own(self, file, isa=None, name="tokenring"):
        child = Own(name, self.programs, file.path, self.arguments.threads, isa, PROMPT)
        try:
            child.wait_ready()
        except Ended:
            child.close()
            raise
        self.announce(child)
        self.announce_pages(child)
        return child

    def announce_pages(self, child):
        """Of each file once; the slices that read use reserved huge pages where there are some, else transparent ones."""
        try:
            pages = child.pages()
        except OSError:  # the kernel does not say
            return
        if child.path not in self.announced:
            self.announced.add(child.path)
            self.emit(task="pages", engine="tokenring", file=child.path.name, what=pages)
            self.remark(f"tokenring with {child.path.name}: {pages}")

    def start_peers(self, names, file):
        peers = []
        for name in names:
            try:
                peers.append(peer_engines.start_peer(self.places, name, file.path, self.arguments.threads, PROMPT))
                self.announce(peers[-1])
            except (Failed, Ended) as error:
                self.missing(name, file.format, error)
        return peers

    def file(self, name):
        file = file_of(self.places, self.programs.tokenring, self.source, name)
        if not any(r["task"] == "file" and r["format"] == name for r in self.records):
            self.emit(task="file", format=name, bytes=file.bytes, decode_bytes=file.decode_bytes,
                      prefill_multiplies=file.prefill_multiplies, census=file.census)
            self.remark(f"{name}: {file.bytes / 1e6:.1f} MB: {words_of_census(file.census)}")
        return file

    def measure(self, children, file, name, tasks, prefix=""):
        """The first child is ours and measures the floors, too."""
        gauge = children[0]
        for task, line in tasks:
            is_prefill = line.startswith("prefill")
            cost = file.prefill_multiplies if is_prefill else file.decode_bytes / max(1, int(line.split()[1]))
            floor = "multiply" if is_prefill else f"read {file.decode_bytes}"

            def on_end(child, error, what=f"{name} {prefix}{task}"):
                self.missing(child.name, what, error)
                if child is gauge:
                    raise Failed(f"tokenring cannot measure {what}: {error}")

            taken = interleave(children, line, gauge, floor, self.arguments.rounds, on_end)
            children = [child for child in children if any(taken[child.name])]
            self.report(name, prefix + task, file, taken, cost)

    def together(self, name, file, peers, tasks, prefix="", isa=None):
        children = []
        try:
            children = [self.start_own(file, isa)]
            children += self.start_peers(peers, file)
            self.measure(children, file, name, tasks, prefix)
        except Ended as error:
            self.missing("tokenring", name, error)
        finally:
            for child in children:
                child.close()

    def best(self):
        """Our engine on the given file against the best that any peer has reached in any format of the model."""
        for task in ("decode", "prefill"):
            peers = [r for r in self.records if r["task"] == task and r["engine"] in PEERS and r["rate"]]
            if not peers:
                self.missing("best", task, "no peer was measured; measure it before, with the same --save")
                continue
            top = max(peers, key=lambda record: record["rate"])
            self.against(task, top)

    def against(self, task, top):
        name = FORMATS[0] if self.arguments.format is None else self.arguments.format[0]
        file = self.file(name)
        children = []
        try:
            children = [self.start_own(file)]
            children += self.start_peers([top["engine"]], self.file(top["format"]))
            if len(children) == 2:
                children[1].name = f"{top['engine']} {top['format']}"
                self.measure(children, file, name, PARTS[task], "best ")
        except Ended as error:
            self.missing("tokenring", f"best {task}", error)
        finally:
            for child in children:
                child.close()

    def start(self):
        """From the start of the daemon's process to the first token in another process, the file in the page cache."""
        name = FORMATS[0] if self.arguments.format is None else self.arguments.format[0]
        file = self.file(name)
        file.path.read_bytes()
        taken = []
        for _ in range(self.arguments.rounds + 1):
            begin = time.monotonic()
            child = self.start_own(file)
            try:
                child.ask(f"prefill {PROMPT}")
                taken.append(1e3 * (time.monotonic() - begin))
            finally:
                child.close()
        self.emit(format=name, task="start", engine="tokenring", first_token_ms=statistics.median(taken[1:]),
                  low=min(taken[1:]), high=max(taken[1:]), n=len(taken) - 1)
        self.remark(f"{name} start to first token: {statistics.median(taken[1:]):.0f} ms")

    def run(self):
        wanted = self.arguments.only
        names = self.arguments.format or FORMATS
        tasks = [part for task in ("decode", "prefill", "streams") if task in wanted for part in PARTS[task]]
        isa = "avx512vnni" if has_amx() else None
        for name in names if tasks else []:
            self.together(name, self.file(name), self.arguments.peer, tasks, isa=isa)
        if has_amx() and tasks:
            self.together(names[0], self.file(names[0]), ["llama-amx"], tasks, "amx ")
        if "best" in wanted:
            self.best()
        if "avx2" in wanted:
            for name in names:
                self.together(name, self.file(name), ["llama-avx2", "ik-avx2"], PARTS["decode"] + PARTS["prefill"],
                              "avx2 ", "avx2")
        if "start" in wanted:
            self.start()


def find_daemon(tokenring):
    """Beside the program: installed, or in a build tree."""
    folder = Path(tokenring).resolve().parent
    for path in (folder / "tokenringd", folder.parent / "daemon/tokenringd", folder.parent / "sbin/tokenringd"):
        if os.access(path, os.X_OK):
            return str(path)
    raise Failed(f"there is no tokenringd beside {tokenring}; name it with --daemon")


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenring", required=True)
    parser.add_argument("--model")
    parser.add_argument("--daemon")
    parser.add_argument("--cache", default=default_cache())
    parser.add_argument("--save")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--format", nargs="+", choices=[*FORMATS, "file"])
    parser.add_argument("--only", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--peer", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--peer-python", nargs="+", default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--install-native", action="store_true")
    return parser.parse_args()


def earlier(path, model):
    """Lines of an earlier part of the same run."""
    if not path or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [record for record in map(json.loads, file) if record.get("model") == model]


def work(arguments):
    if arguments.install or arguments.install_native:
        places = install(Places(arguments.cache, arguments.peer_python), arguments.install_native)
        for package in PINS:
            print(f"{package} {PINS[package]}: {places.python_with(package)}", file=sys.stderr)
    if not arguments.model:
        if arguments.install or arguments.install_native:
            return
        raise Failed("name the model's file with --model; `tools/fetch-model` fetches one")
    arguments.daemon = arguments.daemon or find_daemon(arguments.tokenring)
    run = Run(arguments)
    run.records = earlier(arguments.save, run.source.name)
    run.emit(task="machine", lines=describe_machine(), threads=arguments.threads)
    run.run()
    if not arguments.json:
        print()
        for verdict in peer_page.verdicts(run.records):
            print(peer_page.words_of_verdict(verdict))


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that children are ended
    try:
        work(parse())
    except Failed as error:
        sys.exit(f"tokenring: {error}")
    except KeyboardInterrupt:
        sys.exit("tokenring: interrupted")


if __name__ == "__main__":
    main()
