#!/usr/bin/env python3
"""Instructions of the calls that every request makes, counted by callgrind in a loop over a channel.

A count does not depend on the load of the machine.  tr_submit has a limit; the others are printed.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(os.environ["TOKENRING_BUILD_ROOT"]) / "tests" / "e2e" / "count_instructions"
FEW, ROUNDS, MANY = 100, 1100, 16
SUBMIT_LIMIT = 60


def total(function, *arguments):
    """Instructions inside `function`, and what it calls, during one run."""
    with tempfile.TemporaryDirectory(prefix="tokenring-callgrind-") as folder:
        out = Path(folder) / "out"
        subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--toggle-collect={function}",
                        PROGRAM, *map(str, arguments)], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        return int(re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.M).group(1))


def a_call(function, *arguments):
    """The difference of a long and a short run leaves out what happens once."""
    return (total(function, ROUNDS, *arguments) - total(function, FEW, *arguments)) / (ROUNDS - FEW)


def main():
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        return 77
    if sys.argv[1] in ("0", "g"):
        print("skipped: the library is built without optimisation")
        return 77
    submits = {n_tokens: a_call("tr_submit", n_tokens) for n_tokens in (0, 1, 3, 8)}
    poll = a_call("tr_poll", 8)
    many = a_call("tr_submit_many", 8, MANY) / MANY
    many_polled = a_call("tr_poll", 8, MANY) / MANY
    print(f"tr_submit: {', '.join(f'{count:.1f} with {n} tokens' for n, count in submits.items())}")
    print(f"tr_submit_many: {many:.1f} a request, {MANY} at once")
    print(f"tr_poll: {poll:.1f} with one event; {many_polled:.1f} an event, {MANY} at once")
    assert min(submits.values()) > 20, "fewer instructions than a slot has words to read and write: nothing was counted"
    assert max(submits.values()) <= SUBMIT_LIMIT, f"tr_submit takes more than {SUBMIT_LIMIT} instructions"
    return 0


sys.exit(main())
