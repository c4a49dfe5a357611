"""The runs of a measurement, and the figures of each contender. Counts and seconds are kept, and divided last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from math import fsum, inf
from statistics import fmean, median
from typing import Any

from specdemo.analysis.batch_metrics import BatchMetrics
from specdemo.analysis.contenders import SERVER, Contender
from specdemo.analysis.disturbance import Pace, pace_of
from specdemo.analysis.load_metrics import LoadMetrics, added
from specdemo.metrics import Metrics, RoundCounts, Totals, costs_of, ratio, totals
from specdemo.settings import Settings
from specdemo.theory import expected_speedup, predicted_speedup, tokens_per_round

COLUMNS = [f.name for f in fields(RoundCounts) if f.name != "offered"]
"""Of a round in a file; costs are not made of trees."""
SPEEDUPS = ("speedup", "speedup_low", "speedup_high", "predicted_speedup", "expected_speedup")
"""What is measured or predicted of a row's speed."""


@dataclass(frozen=True)
class Run:
    """One finished run of a contender, one batch, or all requests of so many users.

    Attributes:
        contender: who decoded.
        prompt: which of the prompts, or which batch of them, from 0.
        repeat: from 0. Contenders are compared within a repeat.
        steps: its rounds.
        figures: of a batch, and of a run or of requests on a server, which have no steps.
        wall_seconds: what it took, prefill and all.
        memory: peak in bytes, as of :class:`specdemo.trace.Trace`.
    """

    contender: Contender
    prompt: int
    repeat: int
    steps: tuple[RoundCounts, ...] = ()
    figures: Metrics | BatchMetrics | LoadMetrics | None = None
    wall_seconds: float = 0.0
    memory: int | None = None

    @property
    def gamma(self) -> int | None:
        """0 of plain decoding."""
        return self.contender.gamma if self.contender.family else 0

    @property
    def emitted(self) -> int:
        """Tokens after the prefill's; of users' requests all."""
        if isinstance(self.figures, LoadMetrics):
            return self.figures.output or 0
        return sum(s.emitted for s in self.steps) if self.figures is None else self.figures.emitted or 0

    @property
    def seconds(self) -> float:
        """Lane time after the prefill; of users' requests from the first to the last."""
        if isinstance(self.figures, LoadMetrics):
            return self.figures.seconds
        if self.figures is not None:
            return self.figures.seconds - (self.figures.ttft or 0.0)
        return fsum(s.seconds for s in self.steps)

    @property
    def speed(self) -> float | None:
        """Tokens a second; None where it ended with its first token."""
        return ratio(self.emitted or None, self.seconds)

    @cached_property
    def pace(self) -> Pace | None:
        """How steady it was; of llama.cpp, started from here, without its steps. None on other servers, whose
        network and hardware have times of their own, and without a speed.
        """
        if self.contender.family == SERVER:
            return None
        if isinstance(self.figures, Metrics):
            tau = self.figures.mean_acceptance_length
            return None if self.speed is None else Pace(self.emitted, self.speed, tau=tau)
        return pace_of(self.steps) if self.figures is None else self.figures.pace

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as in the report's JSON: who, what, and every round or the figures."""
        names = ("gamma", "prompt", "repeat", "seconds", "emitted", "wall_seconds", "memory")
        which: dict[str, Any] = asdict(self.contender) | {name: getattr(self, name) for name in names}
        if self.figures is not None:
            return {**which, "figures": asdict(self.figures)}
        # Costs are medians over rounds, so their figures need every one; a table is shorter than its records.
        return {**which, "columns": COLUMNS, "steps": [[getattr(s, name) for name in COLUMNS] for s in self.steps]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Run:
        """The run of this machine that :meth:`as_dict` made into plain data."""
        contender = Contender(data["family"], data["gamma"] or None, data["tree"], data["size"], data["p_min"])
        steps = tuple(RoundCounts(**dict(zip(data["columns"], s, strict=True))) for s in data.get("steps", ()))
        found = data.get("figures")
        figures = found and BatchMetrics(**{each.name: found[each.name] for each in fields(BatchMetrics)})
        return cls(contender, data["prompt"], data["repeat"], steps, figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Totals):
    """The figures of one contender over all its runs; None where nothing was measured.

    Attributes:
        settings: that decode so.
        method, width: what people call its drafter, and how much it drafts, in words.
        gamma: drafted tokens a round; None of plain decoding, where γ is chosen anew in every round, and where a
            server does not say.
        size: prompts decoded together, or users.
        prompts, runs: how many different prompts, or batches of them, it decoded, and how often in all.
        speedup: plain decoding's seconds a token / its own, over all prompts, each repeat against the plain runs
            of the same repeat; median over the repeats. In advice, where a repeat is of one prompt, the geometric
            mean over the prompts.
        speedup_low, speedup_high: the worst and the best repeat.
        tokens_per_second, plain_tokens_per_second: decode speed of all prompts together, with and without drafts,
            in the repeat whose speed-up is shown, so that they divide; means of the middle two of an even number.
            In advice the first is of all its runs.
        tokens_per_second_low, tokens_per_second_high: the slowest and the fastest repeat.
        ttft, user_tokens_per_second: of users' requests: median, lowest and highest of the repeats' medians.
        predicted_speedup: :func:`specdemo.theory.predicted_speedup` of what follows: acceptance by
            position, costs, and the lengths that rounds really had; median over the repeats.
        expected_speedup: τ(γ)/(γc + v), for endless decoding without overhead.
        draft_cost: c, median draft step / median target step, over rounds of full length.
        verify_cost: v(γ), median verify of γ+1 tokens / median target step.
        overhead_cost: o, median other time of a round / median target step.
        other_share: of the time after the prefills, what passed outside model forwards.
        memory: the largest peak of its runs, bytes.
        seconds: what its runs took, prefills and all; of advice those that count for no figure included.
        interval, interval_over: of advice the speed-up's 95 % interval, low and high, and what it is over:
            ``prompts`` where it is for prompts like these; ``runs`` where there are too few of them.
        verdict, dropped: how it stands in advice, and why it was not measured further.
        doubt: why its times are not to be relied on; then no speed-up is shown, only what it cannot pass.
        copied: of drafters in a row, the share of the rounds in which the one that copies drafted.
        kind: of advice by kind of prompts, that of these.
    """

    settings: Settings
    method: str
    width: str
    gamma: int | None
    size: int
    prompts: int
    runs: int
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    tokens_per_second: float | None
    plain_tokens_per_second: float | None
    tokens_per_second_low: float | None
    tokens_per_second_high: float | None
    ttft: list[float] | None
    user_tokens_per_second: list[float] | None
    predicted_speedup: float | None
    expected_speedup: float | None
    draft_cost: float | None
    verify_cost: float | None
    overhead_cost: float | None
    other_share: float | None
    memory: int | None
    seconds: float
    interval: list[float] | None = None
    interval_over: str | None = None
    verdict: str = ""
    dropped: str | None = None
    doubt: str | None = None
    copied: float | None = None
    kind: str | None = None

    @property
    def name(self) -> str:
        return f"{self.method}, {self.width}" if self.width else self.method

    @property
    def most(self) -> float | None:
        """τ, which no speed-up can pass; None where rows share a round, and on a server."""
        return self.mean_acceptance_length if self.size == 1 and self.verify_seconds is not None else None

    @property
    def shown(self) -> Row:
        """The same with its speed-ups as they may be shown: at most what its rounds allow; none if in doubt."""
        most, known = self.most or inf, {name: getattr(self, name) for name in SPEEDUPS}
        shown: dict[str, Any] = {
            name: None if self.doubt or v is None else min(v, most) for name, v in known.items()
        }
        ends = None if self.doubt or not self.interval else [min(end, most) for end in self.interval]
        return replace(self, **shown, interval=ends)

    @property
    def range(self) -> tuple[float, float, float]:
        """Speed-up, worst and best repeat; 0 where nothing was measured."""
        return self.speedup or 0.0, self.speedup_low or 0.0, self.speedup_high or 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: its own figures first, then the totals and what follows from them."""
        own, sums = asdict(self), [each.name for each in fields(Totals)]
        follow = {name: getattr(self, name) for name in ("acceptance_rate", "mean_acceptance_length")}
        return {name: own[name] for name in own if name not in sums} | follow | {name: own[name] for name in sums}


def row_of(
    contender: Contender, shared: Settings, runs: Sequence[Run], plain: Sequence[Run], gamma: int | None = None
) -> Row:
    """The row of a contender, from its runs against the plain runs of the same prompts and repeats.

    Of a server's runs only counts and speeds are known; a count that one of them lacks is None.

    Args:
        contender: whose runs these are.
        shared: the settings of all contenders.
        runs, plain: its runs, and those of plain decoding.
        gamma: of a server, if it says; else the contender's.
    """
    gamma = contender.gamma if gamma is None else gamma
    steps, figures = [s for run in runs for s in run.steps], [run.figures for run in runs if run.figures]
    sums = added(figures) if figures else totals(steps, gamma)
    if not contender.family:  # each round gave a token, also where a server does not count them
        sums = replace(sums, rounds=sums.emitted)
    pairs, lengths = paired(runs, plain), Counter(s.drafted for s in steps)
    counts = ([[s for run in some for s in run.steps] for some in pair] for pair in pairs)
    costs = [cost for drafted, single in counts if (cost := costs_of(drafted, gamma or 0, single)) is not None]
    c, v, o = (median(cost[i] for cost in costs) for i in range(3)) if costs else (None, None, None)
    shares = [share or 0.0 for share in sums.conditional_per_position]  # what was never reached was never kept
    expected = None
    if gamma and c is not None and v is not None:
        expected = expected_speedup(tokens_per_round(shares), gamma, c, v)
    speeds = [found for some in by_repeat(runs) if (found := speed(some)) is not None]
    speedups = sorted((fast / slow, fast, slow) for a, b in pairs if (fast := speed(a)) and (slow := speed(b)))
    middle = speedups[(len(speedups) - 1) // 2 : len(speedups) // 2 + 1]  # one, or two of an even number
    speedup, rate = (fmean(found[i] for found in middle) if middle else None for i in range(2))
    phases = (sums.draft_seconds, sums.verify_seconds, sums.other_seconds)
    return Row(
        **{each.name: getattr(sums, each.name) for each in fields(sums)},
        settings=contender.settings(shared),
        method=contender.method,
        width=contender.width,
        gamma=gamma,
        size=contender.size,
        prompts=len({run.prompt for run in runs}),
        runs=len(runs),
        speedup=speedup,
        speedup_low=speedups[0][0] if speedups else None,
        speedup_high=speedups[-1][0] if speedups else None,
        tokens_per_second=rate,
        plain_tokens_per_second=ratio(rate, speedup),
        tokens_per_second_low=min(speeds, default=None),
        tokens_per_second_high=max(speeds, default=None),
        ttft=_of_requests(runs, "ttft"),
        user_tokens_per_second=_of_requests(runs, "user_tokens_per_second"),
        predicted_speedup=median(predicted_speedup(shares, lengths, *cost) for cost in costs) if costs else None,
        expected_speedup=expected,
        draft_cost=c,
        verify_cost=v,
        overhead_cost=o,
        other_share=ratio(sums.other_seconds, fsum(seconds or 0.0 for seconds in phases)),
        memory=max((run.memory for run in runs if run.memory is not None), default=None),
        seconds=fsum(run.wall_seconds for run in runs),
        copied=ratio(sum(s.copied for s in steps), len(steps)) if "," in contender.family else None,
    )


def by_repeat(runs: Sequence[Run]) -> list[list[Run]]:
    return [[r for r in runs if r.repeat == n] for n in sorted({r.repeat for r in runs})]


def paired(drafted: Sequence[Run], plain: Sequence[Run]) -> list[tuple[list[Run], list[Run]]]:
    """(drafted, plain) runs of each repeat, of the prompts that both have finished."""
    pairs = []
    for mine in by_repeat(drafted):
        theirs = [r for r in plain if r.repeat == mine[0].repeat]
        both = {r.prompt for r in mine} & {r.prompt for r in theirs}
        if both:
            pairs.append(([r for r in mine if r.prompt in both], [r for r in theirs if r.prompt in both]))
    return pairs


def speed(runs: Sequence[Run]) -> float | None:
    """Tokens a second of several runs, one after the other."""
    return ratio(sum(r.emitted for r in runs), fsum(r.seconds for r in runs))


def _of_requests(runs: Sequence[Run], name: str) -> list[float] | None:
    """A figure of users' requests: median, lowest and highest of the repeats' medians."""
    lists = [getattr(run.figures, name) for run in runs if isinstance(run.figures, LoadMetrics)]
    medians = [median(known) for values in lists if (known := [v for v in values if v is not None])]
    return [median(medians), min(medians), max(medians)] if medians else None
