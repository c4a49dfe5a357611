"""A report: contenders on prompts, several times over; its rows, its doubts, and its files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

from specdemo.analysis.contenders import Contender
from specdemo.analysis.reasons import impossible_check
from specdemo.analysis.rows import Row, Run, row_of
from specdemo.settings import Settings

SCHEMA = 2
COMMON = ("drafter", "acceptance", "temperature", "top_k", "top_p", "repetition_penalty", "max_new_tokens", "seed")
"""The settings that stand in every line of the CSV."""
MOST_OF_TAU = 1.05
"""A round costs a plain step at least, so no speed-up is above τ; by so much steps may differ by chance."""
BUSY = ": the machine was busy; measure again."


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a measurement found, whole or so far: every contender on every prompt, in every repeat.

    Attributes:
        base: the settings that the contenders share.
        contenders: all of them, plain decoding first.
        prompts: how many prompts.
        repeats: how many times over.
        runs: the finished ones, in the order in which they were made.
        pair, dtype, quantization: of the models, as in a trace.
        machine: what it ran on.
        server: the name of the deployments, if it ran on a server; None if it ran here.
        server_gamma: the most tokens that the server drafts in a step; None if it does not say.
        ran_out: the smallest batch that did not fit into memory; None if all did.
        schema: version of this record.
        shared, findings: settings in every line of the CSV; what the JSON has besides the fields, by attribute.
    """

    base: Settings
    contenders: tuple[Contender, ...]
    prompts: int
    repeats: int = 1
    runs: tuple[Run, ...] = ()
    pair: str = "in memory"
    dtype: str = "float32"
    quantization: str | None = None
    machine: dict[str, Any] | None = None
    server: str | None = None
    server_gamma: int | None = None
    ran_out: int | None = None
    schema: int = SCHEMA

    findings: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[tuple[str, ...]] = COMMON

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many prompts are decoded together, in ascending order."""
        return tuple(sorted({c.size for c in self.contenders}))

    @property
    def each(self) -> int:
        """Prompts that every contender decodes in a repeat."""
        return self.prompts

    def parts(self, size: int) -> int:
        """How many runs of a size hold these prompts."""
        return -(-self.each // size)

    @property
    def total(self) -> int:
        """Runs of the whole measurement, as far as they fit into memory."""
        return self.repeats * sum(self.parts(c.size) for c in self.contenders if self.fits(c))

    @property
    def complete(self) -> bool:
        """Whether every run was made."""
        return sum(self.fits(r.contender) for r in self.runs) == self.total

    def fits(self, contender: Contender) -> bool:
        """Whether it fits into memory, as far as is known."""
        return self.ran_out is None or contender.size < self.ran_out

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row for each contender that drafts and of which at least one run is finished."""
        drafting = [c for c in self.contenders if c.family and self.of(c)]
        return tuple(row_of(c, self.base, self.of(c), self.of(c.plain), self.server_gamma) for c in drafting)

    def of(self, contender: Contender) -> list[Run]:
        """A contender's runs."""
        return [r for r in self.runs if r.contender == contender]

    @property
    def known(self) -> Sequence[Row]:
        """The rows that have a speed-up."""
        return [row for row in self.rows if row.speedup is not None]

    def impossible(self, row: Row) -> str | None:
        """Why a row's times cannot be: the one place that doubts a report's figures."""
        if said := impossible_check(row.verify_cost):
            return f"{said}{BUSY}"
        tau = row.mean_acceptance_length
        if row.size == 1 and tau and row.speedup and row.speedup > MOST_OF_TAU * tau:
            return f"{row.speedup:.2f}× is more than {tau:.2f} tokens a round allow{BUSY}"
        return None

    def to_csv(self) -> str:
        """One line for each row, without columns in which nothing is known; lists are space-separated."""
        names = ("repeats", "complete", "pair", "dtype", "quantization", "server", "schema")
        common = {name: getattr(self.base, name) for name in self.shared}
        common |= {name: getattr(self, name) for name in names} | (self.machine or {})
        every = [f.name for f in fields(Row) if f.name != "settings"]
        columns = [name for name in every if any(_cell(row, name) for row in self.rows)]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*columns, *common])
        for row in self.rows:
            writer.writerow([*(_cell(row, name) for name in columns), *common.values()])
        return text.getvalue()

    def to_json(self) -> str:
        """What was measured, with what, the findings and rows, and every run."""
        names = [f.name for f in fields(self) if f.name != "runs"]
        record = {name: getattr(self, name) for name in (*names, "complete", *self.findings, "rows", "runs")}
        return json.dumps(record, default=_plain, ensure_ascii=False, allow_nan=False, indent=1)


def _plain(value: Any) -> dict[str, Any]:
    return value.as_dict() if hasattr(value, "as_dict") else asdict(value)


def _cell(row: Row, name: str) -> str:
    value = getattr(row, name)
    values = value if isinstance(value, list) else [value]
    return " ".join("" if v is None else str(v) for v in values)
