"""What all reports share: speeds over repeats, what was measured on what, and the files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from math import fsum
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from specdemo.analysis.reasons import LEAST_CHECK
from specdemo.metrics import ratio
from specdemo.settings import Settings

SCHEMA = 1
COMMON = ("drafter", "acceptance", "temperature", "top_k", "top_p", "repetition_penalty", "max_new_tokens", "seed")
"""The settings that stand in every line of the CSV."""
MOST_OF_TAU = 1.05
"""A round costs a plain step at least, so no speed-up is above τ; by so much steps may differ by chance."""
BUSY = ": the machine was busy; measure again."


class Run(Protocol):
    """A finished run, or a finished batch."""

    @property
    def repeat(self) -> int:
        """From 0."""

    @property
    def work(self) -> int:
        """Which prompt, or which part of the prompts, it decoded."""

    @property
    def emitted(self) -> int:
        """Tokens after the prefill's."""

    @property
    def seconds(self) -> float:
        """Time after the prefill."""


R = TypeVar("R", bound=Run)


def by_repeat(runs: Sequence[R]) -> list[list[R]]:
    """The runs of each repeat, in the order of the repeats."""
    return [[r for r in runs if r.repeat == n] for n in sorted({r.repeat for r in runs})]


def paired(drafted: Sequence[R], plain: Sequence[R]) -> list[tuple[list[R], list[R]]]:
    """(drafted, plain) runs of each repeat, of the work that both have finished."""
    pairs = []
    for mine in by_repeat(drafted):
        theirs = [r for r in plain if r.repeat == mine[0].repeat]
        both = {r.work for r in mine} & {r.work for r in theirs}
        if both:
            pairs.append(([r for r in mine if r.work in both], [r for r in theirs if r.work in both]))
    return pairs


def speed(runs: Sequence[Run]) -> float | None:
    """Tokens a second of several runs, one after the other."""
    return ratio(sum(r.emitted for r in runs), fsum(r.seconds for r in runs))


def middle(values: Iterable[float | None]) -> float | None:
    """Median of the values there are."""
    known = [v for v in values if v is not None]
    return median(known) if known else None


def over_repeats(name: str, values: Iterable[float | None]) -> dict[str, float | None]:
    """The fields ``name``, ``name_low`` and ``name_high`` of a row: median, least and largest of the repeats."""
    known = [v for v in values if v is not None]
    return {name: middle(known), f"{name}_low": min(known, default=None), f"{name}_high": max(known, default=None)}


def speedup_fields(pairs: Iterable[tuple[Sequence[Run], Sequence[Run]]]) -> dict[str, float | None]:
    """The fields of a row on (drafted, plain) runs: speed-up of the middle repeat, its range, and its speeds.

    The two speeds are those of the repeat whose speed-up is shown, so that figures beside each other divide; of an
    even number of repeats it is the lower middle one.
    """
    speeds = [(speed(drafted), speed(plain)) for drafted, plain in pairs]
    known = sorted((fast / slow, fast, slow) for fast, slow in speeds if fast and slow)
    ratio_, fast, slow = known[(len(known) - 1) // 2] if known else (None, None, None)
    return {
        "speedup": ratio_,
        "speedup_low": known[0][0] if known else None,
        "speedup_high": known[-1][0] if known else None,
        "tokens_per_second": fast,
        "plain_tokens_per_second": slow,
    }


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a measurement found, whole or so far: contenders on prompts, several times over.

    Attributes:
        runs: the finished ones, in the order in which they were made.
        pair, dtype, quantization: of the models, as in a trace.
        machine: what it ran on.
        server: the name of the deployments, if it ran on a server; None if it ran here.
        schema: version of this record.
        row: the class of its rows, whose fields are the columns of the CSV.
        left_out: fields of a row, and shared settings, that have no column.
        own, record: what the CSV has in every line and the JSON besides what all reports have, by the names of
            attributes.
        rows: one for each contender, or for each size.
        base: the settings that the contenders share.
        complete: whether all of it was measured.
    """

    runs: tuple[Any, ...] = ()
    pair: str = "in memory"
    dtype: str = "float32"
    quantization: str | None = None
    machine: dict[str, Any] | None = None
    server: str | None = None
    schema: int = SCHEMA

    row: ClassVar[type]
    left_out: ClassVar[tuple[str, ...]] = ("settings",)
    own: ClassVar[tuple[str, ...]]
    record: ClassVar[tuple[str, ...]]

    if TYPE_CHECKING:  # of some reports they are fields, for which an inherited property would be a default

        @property
        def rows(self) -> Sequence[Any]: ...
        @property
        def base(self) -> Settings: ...
        @property
        def complete(self) -> bool: ...

    def impossible(self, row: Any) -> str | None:
        """Why a row's times cannot be: the one place that doubts a report's figures."""
        v, tau = getattr(row, "verify_cost", None), row.mean_acceptance_length
        if v is not None and v < LEAST_CHECK:
            return f"Checking several tokens took {v:.2f} of a plain step, which no target can do{BUSY}"
        if tau and row.speedup and row.speedup > MOST_OF_TAU * tau:
            return f"{row.speedup:.2f}× is more than {tau:.2f} tokens a round allow{BUSY}"
        return None

    def to_csv(self) -> str:
        """One line for each row; lists are space-separated."""
        shared = {name: getattr(self.base, name) for name in COMMON if name not in self.left_out}
        names = (*self.own, "complete", "pair", "dtype", "quantization", "server", "schema")
        common = {**shared, **{name: getattr(self, name) for name in names}, **(self.machine or {})}
        columns = [f.name for f in fields(self.row) if f.name not in self.left_out]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*columns, *common])
        for row in self.rows:
            writer.writerow(map(_cell, (*(getattr(row, name) for name in columns), *common.values())))
        return text.getvalue()

    def to_json(self) -> str:
        """The rows, what they were measured with, and every run."""
        names = ("schema", "pair", "dtype", "quantization", "machine", "server", *self.record, "complete", "rows")
        record = {**{name: getattr(self, name) for name in names}, "runs": [*map(self.run_record, self.runs)]}
        return json.dumps(record, default=_plain, ensure_ascii=False, allow_nan=False, indent=1)

    def run_record(self, run: Any) -> dict[str, Any]:
        """A run as plain data."""
        return _plain(run)


def _plain(value: Any) -> dict[str, Any]:
    return value.as_dict() if hasattr(value, "as_dict") else asdict(value)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join("" if v is None else str(v) for v in value)
    return "" if value is None else value
