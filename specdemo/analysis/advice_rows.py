"""The figures of one contender of an advisor's race."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import exp, fsum, log, sqrt
from statistics import fmean, stdev
from typing import Any

from specdemo.analysis.racing import SERVER, TREES, Contender
from specdemo.analysis.speedup import student_95
from specdemo.analysis.sweep_rows import SweepRun, row_of
from specdemo.drafters import DRAFTERS
from specdemo.metrics import ratio
from specdemo.settings import Settings

FEW_PROMPTS = 4
"""Fewer say nothing about prompts in general: the interval is then that of these prompts, over their runs."""


@dataclass(frozen=True, slots=True)
class AdviceRun:
    """One finished run of a contender.

    Attributes:
        place: of the contender.
        run: what it counted; its repeat is the block.
        wall_seconds: what it took of the budget, prefill and all.
        memory: peak in bytes, as of :class:`specdemo.trace.Trace`.
    """

    place: int
    run: SweepRun
    wall_seconds: float
    memory: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as in the report's JSON."""
        return {
            "place": self.place,
            "wall_seconds": self.wall_seconds,
            "memory": self.memory,
            "run": self.run.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class AdviceRow:
    """The figures of one contender; None where nothing was measured.

    Attributes:
        settings: that decode so.
        method: what people call it.
        width: how much it drafts, in words.
        gamma: drafted tokens a round; None of plain decoding, where γ is chosen anew in every round, and where a
            server does not say.
        tokens_per_second: decoded tokens / decode time of all its runs.
        speedup: geometric mean over the prompts of its speed over plain decoding's in the same block.
        interval: 95 % interval of it, low and high.
        interval_over: ``prompts`` where it is for prompts like these; ``runs`` where there are too few of
            them, and it is for these prompts alone.
        prompts, runs: how many it decoded, of blocks that have their plain run.
        tokens: that these runs timed.
        acceptance_rate, mean_acceptance_length, draft_cost, verify_cost: as of a
            :class:`specdemo.analysis.sweep_rows.SweepRow`, over all its runs.
        memory: the largest peak of its runs, bytes.
        seconds: of the budget, runs that count for no figure included.
        verdict: how it stands against plain decoding and the best.
        dropped: why it was not measured further; None if it was to the end.
    """

    settings: Settings
    method: str
    width: str
    gamma: int | None
    tokens_per_second: float | None
    speedup: float | None
    interval: list[float] | None
    interval_over: str | None
    prompts: int
    runs: int
    tokens: int
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    draft_cost: float | None
    verify_cost: float | None
    memory: int | None
    seconds: float
    verdict: str
    dropped: str | None

    @property
    def name(self) -> str:
        """Method and γ, as sentences have them."""
        return f"{self.method}, {self.width}" if self.width else self.method


def settings_of(contender: Contender, settings: Settings) -> Settings:
    """The settings of a contender's runs, from those that all of them share."""
    if not contender.family:
        return replace(settings, strategy="autoregressive", adaptive_gamma=False, tree_nodes=0)
    if contender.family == SERVER:
        return settings
    return replace(
        settings,
        drafter=contender.family,
        gamma=contender.gamma or TREES.get(contender.tree, settings.gamma),
        adaptive_gamma=contender.gamma is None and not contender.tree,
        tree_nodes=contender.tree,
    )


def method_of(contender: Contender) -> str:
    """What people call a contender's drafter."""
    if not contender.family:
        return "plain decoding"
    return "the server's speculation" if contender.family == SERVER else DRAFTERS[contender.family].label


def speedups(runs: Sequence[AdviceRun], plain: Sequence[AdviceRun]) -> dict[int, list[float]]:
    """log of the speed over plain decoding's in the same block: by prompt, one for each block."""
    speeds = {r.run.repeat: _speed(r) for r in plain}
    found: dict[int, list[float]] = {}
    for run in runs:
        of_plain, own = speeds.get(run.run.repeat), _speed(run)
        if of_plain and own:
            found.setdefault(run.run.prompt, []).append(log(own / of_plain))
    return found


def _speed(run: AdviceRun) -> float | None:
    return ratio(run.run.emitted or None, run.run.seconds)


def interval_of(logs: dict[int, list[float]]) -> tuple[list[float] | None, str | None]:
    """The 95 % interval of a geometric mean, and what it is over.

    Student's, of the prompts' means, or of all runs where there are few prompts. One degree of freedom more is
    given up, since the same runs decide who runs on: without that 200 simulated races cover 91 to 94 % only.
    """
    means = [fmean(values) for values in logs.values()]
    enough = len(means) >= FEW_PROMPTS
    values = means if enough else [value for some in logs.values() for value in some]
    if len(values) < FEW_PROMPTS:
        return None, None
    half = student_95(len(values) - 2) * stdev(values) / sqrt(len(values))
    middle = fmean(means)
    return [exp(middle - half), exp(middle + half)], "prompts" if enough else "runs"


def figures_of(contender: Contender, runs: Sequence[AdviceRun], plain: Sequence[AdviceRun]) -> dict[str, Any]:
    """The fields of a row that are measured."""
    logs = speedups(runs, plain)
    means = [fmean(values) for values in logs.values()]
    interval, over = interval_of(logs)
    if not contender.family:
        interval, over = None, None
    # A row of the sweep has the costs; each block is a repeat of one prompt.
    row = row_of(contender.gamma, [r.run for r in runs], [r.run for r in plain]) if contender.family else None
    memory = [r.memory for r in runs if r.memory is not None]
    return {
        "width": contender.width,
        "gamma": contender.gamma,
        "tokens_per_second": ratio(sum(r.run.emitted for r in runs), fsum(r.run.seconds for r in runs)),
        "speedup": exp(fmean(means)) if means else None,
        "interval": interval,
        "interval_over": over,
        "prompts": len({r.run.prompt for r in runs}),
        "runs": len(runs),
        "tokens": sum(r.run.emitted for r in runs),
        "acceptance_rate": row and row.acceptance_rate,
        "mean_acceptance_length": row.mean_acceptance_length if row else 1.0,
        "draft_cost": row and row.draft_cost,
        "verify_cost": row and row.verify_cost,
        "memory": max(memory, default=None),
    }


def blocks_of(runs: Sequence[AdviceRun]) -> list[list[AdviceRun]]:
    """The runs of each block that has a plain one, in order."""
    grouped = (list(some) for _, some in groupby(runs, key=lambda r: r.run.repeat))
    return [some for some in grouped if any(r.place == 0 for r in some)]
