"""What the advisor measured: its rows, which setting it recommends, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from math import exp, fsum, log, sqrt
from statistics import fmean, stdev

from specdemo.analysis.advice_words import dropped_text, recommendation, verdict
from specdemo.analysis.contenders import PLAIN
from specdemo.analysis.disturbance import BUSY, QUIETER
from specdemo.analysis.engine_lines import engine_lines
from specdemo.analysis.racing import ERROR, PLACE_OF_PLAIN, Race, Standing
from specdemo.analysis.report import COMMON, LEAST_QUIET, Report, key_of
from specdemo.analysis.rows import Row, Run, row_of, speed
from specdemo.analysis.speedup import student_95
from specdemo.settings import Settings

LEAST_STEADY = 3 / 4
"""Share of a block's runs that must be undisturbed."""
FEW_PROMPTS = 4
"""Fewer say nothing about prompts in general: the interval is then that of these prompts, over their runs."""


@dataclass(frozen=True, kw_only=True)
class AdviceReport(Report):
    """What an advisor's race measured; a repeat is a block of it, of one prompt.

    Attributes:
        kinds: the kind of each prompt; empty where none were given.
        budget_seconds: for all runs.
        seconds: spent so far.
        looping: numbers of the prompts, from 1, whose plain output loops.
        models: names of the models by role, as their files are called.
        ended: whether the race ended by itself, by a decision or by its budget.
        texts: the prompts as they were given, texts or token ids.
        draft_quantization: of the draft's weights.
        exit_layer: how many layers draft by early exit where the settings leave that open.
    """

    kinds: tuple[str, ...] = ()
    budget_seconds: float = 120.0
    seconds: float = 0.0
    looping: tuple[int, ...] = ()
    models: dict[str, str] | None = None
    ended: bool = False
    texts: tuple[str | list[int], ...] = ()
    draft_quantization: str | None = None
    exit_layer: int | None = None

    shared = tuple(name for name in COMMON if name != "drafter")
    findings = ("recommendation", "certainty", "by_kind", "matrix")

    @property
    def complete(self) -> bool:
        return self.ended

    @cached_property
    def blocks(self) -> list[list[Run]]:
        """The runs of each block that has a plain one, in order; all figures are of these.

        Runs while which the machine was busy are left out, and blocks with many; but not if too few are left.
        """
        grouped = (list(some) for _, some in groupby(self.runs, key=lambda r: r.repeat))
        whole = [some for some in grouped if any(r.contender == PLAIN for r in some)]
        steady = [[run for run in some if key_of(run) not in self.disturbed] for some in whole]
        counted = [left for left, some in zip(steady, whole, strict=True) if len(left) > LEAST_STEADY * len(some)]
        return counted if len(counted) >= LEAST_QUIET * len(whole) else whole

    @cached_property
    def race(self) -> Race:
        """The race as its finished blocks leave it."""
        race = Race(self.contenders)
        for block in self.blocks:
            if found := self.block_speedups(block):
                race.add(found, self.kind_of(block[0].prompt))
        return race

    def block_speedups(self, block: Sequence[Run]) -> dict[int, float]:
        """Each contender's speed over plain decoding's in one block that has both, by its place."""
        plain = next((r.speed for r in block if r.contender == PLAIN), None)
        drafted = ((self.contenders.index(r.contender), r.speed) for r in block if r.contender != PLAIN)
        return {place: own / plain for place, own in drafted if own and plain}

    @cached_property
    def counted(self) -> Sequence[Run]:
        return tuple(chain.from_iterable(self.blocks))

    def kind_of(self, prompt: int) -> str:
        """Of a prompt, by its number from 0; empty where kinds were not given."""
        return self.kinds[prompt] if self.kinds else ""

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One for each contender that ran: the recommended one, then those still in the race, then the dropped."""
        ran = {r.contender for r in self.counted}
        rows = {n: self._row(n) for n in self.race.entered if self.contenders[n] in ran}

        def rank(place: int) -> tuple[bool, bool, float]:
            return place != self.race.leader, place in self.race.dropped, -(rows[place].speedup or 0.0)

        return tuple(rows[n] for n in sorted(rows, key=rank))

    @property
    def best(self) -> Row | None:
        """The recommended row, which may be plain decoding; None before the first whole block, and in noise."""
        return self.shown[0] if self.race.blocks and len(self.rows) > 1 and not self.noisy else None

    @cached_property
    def rival(self) -> Standing | None:
        """How the best contender of another method stands against the recommended one; None without any."""
        leader, family = self.race.leader, self.contenders[self.race.leader].family
        others = {n: self._speedup(n) for n in self.race.entered if self.contenders[n].family not in ("", family)}
        known = {n: s for n, s in others.items() if s is not None}
        if not known and leader != PLACE_OF_PLAIN:
            known = {PLACE_OF_PLAIN: 1.0}
        return self.race.behind(max(known, key=known.__getitem__), leader) if known else None

    @property
    def certainty(self) -> float | None:
        """That the recommended method is faster than the best of every other, at least; None without a rival."""
        return self.rival.certainty if self.rival else None

    @property
    def pays(self) -> bool | None:
        """Whether anything is faster than plain decoding; None where that is open."""
        if self.noisy or not self.race.blocks:
            return None
        if self.race.leader == PLACE_OF_PLAIN:
            return False if (self.certainty or 0.0) >= 1 - ERROR else None
        return True if self.race.behind(PLACE_OF_PLAIN, self.race.leader).certainty >= 1 - ERROR else None

    @property
    def recommendation(self) -> str:
        """One sentence for people, with its certainty; a second and third where something must be added."""
        return recommendation(self)

    @cached_property
    def by_kind(self) -> tuple[Row, ...]:
        """The best for each kind of prompt, where there are several."""
        return self._of_kinds((self.race.best(self.race.live, kind), kind) for kind in self._several_kinds)

    @cached_property
    def matrix(self) -> tuple[Row, ...]:
        """Every contender that drafts, as the rows stand, on each kind that it met, where there are several."""
        drafted = [self.names.index(row.name) for row in self.rows if row.settings.strategy != "autoregressive"]
        return self._of_kinds((place, kind) for place in drafted for kind in self._several_kinds)

    def _of_kinds(self, wanted: Iterable[tuple[int, str]]) -> tuple[Row, ...]:
        rows = (self._row(place, kind) for place, kind in wanted)
        return tuple(row for row in rows if row.speedup)

    @property
    def _several_kinds(self) -> list[str]:
        names = [*dict.fromkeys(self.kinds)]
        return [] if len(names) < 2 or self.noisy else names

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.contenders]

    def settings(self) -> Settings:
        """What to run with: the recommended settings; plain decoding before anything was measured, or in noise."""
        return self.contenders[PLACE_OF_PLAIN if self.noisy else self.race.leader].settings(self.base)

    def code(self, engine: str) -> str:
        """The lines that set the recommendation in an engine, or a comment that says why they cannot.

        Args:
            engine: ``transformers`` (a script), ``vllm``, ``sglang`` or ``llama.cpp`` (commands).

        Raises:
            SettingsError: the engine is another one.
        """
        if self.server is not None:
            return "# Measured on a server, whose own settings these are.\n"
        if self.noisy:
            return f"# {BUSY} {QUIETER}\n"
        settings = self.settings()
        settings = replace(settings, exit_layer=settings.exit_layer or self.exit_layer)
        weights = {"target": self.quantization, "draft": self.draft_quantization}
        leader = self.contenders[self.race.leader]
        fixed = [(n, c.gamma) for n, c in enumerate(self.contenders) if c.family == leader.family and c.gamma]
        known = [(speedup, gamma) for n, gamma in fixed if (speedup := self._speedup(n)) is not None]
        gamma = max(known)[1] if known else None  # the fastest fixed one of its drafter
        lines = engine_lines(engine, settings, self.models or {}, self.dtype, gamma, weights)
        if engine != "llama.cpp" or (best := self.best) is None or best.speedup is None:
            return lines
        if leader == PLAIN:
            return f"# Plain decoding: nothing that drafts was faster.\n{lines}"
        ran = "" if self.of_gguf else " by this app, not by llama.cpp"
        within = "{:.2f}, {:.2f}".format(*best.interval) if best.interval else "too few runs for an interval"
        return f"# Measured{ran}: {best.speedup:.2f}× [{within}] plain decoding's speed.\n{lines}"

    @property
    def of_gguf(self) -> bool:
        """Whether llama.cpp ran it, from files."""
        return (self.models or {}).get("target", "").endswith(".gguf")

    def _row(self, place: int, kind: str | None = None) -> Row:
        """A contender on all prompts, or on those of a kind: the geometric mean over prompts, and its interval."""
        contender, dropped = self.contenders[place], self.race.dropped.get(place)
        left = place != PLACE_OF_PLAIN and not self.noisy
        runs = [r for r in self.counted if kind in (None, self.kind_of(r.prompt))]
        own, plain = ([r for r in runs if r.contender == c] for c in (contender, PLAIN))
        logs = self._logs(place, kind)
        interval, over = interval_of(logs) if place != PLACE_OF_PLAIN else (None, None)
        return replace(
            row_of(contender, self.base, own, plain),
            kind=kind,
            speedup=_mean(logs),
            interval=interval,
            interval_over=over,
            doubt=self.doubt,
            tokens_per_second=speed(own),
            seconds=fsum(r.wall_seconds for r in self.of(contender)),
            verdict=verdict(self, place),
            dropped=dropped_text(dropped, self.names) if dropped and left else None,
        )

    def _speedup(self, place: int) -> float | None:
        return _mean(self._logs(place))

    def _logs(self, place: int, kind: str | None = None) -> dict[int, list[float]]:
        """log of its speed over plain decoding's in the same block: by prompt, one for each block."""
        found: dict[int, list[float]] = {}
        for block in self.blocks:
            gain = {PLACE_OF_PLAIN: 1.0, **self.block_speedups(block)}.get(place)
            if gain and kind in (None, self.kind_of(block[0].prompt)):
                found.setdefault(block[0].prompt, []).append(log(gain))
        return found


def _mean(logs: dict[int, list[float]]) -> float | None:
    """Geometric, over prompts."""
    return exp(fmean(map(fmean, logs.values()))) if logs else None


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
    centre = fmean(means)
    return [exp(centre - half), exp(centre + half)], "prompts" if enough else "runs"
