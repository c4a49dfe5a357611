"""What batch sizes measured: does drafting still pay when more rows are decoded together?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import fsum

from specdemo.analysis.batch_metrics import BatchMetrics, lost
from specdemo.analysis.report import Report, paired, speedup_fields
from specdemo.analysis.wording import listed
from specdemo.metrics import ratio
from specdemo.settings import Settings


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

    @property
    def work(self) -> int:
        """The part."""
        return self.part

    @property
    def emitted(self) -> int:
        """Tokens after the prefill's."""
        return self.figures.emitted

    @property
    def seconds(self) -> float:
        """Time after the prefill."""
        return self.figures.seconds - self.figures.ttft


@dataclass(frozen=True, slots=True)
class SizeRow:
    """The figures of one batch size; None where nothing was measured.

    Attributes:
        size: rows decoded together.
        plain_tokens_per_second, tokens_per_second: of the whole batch, plain and drafted, in the repeat whose
            speed-up is the middle one.
        speedup: drafted / plain tokens a second, each repeat against its own plain batches; median, of an even
            number of repeats the lower middle.
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
class SizeReport(Report):
    """What was measured, whole or so far.

    Attributes:
        settings: of the drafted batches.
        sizes: asked for, in ascending order.
        prompts: how many there are. Every size decodes the same :attr:`rows_each` of them, smaller ones in several
            batches, so that sizes do not also differ by their prompts. Where a size does not divide them, its last
            batch is filled up from the first row.
        repeats: how many times over.
        ran_out: the smallest size that did not fit into memory; None if all did.
    """

    settings: Settings
    sizes: tuple[int, ...]
    prompts: int
    repeats: int
    runs: tuple[SizeRun, ...] = field(default=(), kw_only=True)
    ran_out: int | None = None

    row = SizeRow
    own = ("prompts", "repeats")
    record = ("settings", "sizes", "prompts", "repeats", "ran_out", "crossover", "conclusion")

    @property
    def base(self) -> Settings:
        """As of every report."""
        return self.settings

    @property
    def rows_each(self) -> int:
        """Rows that every size decodes in a repeat; fewer prompts are repeated from the first."""
        return max(self.sizes)

    def parts(self, size: int) -> int:
        """How many batches of a size hold these rows."""
        return -(-self.rows_each // size)

    @property
    def total(self) -> int:
        """Batches to be made: plain and drafted, all parts of every size that fits, in every repeat."""
        return 2 * self.repeats * sum(self.parts(size) for size in self.fitting)

    @property
    def fitting(self) -> tuple[int, ...]:
        """The sizes below the one that did not fit into memory."""
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
            if row.speedup_high >= 1:
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
        limit = "" if self.ran_out is None else f" Memory ran out at {_rows(self.ran_out)}."
        return (text[0].upper() + text[1:] if self.complete else f"So far {text}") + limit


def _row(size: int, runs: Sequence[SizeRun]) -> SizeRow:
    plain, drafted = ([r for r in runs if r.drafted is kind] for kind in (False, True))
    pairs = paired(drafted, plain)
    every = [run.figures for batches, _ in pairs for run in batches]

    def share(name: str, of: str) -> float | None:
        return ratio(sum(getattr(f, name) for f in every), sum(getattr(f, of) for f in every))

    return SizeRow(
        size=size,
        **speedup_fields(pairs),
        acceptance_rate=share("accepted", "proposed"),
        mean_acceptance_length=share("emitted", "row_rounds"),
        padding=lost(*(sum(getattr(f, name) for f in every) for name in ("fed_needed", "fed"))),
        idle_slots=lost(*(sum(getattr(f, name) for f in every) for name in ("slots_needed", "slots"))),
        other_share=ratio(fsum(f.other_seconds for f in every), fsum(f.seconds - f.ttft for f in every)),
    )


def _trend(rows: Sequence[SizeRow], crossover: int | None) -> str:
    """Drafting pays where every repeat was faster, and does not where every one was slower."""
    pays = [row.size for row in rows if row.speedup_low > 1]
    loses = [row.size for row in rows if row.speedup_high < 1]
    torn = [row.size for row in rows if row.size not in (*pays, *loses)]
    first, last = rows[0], rows[-1]
    ends = f"{first.speedup:.2f}× with {_rows(first.size)}"
    if last is not first:
        ends += f", {last.speedup:.2f}× with {_rows(last.size)}"
    every = " at every size tried" if last is not first else ""
    if torn:
        known = [f"pays with {_these(pays)}"] if pays else []
        known += [f"{'not' if pays else 'does not pay'} with {_these(loses)}"] if loses else []
        claim = f"drafting {' and '.join(known)}; with {_these(torn)}" if known else f"with {_these(torn)}"
        claim += " it is open, since the repeats lie on both sides of 1×"
        return f"{claim}: {ends}. Repeat it more often, or on a quieter machine."
    if not loses:
        claim = f"drafting pays{every}"
    elif not pays:
        claim = f"drafting does not pay{every.replace('every', 'any')}"
    elif max(pays) < min(loses):
        claim = f"drafting pays below {_rows(crossover)} and not from there on"
    else:
        claim = f"drafting pays with {_these(pays)} and not with {listed(loses)}"
    return f"{claim}: {ends}."


def _these(sizes: Sequence[int]) -> str:
    return _rows(sizes[0]) if len(sizes) == 1 else f"{listed(sizes)} rows"


def _rows(count: int) -> str:
    return f"{count} row{'s' if count > 1 else ''}"
