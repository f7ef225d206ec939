"""Figures of `tokenring bench peer` in words: lines for a terminal, the targets, and a page."""
from typing import NamedTuple, Optional

from peer_files import FORMATS, words_of_census

COLUMNS = [("llama", "llama.cpp"), ("ik", "ik_llama.cpp"), ("ik-repacked", "the same, repacked"), ("openvino", "OpenVINO")]
DECODE_TIMES = {"q4_1": 3.0, "q4_0": 2.2}
PREFILL_TIMES = {"q4_1": 6.0, "q4_0": 2.8}
STREAM_TIMES = {"q4_1": 7.0, "q4_0": 4.0}
STREAM_CLASS = {8: 1400, 16: 1600, 32: 1600}
BANDWIDTH, PEAK = 0.80, 0.33


class Verdict(NamedTuple):
    what: str
    target: str
    measured: str
    met: Optional[bool]  # None: not measured, or only reported


# ---- one figure ----

def rate(value):
    return "-" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def floor_words(record):
    """The multiplications count as two operations each, with their additions."""
    if record["floor"] is None:
        return "-"
    if record["task"].endswith("prefill"):
        return f"{2e-9 * record['floor']:,.0f} GOP/s"
    return f"{1e-9 * record['floor']:.1f} GB/s"


def words_of_figure(record):
    words = f"{record['format']:7} {record['task']:13} {record['engine']:12} {rate(record['rate']):>7} tokens/s"
    if record["rate"] is not None:
        words += f" ({rate(record['low'])} to {rate(record['high'])}, n {record['n']}), {100 * record['share']:.0f} % of {floor_words(record)}"
    if record["ratio"] is not None:
        words += f", tokenring / it = {record['ratio']:.2f}"
    return words + (f", {record['dropped']} dropped" if record["dropped"] else "")


# ---- targets ----

class Figures:
    """The last record of each (format, task, engine)."""

    def __init__(self, records):
        self.records = {(r["format"], r["task"], r["engine"]): r for r in records if "rate" in r}

    def get(self, name, task, engine="tokenring"):
        record = self.records.get((name, task, engine))
        return record if record and record["rate"] is not None else None

    def formats(self):
        found = {name for name, _, _ in self.records}
        return [name for name in [*FORMATS, "file"] if name in found]


def share_verdict(figures, name, task, least, what):
    own = figures.get(name, task)
    words = f"at least {100 * least:.0f} % of {what}"
    if not own:
        return Verdict(f"{name}, {task}", words, "not measured", None)
    return Verdict(f"{name}, {task}", words, f"{100 * own['share']:.1f} % of {floor_words(own)}", own["share"] >= least)


def times_verdict(figures, name, task, engine, least, or_share=None):
    """`or_share`: where so much of the floor is less than the multiple of the peer, that is the target."""
    own, peer = figures.get(name, task), figures.get(name, task, engine)
    words = f"at least {least:g} × {engine}" + (f", or {100 * or_share:.0f} % of the bandwidth if that is lower" if or_share else "")
    if not own or not peer or peer["ratio"] is None:
        return Verdict(f"{name}, {task}", words, "not measured", None)
    met = peer["ratio"] >= least
    if or_share and own["share"] / peer["ratio"] * least > or_share:  # the peer's multiple, as a share of the floor
        met = met or own["share"] >= or_share
    return Verdict(f"{name}, {task}", words, f"{peer['ratio']:.2f} × ({rate(own['rate'])} beside {rate(peer['rate'])})", met)


def best_verdict(figures, task, least):
    words = f"at least {least:g} × the best peer in any format"
    found = [(key, r) for key, r in figures.records.items() if key[1] == f"best {task}" and key[2] != "tokenring"]
    if not found or found[-1][1]["ratio"] is None:
        return Verdict(f"best peer, {task}", words, "not measured", None)
    (name, _, engine), record = found[-1]
    return Verdict(f"best peer, {task}", words, f"{record['ratio']:.2f} × ({name}, beside {engine}: {rate(record['rate'])})",
                   record["ratio"] >= least)


def streams_verdicts(figures, name):
    own = {n: figures.get(name, f"streams {n}") for n in STREAM_CLASS}
    one = figures.get(name, "decode")
    for n, tokens in STREAM_CLASS.items():
        measured = rate(own[n]["rate"]) + " tokens/s" if own[n] else "not measured"
        yield Verdict(f"{name}, {n} streams", f"the class of {tokens:,} tokens/s", measured, own[n]["rate"] >= tokens if own[n] else None)
    order = [one, *own.values()]
    if all(order):
        steps = [after["rate"] / before["rate"] for before, after in zip(order, order[1:])]
        yield Verdict(f"{name}, 1 to 32 streams", "none below 0.9 of the one before",
                      ", ".join(f"{step:.2f}" for step in steps), min(steps) >= 0.9)
    if name in STREAM_TIMES:
        yield times_verdict(figures, name, "streams 32", "llama", STREAM_TIMES[name])


def start_verdict(records):
    found = [r for r in records if r["task"] == "start"]
    if not found:
        return Verdict("start to first token", "under 150 ms, page cache warm", "not measured", None)
    ms = found[-1]["first_token_ms"]
    return Verdict("start to first token", "under 150 ms, page cache warm", f"{ms:.0f} ms", ms < 150)


def verdicts(records):
    """Every target, also of what was not measured of the model that is measured in several formats."""
    figures = Figures(records)
    rows = []
    for name in figures.formats():
        rows.append(share_verdict(figures, name, "decode", BANDWIDTH, "the read bandwidth (goal 88 %)"))
        if name != "file":
            rows.append(times_verdict(figures, name, "decode", "llama", DECODE_TIMES.get(name, 2.0), BANDWIDTH))
    for name in figures.formats():
        rows.append(share_verdict(figures, name, "prefill", PEAK, "the multiply peak (goal 40 %)"))
        if name in PREFILL_TIMES:
            rows.append(times_verdict(figures, name, "prefill", "llama", PREFILL_TIMES[name]))
    is_main = figures.formats() != ["file"]  # of other models only what was measured
    if is_main or any(task.startswith("best") for _, task, _ in figures.records):
        rows += [best_verdict(figures, "decode", 2.0), best_verdict(figures, "prefill", 1.6)]
    for name in figures.formats():
        if name != "file":
            rows += streams_verdicts(figures, name)
    for name in figures.formats():
        for task in ("avx2 decode", "avx2 prefill"):
            if figures.get(name, task):
                rows.append(times_verdict(figures, name, task, "llama-avx2", 1.5))
    is_timed = any(record["task"] == "start" for record in records)
    return rows + ([start_verdict(records)] if is_main or is_timed else [])


def met_word(met):
    return "" if met is None else "yes" if met else "**no**"


def words_of_verdict(verdict):
    return f"{verdict.what:24} {verdict.target:70} {verdict.measured:48} {met_word(verdict.met).strip('*')}"


# ---- the page ----

HEAD = """# Kernels

This page is written by `tools/performance --kernels`, never by hand, from `tokenring bench peer` on one machine: our daemon,
with a client in another process, and the other engines take turns on the same file with as many threads each. What stands
in one row ran in the same rounds; rows ran one after another, and of a row that ran again the last counts. Figures are medians over the rounds, ratios medians over the pairs of a round. Slices that read as many bytes as a
token moves, or that only multiply, alternate with all of them: a share says how much of that an engine reached.
Operations of a prompt are two for each weight outside the vocabulary and token. AMX is off in all of them.
"""


def cell(record, is_own):
    if record is None:
        return "-"
    share = f", {100 * record['share']:.0f} %"
    if is_own:
        return f"**{rate(record['rate'])}**{share}"
    return rate(record["rate"]) + share + ("" if record["ratio"] is None else f"; × {record['ratio']:.2f}")


def figure_rows(figures):
    tasks = list(dict.fromkeys(task for _, task, _ in figures.records if " " not in task or task.startswith("streams")))
    for name in figures.formats():
        for task in tasks:
            own = figures.get(name, task)
            if own:
                peers = [cell(figures.get(name, task, engine), False) for engine, _ in COLUMNS]
                yield f"| {name}, {task} | " + " | ".join([floor_words(own), cell(own, True), *peers]) + " |"


def last_of(records, task, key):
    return {record[key]: record for record in records if record["task"] == task}.values()


def still_missing(records):
    """What could not be measured, and was not measured later either."""
    for at, record in enumerate(records):
        if record["task"] != "missing":
            continue
        name = record["what"].split()[0]
        if not any(later.get("rate") and later["engine"] == record["engine"] and later["format"] == name for later in records[at:]):
            yield f"- missing: {record['engine']}, {record['what']}: {record['why']}"


def model_section(model, records):
    figures = Figures(records)
    page = [f"\n## {model}\n", "Tokens a second, share of the floor; × how many times faster ours is.\n",
            "| what | floor | tokenring | " + " | ".join(title for _, title in COLUMNS) + " |",
            "|---|---|---|" + "---|" * len(COLUMNS), *figure_rows(figures),
            "\n| target | at least | measured | met |", "|---|---|---|---|"]
    page += [f"| {v.what} | {v.target} | {v.measured} | {met_word(v.met)} |" for v in verdicts(records)]
    page.append("")
    page += [f"- {r['format']}: {r['bytes']:,} bytes, a token moves {r['decode_bytes']:,}; {words_of_census(r['census'])}"
             for r in last_of(records, "file", "format")]
    page += [f"- the daemon with {r['file']}: {r['what']}" for r in last_of(records, "pages", "file")]
    page += dict.fromkeys(still_missing(records))
    return page


def render(records):
    machines = [record for record in records if record["task"] == "machine"]
    page = [HEAD, "## Machine and engines\n"]
    page += [f"- {line}" for line in (machines[-1]["lines"] if machines else [])]
    page += [f"- {engine}: {what}" for engine, what in
             dict.fromkeys((r["engine"], r["what"]) for r in records if r["task"] == "engine")]
    for model in dict.fromkeys(record["model"] for record in records):
        page += model_section(model, [record for record in records if record["model"] == model])
    return "\n".join(page) + "\n"
