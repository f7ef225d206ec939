"""Builds and tests in stages, counts every test, and ends with `N passed, N failed, N skipped`; see tools/check.

Everything runs, whatever failed before.  Builds lie in build/check/; temporary files in a folder that goes away; the
number of huge pages is put back.  Exit codes: 0; 1 something failed (or, with CI=true, was skipped without being
listed in tests/skips); 2 usage.
"""
import contextlib
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILDS = ROOT / "build" / "check"
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
HUGE_PAGES_WANTED = 256
BY_NAME_ONLY = ["soak", "soak_asan", "peer", "device"]
FUZZ_SECONDS = int(os.environ.get("TOKENRING_FUZZ_SECONDS", "120"))
LOG_TAIL = 40
NOTHING_OPTIONAL = [f"-D{name}=disabled" for name in ("uring", "dpdk", "cuda", "http", "systemd", "peer_zeromq", "peer_boost", "peer_iceoryx")]

# stage: compiler, options, suites to run (None: all but those by name only), factor on timeouts
STAGES = {
    "gcc-release": ("gcc", ["-Dbuildtype=release"], None, 1),
    "clang-release": ("clang-19", ["-Dbuildtype=release"], ["fast"], 1),
    "asan": ("clang-19", ["-Dbuildtype=debugoptimized", "-Db_sanitize=address,undefined", "-Db_lundef=false"],
             ["fast", "asan"], 10),
    "tsan": ("clang-19", ["-Dbuildtype=debugoptimized", "-Db_sanitize=thread", "-Db_lundef=false"], ["tsan"], 10),
    "bare": ("gcc", ["-Dbuildtype=debug", *NOTHING_OPTIONAL], ["fast"], 1),
}
FAST = {"debug": ("gcc", ["-Dbuildtype=debug"], ["fast"], 1)}
FUZZ = ("clang-19", ["-Dbuildtype=debugoptimized", "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dfuzz=true"])


class Results:
    """What became of every test; a test is named stage:name."""

    def __init__(self):
        self.passed = 0
        self.failed = []   # (name, log)
        self.skipped = []  # (name, reason)

    def fail(self, name, log):
        self.failed.append((name, log))

    def skip(self, name, reason):
        self.skipped.append((name, reason))


def say(text):
    print(text, flush=True)


def run(command, log=None, env=None):
    """Runs to the end; the output goes to the file `log`, or comes back as text."""
    try:
        if log is None:
            return subprocess.run(command, cwd=ROOT, env=env, text=True, errors="replace", stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        with open(log, "w", encoding="utf-8") as file:
            return subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=file,
                                  stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, f"{command[0]}: {error.strerror}")


def build(stage, compiler, options, results, targets=()):
    """True if build/check/STAGE is up to date; a change of options starts it afresh."""
    folder = BUILDS / stage
    wanted = json.dumps([compiler, options])
    mark = folder / "check-options"
    if not mark.exists() or mark.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        done = run(["meson", "setup", str(folder), "-Dwerror=true", "-Dtests=enabled", *options],
                   env={**os.environ, "CC": compiler})
        if done.returncode:
            results.fail(f"{stage}:setup", done.stdout)
            return False
        mark.write_text(wanted, encoding="utf-8")
    done = run(["ninja", "-C", str(folder), *targets])
    if done.returncode:
        complaints = [line for line in done.stdout.splitlines() if not re.match(r"\[\d+/\d+\] ", line)]
        results.fail(f"{stage}:build", "\n".join(line[:300] for line in complaints))
        return False
    results.passed += 1
    return True


def last_line(*texts):
    lines = [line.strip() for text in texts for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given; a test that skips must print one"


def read_test_log(stage, path, results):
    """Counts one meson test log; a skip inside a cmocka program counts too, so that none is silent."""
    with open(path, encoding="utf-8") as log:
        for test in map(json.loads, log):
            name = f"{stage}:{test['name'].split(' / ')[-1]}"
            output = (test.get("stdout") or "") + (test.get("stderr") or "")
            if test["result"] == "SKIP":
                results.skip(name, last_line(test.get("stdout"), test.get("stderr")))
            elif test["result"] in ("OK", "EXPECTEDFAIL"):
                results.passed += 1
                for part in sorted(set(re.findall(r"^\[  SKIPPED \] (\w+)$", output, re.M))):
                    results.skip(f"{name}/{part}", "skipped inside the test program")
            else:
                results.fail(name, f"{test['result']} after {test['duration']:.1f} s, exit status {test['returncode']}\n{output}")


def run_suites(stage, suites, factor, results):
    """suites: those to run, or None for all but those that run by name only."""
    folder = BUILDS / stage
    command = ["meson", "test", "-C", str(folder), "--no-rebuild", "--logbase", "check", "--timeout-multiplier", str(factor)]
    command += [word for suite in suites or [] for word in ("--suite", suite)]
    command += [word for suite in BY_NAME_ONLY if not suites for word in ("--no-suite", suite)]
    log = folder / "meson-logs" / "check.json"
    log.unlink(missing_ok=True)
    sanitizer = {"asan": "address", "tsan": "thread"}.get(stage, "")
    done = run(command, env={**os.environ, "TOKENRING_SANITIZER": sanitizer})
    if log.exists():
        read_test_log(stage, log, results)
    else:
        results.fail(f"{stage}:test", f"no test ran (suites: {' '.join(suites or ['all'])})\n{done.stdout}")


def stage_suites(stage, description, results):
    compiler, options, suites, factor = description
    if build(stage, compiler, options, results):
        run_suites(stage, suites, factor, results)


def stage_lint(results):
    done = run([sys.executable, "tools/lint"])
    if done.returncode:
        results.fail("lint:lint", done.stdout)
    else:
        results.passed += 1


def fuzz_one(target, seconds, log):
    """A libFuzzer process for one target, started and not waited for."""
    name = target.name.removeprefix("fuzz_")
    found = target.parent / f"found-{name}"
    found.mkdir(exist_ok=True)
    seeds = ROOT / "tests" / "fuzz" / "corpus" / name
    command = [str(target), f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1",
               f"-artifact_prefix={target.parent}/crash-{name}-", str(found)] + ([str(seeds)] if seeds.is_dir() else [])
    with open(log, "w", encoding="utf-8") as file:
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)


def stage_fuzz(results):
    """All targets side by side for two minutes; the canary must crash, or the fuzzers are blind."""
    if not build("fuzz", *FUZZ, results, targets=["fuzzers"]):
        return
    targets = sorted(path for path in (BUILDS / "fuzz" / "tests" / "fuzz").glob("fuzz_*")
                     if path.is_file() and not path.suffix)
    running = [(target, fuzz_one(target, FUZZ_SECONDS, target.with_suffix(".log"))) for target in targets]
    for target, process in running:
        crashed = process.wait() != 0
        if crashed == (target.name == "fuzz_canary"):
            results.passed += 1
        else:
            what = "it found a crash" if crashed else "the canary did not crash: the fuzzer is blind"
            results.fail(f"fuzz:{target.name}", f"{what}\n" + target.with_suffix(".log").read_text(errors="replace"))


def fetch_model(results):
    done = subprocess.run([sys.executable, "tools/fetch-model"], cwd=ROOT, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=None, check=False)
    if done.returncode:
        results.skip("fetch-model", "the test model could not be had; the tests that need it skip")
    else:
        os.environ["TOKENRING_TEST_MODELS"] = os.path.dirname(done.stdout.strip())


@contextlib.contextmanager
def huge_pages():
    """Reserves huge pages for the tests if it may, and puts the number back."""
    before = None
    try:
        before = int(HUGE_PAGES.read_text())
        if before < HUGE_PAGES_WANTED:
            HUGE_PAGES.write_text(str(HUGE_PAGES_WANTED))
        else:
            before = None
    except (OSError, ValueError):
        before = None
    try:
        yield
    finally:
        if before is not None:
            with contextlib.suppress(OSError):
                HUGE_PAGES.write_text(str(before))


def allowed_skips():
    """(pattern, reason) of tests/skips."""
    for line in (ROOT / "tests" / "skips").read_text(encoding="utf-8").splitlines():
        words = line.split(maxsplit=1)
        if words and not line.startswith("#"):
            yield words[0], words[1] if len(words) > 1 else ""


def report(results):
    """The closing lines; returns the exit code."""
    strict = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    patterns = [pattern for pattern, _ in allowed_skips()]
    unlisted = [name for name, _ in results.skipped if not any(fnmatch.fnmatch(name, p) for p in patterns)]
    for name, log in results.failed:
        say(f"\nFAILED {name}")
        say("\n".join("    " + line for line in log.rstrip().splitlines()[-LOG_TAIL:]))
    if results.skipped:
        say("")
    for name, reason in results.skipped:
        say(f"SKIPPED {name}: {reason}" + (" [not listed in tests/skips]" if name in unlisted else ""))
    if strict and unlisted:
        say(f"{len(unlisted)} of these skips are not allowed in CI")
    say(f"\n{results.passed} passed, {len(results.failed)} failed, {len(results.skipped)} skipped")
    return 1 if results.failed or (strict and unlisted) else 0


def stages_for(words):
    """[(name, function of results)]"""
    if words == ["fast"]:
        return [(stage, lambda r, s=stage, d=what: stage_suites(s, d, r)) for stage, what in FAST.items()]
    if words in ([], ["all"]):
        builds = [(stage, lambda r, s=stage, d=what: stage_suites(s, d, r)) for stage, what in STAGES.items()]
        return [("lint", stage_lint), *builds, ("fuzz", stage_fuzz)]
    chosen = STAGES | FAST
    if all(word in chosen or word in ("lint", "fuzz") for word in words):
        special = {"lint": stage_lint, "fuzz": stage_fuzz}
        return [(word, special.get(word, lambda r, s=word: stage_suites(s, chosen[s], r))) for word in words]
    compiler, options, _, factor = STAGES["gcc-release"]
    # A soak of hostile clients proves little where nothing watches the daemon's memory.
    watched = [("asan", lambda r: stage_suites("asan", (*STAGES["asan"][:2], ["soak_asan"], 1), r))] if "soak" in words else []
    return watched + [("gcc-release", lambda r: stage_suites("gcc-release", (compiler, options, words, factor), r))]


def main():
    words = sys.argv[1:]
    if any(word.startswith("-") for word in words):
        print("usage: tools/check [fast | all | STAGE... | SUITE...]\n"
              f"stages: lint {' '.join(STAGES)} fuzz; suites: fast slow vm soak peer device and the tags in tests/meson.build")
        return 0 if words in (["-h"], ["--help"]) else 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = Results()
    began = time.monotonic()
    BUILDS.mkdir(parents=True, exist_ok=True)
    with huge_pages(), tempfile.TemporaryDirectory(prefix="tr-check-") as scratch:
        os.environ["TMPDIR"] = scratch
        os.chmod(scratch, 0o711)  # tests of strangers connect to sockets below it as another user
        if words != ["lint"]:
            fetch_model(results)
        for name, stage in stages_for(words):
            start, passed, failed = time.monotonic(), results.passed, len(results.failed)
            try:
                stage(results)
            except Exception:  # the other stages still run
                results.fail(f"{name}:stage", traceback.format_exc())
            say(f"{name}: {results.passed - passed} passed, {len(results.failed) - failed} failed, "
                f"{time.monotonic() - start:.0f} s")
    say(f"all stages: {time.monotonic() - began:.0f} s")
    return report(results)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("check: interrupted")
