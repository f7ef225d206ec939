"""Interleaved rounds and what follows from them: medians, paired ratios, shares of a floor."""
import statistics
import time
from typing import NamedTuple, Optional

SAME_CORE_NS = 70  # a cache line goes from core to core in 100 ns and more, within one core in some 24
SETTLE_S = 0.02    # threads of the one before stop spinning


class Sample(NamedTuple):
    rate: float            # tokens a second
    floor: float           # what the machine gave beside it: bytes or multiply-adds a second
    probes: tuple          # ns there and back, before and after; 0: not known

    def is_good(self):
        return not any(0 < ns < SAME_CORE_NS for ns in self.probes)


def good(sample):
    return sample is not None and sample.is_good()


def median_ratio(ours, theirs):
    """Median over the rounds of ours / theirs, of rounds in which both samples are good; None without any."""
    pairs = [a.rate / b.rate for a, b in zip(ours, theirs) if good(a) and good(b)]
    return statistics.median(pairs) if pairs else None


def median_of(samples, value):
    values = [value(sample) for sample in samples if good(sample)]
    return statistics.median(values) if values else None


class Summary(NamedTuple):
    rate: Optional[float]
    low: Optional[float]
    high: Optional[float]
    floor: Optional[float]   # units of the floor a second
    share: Optional[float]   # rate * cost / floor, of each sample; the median
    ratio: Optional[float]   # ours / this one
    n: int
    dropped: int


def summarise(samples, ours, cost):
    """`cost`: units of the floor that a token takes."""
    rates = [sample.rate for sample in samples if good(sample)]
    return Summary(rate=statistics.median(rates) if rates else None, low=min(rates, default=None),
                   high=max(rates, default=None), floor=median_of(samples, lambda s: s.floor),
                   share=median_of(samples, lambda s: s.rate * cost / s.floor), ratio=median_ratio(ours, samples),
                   n=len(rates), dropped=sum(sample is not None and not sample.is_good() for sample in samples))


def run_round(children, line, gauge, floor_line, on_end):
    """One sample of each child; `gauge` measures probe and floor before, between and after them."""
    samples = {}
    probe, floor = gauge.ask("probe"), gauge.ask(floor_line)
    for child in children:
        rate = None
        try:
            rate = child.ask(line)
        except Exception as error:  # pylint: disable=broad-except
            on_end(child, error)
        time.sleep(SETTLE_S)
        probe_after, floor_after = gauge.ask("probe"), gauge.ask(floor_line)
        if rate:
            samples[child.name] = Sample(rate, (floor + floor_after) / 2, (probe, probe_after))
        probe, floor = probe_after, floor_after
    return samples


def interleave(children, line, gauge, floor_line, rounds, on_end):
    """`rounds` rounds of all children in turns, every other one backwards, after one that warms up; while samples had
    to be dropped, up to twice as many. {name: [Sample or None]}, a list entry a round."""
    alive = list(children)
    taken = {child.name: [] for child in children}

    def drop(child, error):
        alive.remove(child)
        on_end(child, error)

    run_round(list(alive), line, gauge, floor_line, drop)
    for turn in range(2 * rounds):
        samples = run_round(alive[::-1] if turn % 2 else list(alive), line, gauge, floor_line, drop)
        for name, series in taken.items():
            series.append(samples.get(name))
        if all(sum(map(good, taken[child.name])) >= rounds for child in alive):
            break
    return taken
