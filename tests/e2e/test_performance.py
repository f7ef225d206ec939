#!/usr/bin/env python3
"""tools/performance on figures that are known: every verdict of the table, and what it says of a figure that is missing."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(os.environ["TOKENRING_SOURCE_ROOT"])


def figure(metric, unit="ns", **values):
    one = dict.fromkeys(("p50", "p90", "p99", "p999", "p9999", "max"), 1000.0)
    return {"bench": "ring", "metric": metric, "unit": unit, **one, "n": 1, "floor": None, "ratio": None, **values}


def page(*figures, remarks=""):
    with tempfile.TemporaryDirectory() as folder:
        lines, said, output = (Path(folder) / name for name in ("lines", "remarks", "page"))
        lines.write_text("".join(json.dumps(one) + "\n" for one in figures))
        said.write_text(remarks)
        subprocess.run([sys.executable, ROOT / "tools/performance", "--from", lines, "--remarks", said, "--output", output],
                       check=True)
        return output.read_text()


def row(text, metric):
    """Cells of the only row of a metric."""
    found = [line for line in text.splitlines() if f"(`{metric}`)" in line]
    assert len(found) == 1, (metric, found)
    return [cell.strip() for cell in found[0].strip("|").split("|")]


def test_verdicts():
    text = page(figure("echo", p50=120, p99=1450, p9999=12345, max=2500000), figure("floor", p50=100, p99=1000),
                figure("spsc", p50=179), figure("echo_without_own_gaps", p50=119, p99=150, p9999=9000, max=20000))
    cells = row(text, "echo")
    assert cells[1:7] == ["120 ns", "1000 ns", "1450 ns", "1000 ns", "12.3 µs", "2.50 ms"], cells
    assert cells[7] == "119 ns / 150 ns / 9000 ns / 20.0 µs", cells
    assert cells[9] == "1.20 ×<br>1.45 ×<br>1.49 ×", cells
    assert cells[10] == "yes<br>**no**<br>**no**", cells
    assert row(text, "floor")[8:] == ["", "", ""]


def test_rates_and_plain_figures():
    text = page(figure("throughput_submit", "echoes/s", p50=5e6), figure("throughput_submit_many", "echoes/s", p50=6.4e6),
                figure("slot_rings", "echoes/s", p50=9e6), figure("slot_rings_batched", "echoes/s", p50=1e7), figure("prefill_echo", p99=250000), figure("prefill_cancel", p99=250001),
                figure("idle_daemon_cpu", "%", max=1.5))
    assert row(text, "throughput_submit")[9:] == ["0.50 ×", "yes"]
    assert row(text, "throughput_submit_many")[9:] == ["0.64 ×", "**no**"]
    assert row(text, "prefill_echo")[9:] == ["250.00 µs", "yes"]
    assert row(text, "prefill_cancel")[10] == "**no**"
    assert row(text, "idle_daemon_cpu")[9:] == ["1.50 %", "**no**"]


def test_what_is_missing_is_said():
    text = page(figure("echo_beside_peers", p50=500, p99=900), figure("zeromq_block", p50=50000), figure("boost_spin", p50=501, p99=899),
                remarks="MISSING: peer_iceoryx\n")
    assert row(text, "zeromq_block")[9:] == ["100.00 ×", "yes"]
    assert row(text, "boost_spin")[9:] == ["1.00 ×<br>1.00 ×", "yes<br>**no**"]
    assert row(text, "iceoryx_block")[9:] == ["not measured", "**?**"]
    assert row(text, "iceoryx_spin")[1] == "**not measured**"
    assert "- MISSING: peer_iceoryx" in text


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("ok:", name)
