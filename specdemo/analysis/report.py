"""A report: contenders on prompts, several times over; its rows, its doubts, and its files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

from specdemo.analysis.contenders import Contender
from specdemo.analysis.disturbance import BUSY, QUIETER, disturbance
from specdemo.analysis.rows import Row, Run, row_of
from specdemo.settings import Settings

SCHEMA = 3
COMMON = ("drafter", "acceptance", "temperature", "top_k", "top_p", "repetition_penalty", "max_new_tokens", "seed")
"""The settings that stand in every line of the CSV."""
LEAST_QUIET = 2 / 3
"""Share of what was measured in which the machine must have been quiet."""
Key = tuple[int, int, Contender]
"""Of a run its prompt, its repeat and who decoded."""


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
        again: how many runs were made again, since the machine was busy.
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
    again: int = 0
    schema: int = SCHEMA

    findings: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[tuple[str, ...]] = COMMON
    plain_too: ClassVar[bool] = False  # whether plain contenders have rows

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
        return tuple(replace(row, doubt=self.doubt) for row in self.measured)

    @cached_property
    def measured(self) -> tuple[Row, ...]:
        """The same without what is doubted."""

        def row(contender: Contender) -> Row:
            own, plain = ([r for r in self.counted if r.contender == c] for c in (contender, contender.plain))
            return row_of(contender, self.base, own, plain, self.server_gamma)

        return tuple(row(c) for c in self.contenders if (c.family or self.plain_too) and self.of(c))

    def of(self, contender: Contender) -> list[Run]:
        return [r for r in self.runs if r.contender == contender]

    @cached_property
    def shown(self) -> tuple[Row, ...]:
        """The rows as tables have them; the others hold what was measured, whatever the machine did."""
        return tuple(row.shown for row in self.rows)

    @property
    def known(self) -> Sequence[Row]:
        """Of these the rows that have a speed-up."""
        return [row for row in self.shown if row.speedup is not None]

    @cached_property
    def disturbed(self) -> dict[Key, str]:
        """The drafted runs while which the machine was busy, and what shows it: the one place that asks."""
        paces = {key_of(run): run.pace for run in self.runs}
        drafted = ((key, paces.get((*key[:2], key[2].plain)), own) for key, own in paces.items() if key[2].family)
        return {key: said for key, slow, own in drafted if (said := disturbance(slow, own))}

    @cached_property
    def counted(self) -> Sequence[Run]:
        """The runs that figures are of: on a quiet machine, with those that they are compared with; else all."""
        busy, every = ({(p, n, c.plain) for p, n, c in keys} for keys in (self.disturbed, map(key_of, self.runs)))
        least = {size: sum(c.size == size for *_, c in every) * LEAST_QUIET for size in self.sizes}
        if any(sum(c.size == size for *_, c in every - busy) < least[size] for size in self.sizes):
            return self.runs
        return [r for r in self.runs if (r.prompt, r.repeat, r.contender.plain) not in busy]

    @property
    def doubt(self) -> str | None:
        """What shows that the machine was busy: then nothing is recommended, and no speed-up is shown."""
        return next((self.disturbed[key] for key in map(key_of, self.counted) if key in self.disturbed), None)

    @property
    def noisy(self) -> bool:
        """Whether the machine was busy with other work, so that these times say nothing."""
        return self.doubt is not None

    @property
    def most(self) -> float | None:
        """The speed-up that no row's rounds allow to pass; None where none is known."""
        return max((row.most for row in self.rows if row.most), default=None)

    @property
    def noise(self) -> str:
        """The doubt for people, with what is known all the same."""
        known = f" By the tokens of its rounds no setting here can pass {self.most:.2f}×." if self.most else ""
        return f"{'' if self.complete else 'So far: '}{BUSY} {self.doubt}{known} {QUIETER}"

    def to_csv(self) -> str:
        """One line for each row as it is shown, without columns that are unknown; lists are space-separated."""
        names = ("repeats", "complete", "pair", "dtype", "quantization", "server", "schema")
        common = {name: getattr(self.base, name) for name in self.shared}
        common |= {name: getattr(self, name) for name in names} | (self.machine or {})
        rows = [{name: _cell(value) for name, value in row.as_dict().items()} for row in self.shown]
        columns = [n for n in (rows[0] if rows else ()) if n != "settings" and any(row[n] for row in rows)]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*columns, *common])
        writer.writerows([*(row[name] for name in columns), *common.values()] for row in rows)
        return text.getvalue()

    def to_json(self) -> str:
        """What was measured, with what, the findings, the rows as they are shown, and every run."""
        names = (*(f.name for f in fields(self) if f.name != "runs"), "complete", "noisy", "doubt", *self.findings)
        record = {name: getattr(self, name) for name in names} | {"rows": self.shown, "runs": self.runs}
        return json.dumps(record, default=_plain, ensure_ascii=False, allow_nan=False, indent=1)


def key_of(run: Run) -> Key:
    """Which of a report's runs it is."""
    return run.prompt, run.repeat, run.contender


def _plain(value: Any) -> dict[str, Any]:
    return value.as_dict() if hasattr(value, "as_dict") else asdict(value)


def _cell(value: Any) -> str:
    return " ".join("" if v is None else str(v) for v in (value if isinstance(value, list) else [value]))
