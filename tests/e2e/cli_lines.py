"""Checks the JSON lines of a benchmark on standard input: cli_lines.py BENCH METRIC..."""
import json
import sys

KEYS = "bench metric unit p50 p90 p99 p999 p9999 max n floor ratio isa threads".split()


def check(line, bench):
    assert list(line) == KEYS, line
    assert line["bench"] == bench and line["n"] > 0 and line["p50"] > 0 and line["threads"] > 0 and line["isa"], line
    if line["floor"] is None:
        assert line["ratio"] is None, line
    else:
        assert line["floor"] > 0 and abs(line["ratio"] - line["p50"] / line["floor"]) < 2e-3 * line["ratio"], line
    tail = [line[key] for key in ("p50", "p90", "p99", "p999", "p9999")]
    is_time = line["unit"] in ("ns", "ms")
    assert tail == sorted(tail, reverse=not is_time), line
    assert line["max"] >= max(tail), line


lines = [json.loads(text) for text in sys.stdin]
for one in lines:
    check(one, sys.argv[1])
metrics = {one["metric"] for one in lines}
assert metrics >= set(sys.argv[2:]), f"{metrics} lacks some of {sys.argv[2:]}"
