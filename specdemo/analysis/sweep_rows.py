"""The figures of one γ of a sweep. Runs keep raw counts and seconds; everything is divided last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import fsum
from statistics import median
from typing import Any

from specdemo.analysis.metrics import Metrics, kept_where_tested, ratio
from specdemo.theory import expected_speedup, leviathan_speedup, predicted_speedup, tokens_per_round
from specdemo.trace import Round


@dataclass(frozen=True, slots=True)
class Step:
    """What a round after the prefill counted and took, in seconds."""

    drafted: int
    accepted: int
    emitted: int
    draft_seconds: float
    verify_seconds: float
    other_seconds: float

    @property
    def seconds(self) -> float:
        return self.draft_seconds + self.verify_seconds + self.other_seconds


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One finished run: which it was, and its rounds. ``gamma`` 0 is plain decoding; the rest counts from 0.

    On a server γ is None, the server's own; such a run has figures in place of steps.
    """

    gamma: int | None
    prompt: int
    repeat: int
    steps: tuple[Step, ...]
    figures: Metrics | None = None

    @property
    def emitted(self) -> int:
        """Tokens after the prefill's."""
        return sum(s.emitted for s in self.steps) if self.figures is None else self.figures.emitted or 0

    @property
    def seconds(self) -> float:
        """Lane time after the prefill."""
        if self.figures is not None:
            return self.figures.seconds - (self.figures.ttft or 0.0)
        return fsum(s.seconds for s in self.steps)


def steps_of(rounds: Iterable[Round]) -> tuple[Step, ...]:
    """Rounds without their tokens, the prefill left out."""
    return tuple(
        Step(r.drafted, r.accepted, len(r.emitted), r.draft_seconds, r.verify_seconds, r.other_seconds)
        for r in rounds
        if r.index > 0
    )


@dataclass(frozen=True, slots=True)
class SweepRow:
    """The figures of one γ over all prompts and repeats; None where nothing was measured yet.

    Attributes:
        gamma: drafted tokens a round; None if a server does not say.
        runs: finished runs.
        rounds, proposed, accepted, emitted: counts over all runs, the prefills not counted.
        acceptance_rate: Σ accepted / Σ proposed.
        mean_acceptance_length: τ, emitted / rounds.
        tokens_per_second: decode speed of all prompts together, median over the repeats.
        tokens_per_second_low, tokens_per_second_high: the slowest and the fastest repeat.
        speedup: plain decoding's seconds a token / this γ's, over all prompts, each repeat against the plain
            runs of the same repeat; median over the repeats.
        speedup_low, speedup_high: the worst and the best repeat.
        predicted_speedup: :func:`specdemo.theory.predicted_speedup` of what follows: acceptance by
            position, costs, and the lengths that rounds really had; median over the repeats.
        expected_speedup: τ(γ)/(γc + v), for endless decoding without overhead.
        leviathan_speedup: with one α for all positions and v = 1.
        draft_cost: c, median draft step / median target step, over rounds of full length.
        verify_cost: v(γ), median verify of γ+1 tokens / median target step.
        overhead_cost: o, median other time of a round / median target step.
        accepted_histogram: rounds with i accepted tokens, i from 0 to γ.
        per_position: share of the rounds with more than j accepted tokens, j from 0.
        conditional_per_position: of the rounds in which drafted token j was reached, the share that kept it.
        draft_seconds, verify_seconds, other_seconds: of a round in the mean.
    """

    gamma: int | None
    runs: int
    rounds: int | None
    proposed: int | None
    accepted: int | None
    emitted: int
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    tokens_per_second: float | None
    tokens_per_second_low: float | None
    tokens_per_second_high: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    predicted_speedup: float | None
    expected_speedup: float | None
    leviathan_speedup: float | None
    draft_cost: float | None
    verify_cost: float | None
    overhead_cost: float | None
    accepted_histogram: list[int]
    per_position: list[float]
    conditional_per_position: list[float | None]
    draft_seconds: float | None
    verify_seconds: float | None
    other_seconds: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON and tables."""
        return asdict(self)


def row_of(gamma: int, runs: list[SweepRun], plain: list[SweepRun]) -> SweepRow:
    """The figures of one γ from its runs, against the plain runs of the same prompts and repeats."""
    steps = [s for run in runs for s in run.steps]
    rounds, emitted = len(steps), sum(s.emitted for s in steps)
    proposed, accepted = sum(s.drafted for s in steps), sum(s.accepted for s in steps)
    histogram = [0] * (gamma + 1)
    for step in steps:
        histogram[step.accepted] += 1
    speeds = [v for v in map(speed, by_repeat(runs).values()) if v is not None]
    pairs = _pairs(runs, plain)
    faster = speedups(runs, plain)
    kept = [kept_where_tested(steps, j) for j in range(gamma)]
    costs = [c for c in (_costs(gamma, *pair) for pair in pairs) if c is not None]
    c, v, o = (middle(cost[i] for cost in costs) for i in range(3))
    alpha = ratio(accepted, sum(min(s.accepted + 1, s.drafted) for s in steps))
    return SweepRow(
        gamma=gamma,
        runs=len(runs),
        rounds=rounds,
        proposed=proposed,
        accepted=accepted,
        emitted=emitted,
        acceptance_rate=ratio(accepted, proposed),
        mean_acceptance_length=ratio(emitted, rounds),
        tokens_per_second=middle(speeds),
        tokens_per_second_low=min(speeds, default=None),
        tokens_per_second_high=max(speeds, default=None),
        speedup=middle(faster),
        speedup_low=min(faster, default=None),
        speedup_high=max(faster, default=None),
        predicted_speedup=middle(_predict(kept, steps, *cost) for cost in costs),
        expected_speedup=expected_speedup(tokens_per_round(_shares(kept)), gamma, c, v) if costs else None,
        leviathan_speedup=leviathan_speedup(alpha, gamma, c) if costs and alpha is not None else None,
        draft_cost=c,
        verify_cost=v,
        overhead_cost=o,
        accepted_histogram=histogram,
        per_position=[sum(histogram[j + 1 :]) / rounds for j in range(gamma)] if rounds else [],
        conditional_per_position=kept,
        draft_seconds=ratio(fsum(s.draft_seconds for s in steps), rounds),
        verify_seconds=ratio(fsum(s.verify_seconds for s in steps), rounds),
        other_seconds=ratio(fsum(s.other_seconds for s in steps), rounds),
    )


def speedups(runs: list[SweepRun], plain: list[SweepRun]) -> list[float]:
    """Plain decoding's seconds a token over these runs', in each repeat that has both."""
    return [v for v in (_speedup(*pair) for pair in _pairs(runs, plain)) if v is not None]


def _pairs(runs: list[SweepRun], plain: list[SweepRun]) -> list[tuple[list[SweepRun], list[SweepRun]]]:
    """(drafted, plain) runs of each repeat, on the prompts of which both are finished."""
    baselines = by_repeat(plain)
    pairs = []
    for repeat, drafted in by_repeat(runs).items():
        both = {r.prompt for r in drafted} & {r.prompt for r in baselines.get(repeat, [])}
        if both:
            sides = (drafted, baselines[repeat])
            pairs.append(tuple([r for r in side if r.prompt in both] for side in sides))
    return pairs


def by_repeat(runs: list[SweepRun]) -> dict[int, list[SweepRun]]:
    """The runs of each repeat."""
    return {n: [r for r in runs if r.repeat == n] for n in sorted({r.repeat for r in runs})}


def speed(runs: list[SweepRun]) -> float | None:
    """Tokens a second of several runs together."""
    return ratio(sum(r.emitted for r in runs), fsum(r.seconds for r in runs))


def _speedup(drafted: list[SweepRun], plain: list[SweepRun]) -> float | None:
    fast, slow = speed(drafted), speed(plain)
    return fast / slow if fast and slow else None


def _costs(gamma: int, drafted: list[SweepRun], plain: list[SweepRun]) -> tuple[float, float, float, float] | None:
    """(c, v, o, o₀) of one repeat, by medians, which a single hiccup does not move; None without full rounds."""
    full = [s for run in drafted for s in run.steps if s.drafted == gamma]
    singles = [s for run in plain for s in run.steps]
    step = median(s.verify_seconds for s in singles) if singles else 0.0
    if not full or not step:
        return None
    return (
        median(s.draft_seconds for s in full) / gamma / step,
        median(s.verify_seconds for s in full) / step,
        median(s.other_seconds for s in full) / step,
        median(s.other_seconds for s in singles) / step,
    )


def _predict(kept: list[float | None], steps: list[Step], c: float, v: float, o: float, plain_o: float) -> float:
    return predicted_speedup(_shares(kept), Counter(s.drafted for s in steps), c, v, o, plain_o)


def _shares(kept: list[float | None]) -> list[float]:
    """What was never reached was never kept."""
    return [share or 0.0 for share in kept]


def middle(values: Iterable[float | None]) -> float | None:
    """Median of the values there are."""
    known = [v for v in values if v is not None]
    return median(known) if known else None
