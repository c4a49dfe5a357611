"""Which lane of a race is judged against which, and how sure its speed-up is: intervals, and what casts doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, fsum, log, sqrt
from statistics import fmean, median, stdev

from specdemo.analysis.disturbance import (
    LEAST_ROUNDS,
    MOST_OF_TAU,
    disturbance,
    drift,
    pace_of,
    quarters,
    usual_seconds,
)
from specdemo.metrics import RoundCounts, counts_of
from specdemo.trace import Trace

STUDENT_95 = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Two-sided 95 % quantiles of Student's t by degrees of freedom."""
NORMAL_95 = 1.959964
MOST_STRETCHES, LEAST_STRETCHES = 10, 4
WIDE = 1.3
"""Ratio of an interval's ends from which on it is part of the answer."""
BETWEEN_MINUTES = 1.045
"""By how much one machine's speed-ups drift within minutes with nothing else running, as a factor.

On two quiet cores of a shared host thirty races of three minutes lay between 0.955 and 1.045 of their median, the
slowest and the fastest of five neighbours within 1.05 (``python -m specdemo race --repeats 30``)."""
UNLIKE = "The runs differ widely: close what else keeps the machine busy, and repeat them."


@dataclass(frozen=True, slots=True)
class Speedup:
    """A lane's decode speed over its baseline's.

    Attributes:
        ratio: measured in one run, or the median of several; at most what their rounds allow.
        low, high: of one run the 95 % interval that its own rounds allow, or what is left of it where they are too
            few, from the measured speed-up to the one at usual step times; of several one for their median; None
            where too little was measured.
        runs: how many.
        doubt: a sentence on why it should not be taken at its word; None if nothing speaks against it. Then the
            bounds are shown in its place.
        most: that is tokens a round, over plain steps of the same weights on this machine.
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    runs: int = 1
    doubt: str | None = None
    most: float | None = None

    @property
    def open(self) -> bool:
        """Whether the interval holds both a gain and a loss."""
        return self.low is not None and self.high is not None and self.low < 1 < self.high


def is_plain(trace: Trace) -> bool:
    return trace.settings.strategy == "autoregressive"


def place_of(trace: Trace) -> str | None:
    """The server that a lane ran on; None is here."""
    return trace.server.name if trace.server else None


def plain_of(traces: Sequence[Trace], lane: Trace, same_weights: bool = True) -> Trace | None:
    """The first plain lane in the lane's place with its weights, or with others; others are another model."""
    near = (t for t in traces if is_plain(t) and place_of(t) == place_of(lane))
    return next((t for t in near if (t.quantization == lane.quantization) == same_weights), None)


def compared(traces: Sequence[Trace]) -> tuple[Trace, Trace] | None:
    """(baseline, lane) that a race's headline compares; None of a single lane, or where a speed is missing.

    The fastest lane that drafts is compared with its own plain lane, or with the first lane where there is none.
    Without a lane that drafts it is the fastest other lane against the first. The first lane takes part only
    if it has a plain lane to be compared with.
    """
    if len(traces) < 2 or not all(t.metrics().tokens_per_second for t in traces):
        return None
    drafting = [t for t in traces if not is_plain(t)]
    others = [t for t in drafting if t is not traces[0] or plain_of(traces, t)] or drafting or traces[1:]
    lane = max(others, key=lambda t: t.metrics().tokens_per_second or 0.0)
    baseline = plain_of(traces, lane) or traces[0]
    if baseline is lane:  # the only one that drafts comes first, and no plain lane has its weights
        lane = max(traces[1:], key=lambda t: t.metrics().tokens_per_second or 0.0)
        baseline = traces[0]
    return baseline, lane


def student_95(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t for any degrees of freedom, to three digits.

    From 10 on by Cornish and Fisher's expansion: Abramowitz and Stegun, 26.7.5.
    """
    if freedom < 2:
        return 12.706
    if freedom in STUDENT_95:
        return STUDENT_95[freedom]
    z, n = NORMAL_95, freedom
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + (z**3 + z) / 4 / n + second / n**2


def speedup_of(baseline: Trace, lane: Trace) -> Speedup | None:
    """The speed-up of one run; None where a speed is missing.

    Of lanes on servers there is no interval, and doubt only where the plain lane's own steps show it.
    """
    slow, fast = (trace.metrics().tokens_per_second for trace in (baseline, lane))
    if not slow or not fast:
        return None
    found = fast / slow
    if baseline.server or lane.server:
        steps = [later.seconds - earlier.seconds for earlier, later in pairwise(baseline.rounds)]
        said = drift(quarters(steps)) if is_plain(baseline) else None
        return Speedup(found, doubt=said and f"The speed was not steady: {said} Run it again.")
    plain, drafted = counts_of(baseline.rounds), counts_of(lane.rounds)
    slower, faster = pace_of(plain), pace_of(drafted)
    if slower is None or faster is None:
        return Speedup(found)
    same = baseline.quantization == lane.quantization and baseline.settings.engine == lane.settings.engine
    alike = is_plain(baseline) and same
    reason, most = disturbance(slower, faster, alike), faster.tau if alike else None
    ends: tuple[float, ...] = interval(found, plain, drafted) or (found, found)
    ratio = min(found, most or found)
    if slower.usual and faster.usual:
        ends = (*ends, faster.usual / slower.usual)
    elif reason is None:
        return Speedup(ratio, most=most)
    low, high = (min(end, most or end) for end in (min(ends), max(ends)))
    if reason is None and high <= WIDE * low:
        return Speedup(ratio, low, high, most=most)
    doubt = f"The machine was busy. {reason or 'One run cannot tell more: repeat it.'}"
    return Speedup(ratio, low, high, doubt=doubt, most=most)


def speedup_over_repeats(ratios: Sequence[float], most: float | None = None) -> Speedup:
    """Median of the speed-ups of several runs, and an interval of at least 94 % for the median of many.

    Whatever their distribution, the range of n independent runs covers its median with probability 1 − 2^{1−n},
    94 % for five (David and Nagaraja, Order Statistics, 2003, section 7.1). Where Student's 95 % interval of their
    logarithms is wider it is taken, since the range of five that are alike by chance is too narrow. Runs one after
    the other are not independent: from the median the interval goes at least :data:`BETWEEN_MINUTES` each way.

    Args:
        ratios: of each run, its speed over the baseline's.
        most: tokens a round, where no speed-up can pass them.
    """
    middle = median(ratios)
    low, high = min(ratios), max(ratios)
    if len(ratios) > 2:
        logs = [log(each) for each in ratios]
        half = student_95(len(ratios) - 1) * stdev(logs) / sqrt(len(ratios))
        low, high = min(low, exp(fmean(logs) - half)), max(high, exp(fmean(logs) + half))
    low, high = min(low, middle / BETWEEN_MINUTES), max(high, middle * BETWEEN_MINUTES)
    doubtful = high > WIDE * low or middle > MOST_OF_TAU * (most or middle)
    middle, low, high = (min(each, most or each) for each in (middle, low, high))
    return Speedup(middle, low, high, len(ratios), UNLIKE if doubtful else None, most)


def interval(
    speedup: float, plain: Sequence[RoundCounts], drafted: Sequence[RoundCounts]
) -> tuple[float, float] | None:
    """The 95 % interval of a speed-up whose lanes took turns; None where the rounds are too few.

    Batch means (Schmeiser, Operations Research 30, 1982): both lanes' clocks are cut into the same stretches.
    Lanes on their own clocks take turns, so a stretch of both is the same time on the machine, and what slowed
    both cancels. The variance of the ratio is that of its linear part (Cochran, Sampling Techniques, 1977,
    section 6.3).

    Args:
        speedup: the ratio itself.
        plain, drafted: the rounds of the baseline and of the lane, prefills left out.
    """
    shorter = min((plain, drafted), key=lambda rounds: fsum(r.seconds for r in rounds))
    stretches = min(MOST_STRETCHES, len(shorter) // LEAST_ROUNDS)
    if stretches < LEAST_STRETCHES:
        return None
    width = fsum(r.seconds for r in shorter) / stretches
    pace = [_slowness(rounds, width) for rounds in (plain, drafted)]
    longest = max(map(len, pace))
    parts = [0.0] * longest
    for sign, values in zip((1, -1), pace, strict=True):
        mean = fmean(values)
        for place, value in enumerate(values):
            parts[place] += sign * (value / mean - 1) / len(values)
    spread = sqrt(longest / (longest - 1) * fsum(part * part for part in parts))
    half = student_95(stretches - 1) * spread
    return speedup * exp(-half), speedup * exp(half)


def _slowness(rounds: Sequence[RoundCounts], width: float) -> list[float]:
    """Time over usual time of each stretch of a lane's clock; what is left over at the end joins the last one."""
    usual, whole = usual_seconds(rounds), fsum(r.seconds for r in rounds)
    count, clock = max(1, round(whole / width)), 0.0
    taken, expected = [0.0] * count, [0.0] * count
    for round_ in rounds:
        place = min(int(clock / width), count - 1)
        clock += round_.seconds
        taken[place] += round_.seconds
        expected[place] += usual.get(round_.drafted, round_.seconds)
    return [t / e for t, e in zip(taken, expected, strict=True) if e]
