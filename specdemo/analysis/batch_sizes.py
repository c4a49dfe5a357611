"""What batch sizes measured: does drafting still pay when more rows are decoded together?"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from math import fsum
from statistics import median
from typing import Any

from specdemo.analysis.batch_metrics import BatchMetrics
from specdemo.analysis.metrics import ratio
from specdemo.settings import Settings

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class SizeRun:
    """One finished batch.

    Attributes:
        size: rows decoded together.
        part: which of the prompts, counted in batches of this size from 0.
        repeat: counts from 0.
        drafted: whether it drafted, or was plain.
        figures: of the whole batch.
    """

    size: int
    part: int
    repeat: int
    drafted: bool
    figures: BatchMetrics


@dataclass(frozen=True, slots=True)
class SizeRow:
    """The figures of one batch size; medians over the repeats, None where nothing was measured.

    Attributes:
        size: rows decoded together.
        plain_tokens_per_second, tokens_per_second: of the whole batch, plain and drafted.
        speedup: drafted / plain tokens a second, each repeat against its own plain batches.
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
        prompts: how many there are. Every size decodes the same :attr:`rows_each` of them, smaller ones in several
            batches: else sizes would differ by what they were given to say. Where a size does not divide them, its
            last batch is filled up from the first row.
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
    def rows_each(self) -> int:
        """Rows that every size decodes in a repeat, prompts taken again from the first where they are fewer."""
        return max(self.sizes)

    def parts(self, size: int) -> int:
        """Batches of a size that hold so many rows."""
        return -(-self.rows_each // size)

    @property
    def total(self) -> int:
        """Batches to be made: plain and drafted, all parts of every size that fits, in every repeat."""
        return 2 * self.repeats * sum(self.parts(size) for size in self.fitting)

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
        text = _trend(rows, self.crossover)
        return (text[0].upper() + text[1:] if self.complete else f"So far {text}") + self._limit()

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
    done = {(r.repeat, r.part, r.drafted) for r in runs}
    paired = [r for r in runs if (r.repeat, r.part, not r.drafted) in done]
    repeats = sorted({r.repeat for r in paired})
    plain, drafted = (
        [[r.figures for r in paired if r.repeat == repeat and r.drafted is kind] for repeat in repeats]
        for kind in (False, True)
    )
    rates = [(_rate(a), _rate(b)) for a, b in zip(plain, drafted, strict=True)]
    speeds = [b / a for a, b in rates if a and b]
    every = [figures for batches in drafted for figures in batches]

    def share(name: str, of: str) -> float | None:
        return ratio(sum(getattr(f, name) for f in every), sum(getattr(f, of) for f in every))

    return SizeRow(
        size=size,
        plain_tokens_per_second=median(a for a, b in rates if a and b) if speeds else None,
        tokens_per_second=median(b for a, b in rates if a and b) if speeds else None,
        speedup=median(speeds) if speeds else None,
        speedup_low=min(speeds, default=None),
        speedup_high=max(speeds, default=None),
        acceptance_rate=share("accepted", "proposed"),
        mean_acceptance_length=ratio(sum(f.emitted for f in every), sum(f.row_rounds for f in every)),
        padding=_lost(share("fed_needed", "fed")),
        idle_slots=_lost(share("slots_needed", "slots")),
        other_share=ratio(fsum(f.other_seconds for f in every), fsum(f.seconds - f.ttft for f in every)),
    )


def _rate(batches: Sequence[BatchMetrics]) -> float | None:
    """Tokens a second of batches one after the other."""
    return ratio(sum(f.emitted for f in batches), fsum(f.seconds - f.ttft for f in batches))


def _lost(used: float | None) -> float | None:
    return None if used is None else 1 - used


def _trend(rows: Sequence[SizeRow], crossover: int | None) -> str:
    pays = [row.size for row in rows if row.speedup >= 1]
    loses = [row.size for row in rows if row.speedup < 1]
    first, last = rows[0], rows[-1]
    ends = f"{first.speedup:.2f}× with {_rows(first.size)}"
    if last is not first:
        ends += f", {last.speedup:.2f}× with {_rows(last.size)}"
    if not loses:
        claim = "drafting pays at every size tried" if last is not first else "drafting pays"
    elif not pays:
        claim = "drafting does not pay at any size tried" if last is not first else "drafting does not pay"
    elif max(pays) < min(loses):
        claim = f"drafting pays below {_rows(crossover)} and not from there on"
    else:
        claim = f"drafting pays with {_listed(pays)} rows and not with {_listed(loses)}"
    torn = [row.size for row in rows if row.speedup_low < 1 <= row.speedup_high]
    doubt = f" The repeats disagree at {_listed(torn)}: repeat it on a quieter machine." if torn else ""
    return f"{claim}: {ends}.{doubt}"


def _listed(sizes: Sequence[int]) -> str:
    *some, last = (str(size) for size in sizes)
    return f"{', '.join(some)} and {last}" if some else last


def _rows(count: int) -> str:
    return f"{count} row{'s' if count > 1 else ''}"
