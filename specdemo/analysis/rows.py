"""The runs of a measurement, and the figures of each contender. Counts and seconds are kept, and divided last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import zip_longest
from math import fsum
from typing import Any

from specdemo.analysis.contenders import PLAIN, Contender
from specdemo.analysis.report import by_repeat, middle, over_repeats, paired, speed, speedup_fields
from specdemo.metrics import Metrics, RoundCounts, Totals, costs_of, ratio, shares_by_position, totals
from specdemo.settings import Settings
from specdemo.theory import expected_speedup, leviathan_speedup, predicted_speedup, tokens_per_round

COLUMNS = [f.name for f in fields(RoundCounts) if f.name != "offered"]
"""Of a round in a file; costs are not made of trees."""


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run of a contender.

    Attributes:
        contender: who decoded.
        prompt, repeat: which run it was, from 0. Contenders are compared within a repeat.
        steps: its rounds.
        figures: of a run on a server, which has no steps.
        wall_seconds: what it took, prefill and all.
        memory: peak in bytes, as of :class:`specdemo.trace.Trace`.
    """

    contender: Contender
    prompt: int
    repeat: int
    steps: tuple[RoundCounts, ...] = ()
    figures: Metrics | None = None
    wall_seconds: float = 0.0
    memory: int | None = None

    @property
    def gamma(self) -> int | None:
        """0 of plain decoding."""
        return 0 if self.contender == PLAIN else self.contender.gamma

    @property
    def work(self) -> int:
        """The prompt."""
        return self.prompt

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

    @property
    def speed(self) -> float | None:
        """Tokens a second; None where it ended with its first token."""
        return ratio(self.emitted or None, self.seconds)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as in the report's JSON: counts and seconds, or a server's figures."""
        which = {"gamma": self.gamma, "prompt": self.prompt, "repeat": self.repeat}
        if self.figures is not None:
            return {**which, **self.figures.as_dict()}
        sums = totals(self.steps)
        names = ("rounds", "proposed", "accepted", "emitted", "draft_seconds", "verify_seconds", "other_seconds")
        return {
            **which,
            **{name: getattr(sums, name) for name in names},
            "seconds": self.seconds,
            # Costs are medians over rounds, so their figures need every one; a table is shorter than its records.
            "columns": COLUMNS,
            "steps": [[getattr(step, name) for name in COLUMNS] for step in self.steps],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], drafter: str) -> Run:
        """The run of this machine that :meth:`as_dict` made into plain data."""
        steps = (RoundCounts(**dict(zip(data["columns"], step, strict=True))) for step in data["steps"])
        contender = Contender(drafter, data["gamma"]) if data["gamma"] else PLAIN
        return cls(contender, data["prompt"], data["repeat"], tuple(steps))


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one contender; None where nothing was measured.

    Attributes:
        settings: that decode so.
        method, width: what people call its drafter, and how much it drafts, in words.
        gamma: drafted tokens a round; None of plain decoding, where γ is chosen anew in every round, and where a
            server does not say.
        prompts, runs: how many it decoded.
        rounds, proposed, accepted, emitted: counts over all runs, the prefills not counted.
        acceptance_rate: Σ accepted / Σ proposed.
        mean_acceptance_length: τ, emitted / rounds.
        tokens_per_second, plain_tokens_per_second: decode speed of all prompts together, with and without drafts,
            in the repeat whose speed-up is the middle one; in advice the first is of all its runs.
        tokens_per_second_low, tokens_per_second_high: the slowest and the fastest repeat.
        speedup: plain decoding's seconds a token / its own, over all prompts, each repeat against the plain runs
            of the same repeat; median over the repeats, of an even number the lower middle. In advice, where a
            repeat is of one prompt, the geometric mean over the prompts.
        speedup_low, speedup_high: the worst and the best repeat.
        interval, interval_over: of advice the speed-up's 95 % interval, low and high, and what it is over:
            ``prompts`` where it is for prompts like these; ``runs`` where there are too few of them.
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
        memory: the largest peak of its runs, bytes.
        seconds: what its runs took, prefills and all; of advice those that count for no figure included.
        verdict, dropped: how it stands in advice, and why it was not measured further.
    """

    settings: Settings
    method: str
    width: str
    gamma: int | None
    prompts: int
    runs: int
    rounds: int | None
    proposed: int | None
    accepted: int | None
    emitted: int
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    tokens_per_second: float | None
    plain_tokens_per_second: float | None
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
    memory: int | None
    seconds: float
    interval: list[float] | None = None
    interval_over: str | None = None
    verdict: str = ""
    dropped: str | None = None

    @property
    def name(self) -> str:
        """Method and γ, as sentences have them."""
        return f"{self.method}, {self.width}" if self.width else self.method

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON and tables."""
        return asdict(self)


def figures_of(
    contender: Contender, shared: Settings, runs: Sequence[Run], plain: Sequence[Run], gamma: int | None = None
) -> dict[str, Any]:
    """The fields of a row, from a contender's runs against the plain runs of the same prompts and repeats.

    Of a server's runs only counts and speeds are known; a count that one of them lacks is None.

    Args:
        contender: whose runs these are.
        shared: the settings of all contenders.
        runs, plain: its runs, and those of plain decoding.
        gamma: of a server, if it says; else the contender's.
    """
    gamma = contender.gamma if gamma is None else gamma
    steps = [s for run in runs for s in run.steps]
    figures = [run.figures for run in runs if run.figures is not None]
    sums = _of_server(figures) if figures else totals(steps, gamma)
    pairs, lengths = paired(runs, plain), Counter(s.drafted for s in steps)
    counts = ([[s for run in some for s in run.steps] for some in pair] for pair in pairs)
    every = [costs_of(drafted, gamma or 0, single) for drafted, single in counts]
    costs = [cost for cost in every if cost is not None]
    c, v, o = (middle(cost[i] for cost in costs) for i in range(3))
    shares = [share or 0.0 for share in sums.conditional]  # what was never reached was never kept
    expected = leviathan = None
    if gamma and c is not None and v is not None:
        expected = expected_speedup(tokens_per_round(shares), gamma, c, v)
        leviathan = None if sums.alpha is None else leviathan_speedup(sums.alpha, gamma, c)
    return {
        "settings": contender.settings(shared),
        "method": contender.method,
        "width": contender.width,
        "gamma": gamma,
        "prompts": len({run.prompt for run in runs}),
        "runs": len(runs),
        "rounds": sums.rounds,
        "proposed": sums.proposed,
        "accepted": sums.accepted,
        "emitted": sums.emitted,
        "acceptance_rate": sums.acceptance_rate,
        "mean_acceptance_length": sums.mean_acceptance_length if contender != PLAIN else 1.0,
        **over_repeats("tokens_per_second", map(speed, by_repeat(runs))),
        **speedup_fields(pairs),
        "predicted_speedup": middle(predicted_speedup(shares, lengths, *cost) for cost in costs),
        "expected_speedup": expected,
        "leviathan_speedup": leviathan,
        "draft_cost": c,
        "verify_cost": v,
        "overhead_cost": o,
        "accepted_histogram": sums.histogram,
        "per_position": sums.per_position,
        "conditional_per_position": sums.conditional,
        "draft_seconds": ratio(sums.draft_seconds, sums.rounds),
        "verify_seconds": ratio(sums.verify_seconds, sums.rounds),
        "other_seconds": ratio(sums.other_seconds, sums.rounds),
        "memory": max((run.memory for run in runs if run.memory is not None), default=None),
        "seconds": fsum(run.wall_seconds for run in runs),
    }


def _of_server(figures: list[Metrics]) -> Totals:
    """The totals of a server's runs."""
    rounds, proposed, accepted = (_sum(figures, name) for name in ("rounds", "proposed", "accepted"))
    histogram = [sum(column) for column in zip_longest(*(m.accepted_histogram for m in figures), fillvalue=0)]
    if not rounds or sum(histogram) != rounds:
        histogram = []
    return Totals(
        rounds,
        proposed,
        accepted,
        sum(m.emitted or 0 for m in figures),
        histogram=histogram,
        per_position=shares_by_position(histogram, rounds or 0),
    )


def _sum(figures: list[Metrics], name: str) -> int | None:
    values = [getattr(m, name) for m in figures]
    return None if None in values else sum(values)
