"""What the advisor measured: its rows, which setting it recommends, how sure that is, and all of it as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import exp, fsum
from statistics import fmean
from typing import Any

from specdemo.analysis.advice_rows import (
    AdviceRow,
    AdviceRun,
    blocks_of,
    figures_of,
    interval_of,
    method_of,
    settings_of,
    speedups,
)
from specdemo.analysis.advice_words import dropped_text, recommendation, verdict
from specdemo.analysis.engine_lines import engine_lines
from specdemo.analysis.racing import ERROR, PLAIN, Contender, Dropped, Race
from specdemo.analysis.report import ReportFiles
from specdemo.settings import Settings

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class KindRow:
    """What is best for the prompts of one kind.

    Attributes:
        kind: its name.
        prompts: of this kind that were decoded.
        method: the best contender's name with its γ.
        settings: that decode so.
        speedup, interval, interval_over: on the prompts of this kind, as of a row.
    """

    kind: str
    prompts: int
    method: str
    settings: Settings
    speedup: float
    interval: list[float] | None
    interval_over: str | None


@dataclass(frozen=True)
class AdviceReport(ReportFiles):
    """What an advisor's race measured, whole or so far.

    Attributes:
        base: the settings that all contenders share.
        contenders: all that could be tried, plain decoding first.
        prompts: how many prompts.
        kinds: the kind of each prompt; empty where none were given.
        budget_seconds: for all runs.
        seconds: spent so far.
        runs: the finished ones, in the order in which they were made.
        texts: the prompts as they were given, texts or token ids.
        looping: numbers of the prompts, from 1, whose plain output loops.
        models: names of the models by role, as their files are called.
        error: chance that the race dropped the fastest contender.
        complete: whether the race ended by itself, by a decision or by its budget.
        pair, dtype, quantization, machine, server: as of a sweep's report.
        draft_quantization: of the draft's weights.
        exit_layer: how many layers draft by early exit where the settings leave that open.
    """

    base: Settings
    contenders: tuple[Contender, ...]
    prompts: int
    kinds: tuple[str, ...] = ()
    budget_seconds: float = 120.0
    seconds: float = 0.0
    runs: tuple[AdviceRun, ...] = ()
    looping: tuple[int, ...] = ()
    models: dict[str, str] | None = None
    error: float = ERROR
    complete: bool = False
    pair: str = "in memory"
    dtype: str = "float32"
    quantization: str | None = None
    machine: dict[str, Any] | None = None
    server: str | None = None
    texts: tuple[str | list[int], ...] = ()
    draft_quantization: str | None = None
    exit_layer: int | None = None
    schema: int = SCHEMA

    row = AdviceRow
    left_out = ("settings",)
    record = (
        *("schema", "pair", "models", "dtype", "quantization", "draft_quantization", "machine", "server", "base"),
        *("prompts", "kinds", "texts", "budget_seconds", "seconds", "error", "complete", "recommendation"),
        *("certainty", "looping", "rows", "by_kind", "contenders", "runs"),
    )

    @cached_property
    def race(self) -> Race:
        """The race as its finished blocks leave it."""
        race = Race(self.contenders, self.error)
        for block in blocks_of(self.runs):
            if found := block_speedups(block):
                race.add(found, self.kind_of(block[0].run.prompt))
        return race

    @cached_property
    def counted(self) -> tuple[AdviceRun, ...]:
        """The runs of blocks that have their plain run: all figures are of these."""
        return tuple(chain.from_iterable(blocks_of(self.runs)))

    def kind_of(self, prompt: int) -> str:
        """Of a prompt, by its number from 0; empty where kinds were not given."""
        return self.kinds[prompt] if self.kinds else ""

    @cached_property
    def rows(self) -> tuple[AdviceRow, ...]:
        """One for each contender that ran: the recommended one, then those still in the race, then the dropped."""
        ran = {r.place for r in self.counted}
        rows = {n: self._row(n) for n in self.race.entered if n in ran}

        def rank(place: int) -> tuple[bool, bool, float]:
            return place != self.race.leader, place in self.race.dropped, -(rows[place].speedup or 0.0)

        return tuple(rows[n] for n in sorted(rows, key=rank))

    @property
    def best(self) -> AdviceRow | None:
        """The recommended row, which may be plain decoding; None before the first whole block."""
        return self.rows[0] if self.race.blocks and len(self.rows) > 1 else None

    @cached_property
    def rival(self) -> Dropped | None:
        """How the best contender of another method stands against the recommended one; None without any."""
        leader, family = self.race.leader, self.contenders[self.race.leader].family
        others = {n: self._speedup(n) for n in self.race.entered if self.contenders[n].family not in ("", family)}
        known = {n: s for n, s in others.items() if s is not None}
        if not known and leader != PLAIN:
            known = {PLAIN: 1.0}
        return self.race.behind(max(known, key=known.__getitem__), leader) if known else None

    @property
    def certainty(self) -> float | None:
        """That the recommended method is faster than the best of every other, at least; None without a rival."""
        return self.rival and self.rival.certainty

    @property
    def pays(self) -> bool | None:
        """Whether anything is faster than plain decoding; None where that is open."""
        if self.best is None:
            return None
        if self.race.leader == PLAIN:
            return False if (self.certainty or 0.0) >= 1 - self.error else None
        return True if self.race.behind(PLAIN, self.race.leader).certainty >= 1 - self.error else None

    @property
    def recommendation(self) -> str:
        """One sentence for people, with its certainty; a second and third where something must be added."""
        return recommendation(self)

    @cached_property
    def by_kind(self) -> tuple[KindRow, ...]:
        """The best for each kind of prompt, where there are several."""
        names = [*dict.fromkeys(self.kinds)]
        return tuple(filter(None, map(self._kind_row, names))) if len(names) > 1 else ()

    @property
    def names(self) -> list[str]:
        """Every contender as sentences have it, by place."""
        return [method_of(c) + (f", {c.width}" if c.width else "") for c in self.contenders]

    def settings(self) -> Settings:
        """What to run with: the recommended settings, plain decoding before anything was measured."""
        return settings_of(self.contenders[self.race.leader], self.base)

    def code(self, engine: str) -> str:
        """The lines that set the recommendation in an engine, or a comment that says why they cannot.

        Args:
            engine: ``transformers`` (a script), ``vllm``, ``sglang`` or ``llama.cpp`` (commands).

        Raises:
            SettingsError: the engine is another one.
        """
        if self.server is not None:
            return "# Measured on a server, whose own settings these are.\n"
        settings = self.settings()
        settings = replace(settings, exit_layer=settings.exit_layer or self.exit_layer)
        weights = {"target": self.quantization, "draft": self.draft_quantization}
        return engine_lines(engine, settings, self.models or {}, self.dtype, self._best_gamma(), weights)

    def _best_gamma(self) -> int | None:
        """The fastest fixed γ of the recommended drafter, where it was measured."""
        family = self.contenders[self.race.leader].family
        fixed = [(n, c.gamma) for n, c in enumerate(self.contenders) if c.family == family and c.gamma]
        known = [(speedup, gamma) for n, gamma in fixed if (speedup := self._speedup(n)) is not None]
        return max(known)[1] if known else None

    def common(self) -> dict[str, Any]:
        """What holds for all rows and stands in every line of the CSV."""
        names = ("acceptance", "temperature", "top_k", "top_p", "repetition_penalty", "max_new_tokens", "seed")
        own = ("budget_seconds", "prompts", "complete", "pair", "dtype", "quantization", "server")
        return {
            **{name: getattr(self.base, name) for name in names},
            **{f"all_{name}" if name == "prompts" else name: getattr(self, name) for name in own},
            **(self.machine or {}),
            "schema": self.schema,
        }

    def _row(self, place: int) -> AdviceRow:
        contender, dropped = self.contenders[place], self.race.dropped.get(place)
        of_place = [[r for r in self.counted if r.place == n] for n in (place, PLAIN)]
        return AdviceRow(
            settings=settings_of(contender, self.base),
            method=method_of(contender),
            **figures_of(contender, *of_place),
            seconds=fsum(r.wall_seconds for r in self.runs if r.place == place),
            verdict=verdict(self, place),
            dropped=None if dropped is None or place == PLAIN else dropped_text(dropped, self.names),
        )

    def _speedup(self, place: int, kind: str | None = None) -> float | None:
        means = [fmean(values) for values in self._logs(place, kind).values()]
        return exp(fmean(means)) if means else None

    def _logs(self, place: int, kind: str | None) -> dict[int, list[float]]:
        mine = [r for r in self.counted if r.place == place and kind in (None, self.kind_of(r.run.prompt))]
        return speedups(mine, [r for r in self.counted if r.place == PLAIN])

    def _kind_row(self, kind: str) -> KindRow | None:
        place = self.race.best_of_kind(kind)
        logs = self._logs(place, kind)
        if not logs:
            return None
        interval = interval_of(logs) if place != PLAIN else (None, None)
        settings = settings_of(self.contenders[place], self.base)
        return KindRow(kind, len(logs), self.names[place], settings, self._speedup(place, kind), *interval)


def block_speedups(block: Sequence[AdviceRun]) -> dict[int, float]:
    """Each contender's speed over plain decoding's in one block that has both."""
    plain = [r for r in block if r.place == PLAIN]
    logs = {r.place: speedups([r], plain) for r in block if r.place != PLAIN}
    return {place: exp(fmean(found.popitem()[1])) for place, found in logs.items() if found}
