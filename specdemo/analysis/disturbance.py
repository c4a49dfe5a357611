"""Was the machine quiet while a plain and a drafted run were timed? The one place that doubts a speed-up.

Of one prompt under fixed settings the tokens of a round are given; what differs from run to run is how long its
rounds take. So only times are judged: against the usual ones of the same run, and against what a round must cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from statistics import median

from specdemo.analysis.reasons import impossible_check
from specdemo.metrics import RoundCounts, usual_draft

LEAST_ROUNDS = 3
"""Rounds of a stretch, and rounds of one length from which their usual time is known."""
FEWEST = 16
"""Tokens that every lane must have decoded: for a speed-up where a run was stopped, else for one in large type."""
DRIFT = 1.25
"""Ratio of a plain lane's slowest stretch to its fastest, by medians, from which on the machine was not the same.

Longer contexts make steps slower too, but by less within one run of this app."""
APART = 1.15
"""How far the speed-up at usual step times may be from the measured one."""
MOST_OF_TAU = 1.05
"""A round costs a plain step at least, so no speed-up is above τ; by so much steps may differ by chance."""
SAME_ROWS = 0.995
"""Share of a plain batch's rows from which on a drafted batch had as many; of fewer rows a pass is cheaper."""
BUSY = "The machine was busy with other work, so no speed-up can be told."
QUIETER = "Close what else runs, and measure again."


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the rounds of a run took, its prefill left out, and how long they usually take.

    Attributes:
        emitted, speed: tokens, and tokens a second.
        usual: the same if every round had taken the usual time of its length, which no hiccup moves; those of a
            rare length the time they took; None if none was usual, and of a batch.
        forward: seconds of a target forward over the drafts of most rounds, median; of a batch the mean of all.
        tau: tokens a round; None where several rows share one, since the batch shrinks as rows end.
        rows: decoded together, in the mean over the rounds.
        quarters: the median target step of each quarter; empty of few steps.
    """

    emitted: int
    speed: float
    usual: float | None = None
    forward: float | None = None
    tau: float | None = None
    rows: float = 1.0
    quarters: tuple[float, ...] = ()


def pace_of(rounds: Sequence[RoundCounts]) -> Pace | None:
    """The pace of a lane on this machine; None where it ended with its prefill."""
    emitted, seconds, length = sum(r.emitted for r in rounds), fsum(r.seconds for r in rounds), usual_draft(rounds)
    if not emitted or not seconds:
        return None
    usual = usual_seconds(rounds)
    forwards = [r.verify_seconds for r in rounds if r.drafted == length and r.verify_seconds is not None]
    return Pace(
        emitted,
        emitted / seconds,
        emitted / fsum(usual.get(r.drafted, r.seconds) for r in rounds) if usual else None,
        median(forwards) if len(forwards) >= LEAST_ROUNDS else None,
        emitted / len(rounds),
        quarters=quarters([r.verify_seconds for r in rounds if r.verify_seconds is not None]),
    )


def disturbance(plain: Pace | None, drafted: Pace | None, alike: bool = True) -> str | None:
    """A sentence on what shows that the machine did other work while two lanes ran; None if nothing does.

    Args:
        plain, drafted: of the baseline, and of the lane that is compared with it.
        alike: whether the baseline is plain and has the lane's weights, so that a round costs a step at least.
    """
    if plain is None or drafted is None:
        return None
    found = drafted.speed / plain.speed
    timed = min(plain.emitted, drafted.emitted) >= FEWEST
    if alike:
        if timed and (said := drift(plain.quarters)):
            return said
        if drafted.tau and found > MOST_OF_TAU * drafted.tau:
            return f"Rounds that keep {drafted.tau:.2f} tokens seemed cheaper than plain steps."
        v = drafted.forward / plain.forward if drafted.forward and plain.forward and timed else None
        if drafted.rows >= SAME_ROWS * plain.rows and (said := impossible_check(v)):
            return f"{said}."
    usual = drafted.usual / plain.usual if drafted.usual and plain.usual and timed else found
    return "Some steps took far longer than most." if max(found / usual, usual / found) > APART else None


def usual_seconds(rounds: Sequence[RoundCounts]) -> dict[int, float]:
    """The median time of a round by its number of drafted tokens, where there were enough of them."""
    times: dict[int, list[float]] = {}
    for round_ in rounds:
        times.setdefault(round_.drafted, []).append(round_.seconds)
    return {drafted: median(found) for drafted, found in times.items() if len(found) >= LEAST_ROUNDS}


def quarters(steps: Sequence[float]) -> tuple[float, ...]:
    """The median step of each quarter of a plain lane; empty where it is too short."""
    quarter = len(steps) // 4
    if quarter < LEAST_ROUNDS:
        return ()
    return tuple(median(steps[n * quarter : (n + 1) * quarter]) for n in range(4))


def drift(steps: Sequence[float]) -> str | None:
    """A sentence on plain steps that took unlike times; None where they were alike or unknown."""
    if not steps or not min(steps) or max(steps) <= DRIFT * min(steps):
        return None
    return f"A plain step took {1000 * min(steps):.3g} ms at one time and {1000 * max(steps):.3g} at another."
