"""What batch sizes measured: does drafting still pay when more rows are decoded together?"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from statistics import median
from typing import Any

from specdemo.analysis.batch_metrics import BatchMetrics
from specdemo.settings import Settings

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class SizeRun:
    """One finished batch.

    Attributes:
        size: rows decoded together.
        drafted: whether it drafted, or was plain.
        repeat: counts from 0.
        figures: of the whole batch.
    """

    size: int
    drafted: bool
    repeat: int
    figures: BatchMetrics


@dataclass(frozen=True, slots=True)
class SizeRow:
    """The figures of one batch size; medians over the repeats, None where nothing was measured.

    Attributes:
        size: rows decoded together.
        plain_tokens_per_second, tokens_per_second: of the whole batch, plain and drafted.
        speedup: drafted / plain tokens a second, each repeat against its own plain batch.
        speedup_low, speedup_high: the worst and the best repeat.
        acceptance_rate, mean_acceptance_length: of the drafted batches, all rows together.
        padding, idle_slots, other_share: of the drafted batches, see
            :class:`specdemo.analysis.batch_metrics.BatchMetrics`.
    """

    size: int
    plain_tokens_per_second: float | None
    tokens_per_second: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    padding: float | None
    idle_slots: float | None
    other_share: float | None


@dataclass(frozen=True)
class SizeReport:
    """What was measured, whole or so far.

    Attributes:
        settings: of the drafted batches.
        sizes: asked for, in ascending order.
        prompts: how many there are; they are taken in turn, again from the first where rows are more.
        repeats: how many times over.
        runs: the finished batches, in the order in which they were made.
        ran_out: the smallest size that did not fit into memory; None if all did.
        pair, dtype, quantization: of the models, as in a trace.
        machine: what it ran on.
        schema: version of this record.
    """

    settings: Settings
    sizes: tuple[int, ...]
    prompts: int
    repeats: int
    runs: tuple[SizeRun, ...] = ()
    ran_out: int | None = None
    pair: str = "in memory"
    dtype: str = "float32"
    quantization: str | None = None
    machine: dict[str, Any] | None = None
    schema: int = SCHEMA

    @property
    def total(self) -> int:
        """Batches to be made: plain and drafted, of every size that fits, in every repeat."""
        return 2 * self.repeats * len(self.fitting)

    @property
    def fitting(self) -> tuple[int, ...]:
        """The sizes that memory is known or hoped to hold."""
        return tuple(s for s in self.sizes if self.ran_out is None or s < self.ran_out)

    @property
    def complete(self) -> bool:
        """Whether every batch was made that fits."""
        return len([r for r in self.runs if r.size in self.fitting]) == self.total

    @cached_property
    def rows(self) -> tuple[SizeRow, ...]:
        """One row for each size of which at least one batch is finished."""
        by_size = {size: [r for r in self.runs if r.size == size] for size in self.sizes}
        return tuple(_row(size, runs) for size, runs in by_size.items() if runs)

    @property
    def crossover(self) -> int | None:
        """The smallest measured size from which on drafting is slower than not; None if it pays at the largest."""
        slower: int | None = None
        for row in reversed([row for row in self.rows if row.speedup is not None]):
            if row.speedup >= 1:
                break
            slower = row.size
        return slower

    @property
    def conclusion(self) -> str:
        """One or two sentences for people."""
        rows = [row for row in self.rows if row.speedup is not None]
        if not rows:
            return "Nothing was measured yet: a speed-up needs a plain and a drafted batch of one size."
        start = "" if self.complete else "So far: "
        return start + _trend(rows, self.crossover) + self._limit()

    def _limit(self) -> str:
        return "" if self.ran_out is None else f" Memory ran out at {_rows(self.ran_out)}."

    def to_csv(self) -> str:
        """One line for each size."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [f.name for f in fields(SizeRow)]
        writer.writerow(names)
        for row in self.rows:
            writer.writerow(["" if (value := getattr(row, name)) is None else value for name in names])
        return text.getvalue()

    def to_json(self) -> str:
        """The rows, what they were measured with, and the figures of every batch."""
        record = {
            "schema": self.schema,
            "pair": self.pair,
            "dtype": self.dtype,
            "quantization": self.quantization,
            "machine": self.machine,
            "settings": asdict(self.settings),
            "sizes": list(self.sizes),
            "prompts": self.prompts,
            "repeats": self.repeats,
            "complete": self.complete,
            "ran_out": self.ran_out,
            "crossover": self.crossover,
            "conclusion": self.conclusion,
            "rows": [asdict(row) for row in self.rows],
            "runs": [asdict(run) for run in self.runs],
        }
        return json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1)


def _row(size: int, runs: Sequence[SizeRun]) -> SizeRow:
    plain = {r.repeat: r.figures for r in runs if not r.drafted}
    drafted = {r.repeat: r.figures for r in runs if r.drafted}
    speeds = [
        figures.tokens_per_second / plain[repeat].tokens_per_second
        for repeat, figures in drafted.items()
        if figures.tokens_per_second and repeat in plain and plain[repeat].tokens_per_second
    ]

    def middle(batches: dict[int, BatchMetrics], name: str) -> float | None:
        values = [value for figures in batches.values() if (value := getattr(figures, name)) is not None]
        return median(values) if values else None

    return SizeRow(
        size=size,
        plain_tokens_per_second=middle(plain, "tokens_per_second"),
        tokens_per_second=middle(drafted, "tokens_per_second"),
        speedup=median(speeds) if speeds else None,
        speedup_low=min(speeds, default=None),
        speedup_high=max(speeds, default=None),
        acceptance_rate=middle(drafted, "acceptance_rate"),
        mean_acceptance_length=middle(drafted, "mean_acceptance_length"),
        padding=middle(drafted, "padding"),
        idle_slots=middle(drafted, "idle_slots"),
        other_share=middle(drafted, "other_share"),
    )


def _trend(rows: Sequence[SizeRow], crossover: int | None) -> str:
    first, last = rows[0], rows[-1]
    ends = f"{first.speedup:.2f}× with {_rows(first.size)}"
    if last is not first:
        ends += f", {last.speedup:.2f}× with {_rows(last.size)}"
    if crossover is None:
        return f"Drafting pays at the largest size tried: {ends}."
    if crossover == first.size:
        return f"Drafting does not pay at any size tried: {ends}."
    return f"Drafting pays below {_rows(crossover)} and not from there on: {ends}."


def _rows(count: int) -> str:
    return f"{count} row{'s' if count > 1 else ''}"
