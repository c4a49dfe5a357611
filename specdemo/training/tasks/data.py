"""Data: small tables and lists as JSON, CSV and Markdown, edits of JSON, and questions as SQL."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from specdemo.training.tasks.sql import same_query, sql_task
from specdemo.training.tasks.tables import Record, Table, Value, table
from specdemo.training.tasks.task import Answer, Draw, Grade, Task
from specdemo.training.tasks.words import CITIES, COLOURS, NAMES

name = "data"
longest = 200

ASK_JSON = (
    "Write this {form} as JSON.",
    "Turn this {form} into JSON.",
    "Convert the {form} to JSON.",
    "Give this {form} as a JSON array.",
    "I need this {form} as JSON:",
    "Make JSON of this {form}.",
)
ASK_MARKDOWN = (
    "Write this CSV as a Markdown table.",
    "Turn this CSV into a Markdown table.",
    "Convert the CSV to Markdown.",
    "Show this CSV as a Markdown table:",
    "Make a Markdown table of this CSV.",
    "Format the CSV as a Markdown table.",
)
ASK_CSV = (
    "Write this Markdown table as CSV.",
    "Turn this table into CSV.",
    "Convert the Markdown table to CSV.",
    "Give this table as CSV:",
    "Make CSV of this table.",
    "I need this Markdown table as CSV.",
)


def written(value: Value) -> str:
    """A value outside JSON."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def as_csv(t: Table) -> str:
    return "\n".join([",".join(t.columns), *(",".join(map(written, row.values())) for row in t.rows)])


def as_markdown(t: Table) -> str:
    lines = [t.columns, tuple("---" for _ in t.columns), *(tuple(map(written, row.values())) for row in t.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_list(t: Table, style: str) -> str:
    """A line for each row: ``- name: Anna, age: 31`` or ``- Anna: age 31, city Oslo``."""
    if style == "pairs":
        return "\n".join("- " + ", ".join(f"{k}: {written(v)}" for k, v in row.items()) for row in t.rows)
    first, *rest = t.columns
    return "\n".join(
        f"- {first} {row[first]}: " + ", ".join(f"{c} {written(row[c])}" for c in rest) for row in t.rows
    )


def as_json(rows: Sequence[Record]) -> str:
    """An array with one object a line, which is as short as it is readable."""
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]"


def to_json(draw: Draw) -> Task:
    t = table(draw)
    form = draw.one(("list", "table", "CSV"))
    text = {"list": as_list(t, draw.one(("pairs", "headed"))), "table": as_markdown(t), "CSV": as_csv(t)}[form]
    ask = draw.phrase(ASK_JSON, t.columns)
    return Task("to JSON", f"{ask.format(form=form)}\n{text}", as_json(t.rows))


def to_markdown(draw: Draw) -> Task:
    t = table(draw)
    ask = draw.phrase(ASK_MARKDOWN, t.columns)
    return Task("to Markdown", f"{ask}\n{as_csv(t)}", as_markdown(t))


def to_csv(draw: Draw) -> Task:
    t = table(draw)
    ask = draw.phrase(ASK_CSV, t.columns)
    return Task("to CSV", f"{ask}\n{as_markdown(t)}", as_csv(t))


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a JSON array: how it may be asked for, and what it does to the rows."""

    asks: tuple[str, ...]
    apply: Callable[[list[Record]], list[Record]]


def json_edit(draw: Draw) -> Task:
    """One object or a few, with one change."""
    t = table(draw, rows=(1, 3), columns=(3, 4))
    change = _change(draw, t)
    ask = draw.phrase(change.asks, t.columns)
    before = as_json(t.rows)
    return Task("edit JSON", f"{ask}\n{before}", as_json(change.apply([dict(row) for row in t.rows])))


def _with_value(index: int, key: str, value: object, rows: list[Record]) -> list[Record]:
    rows[index][key] = value
    return rows


def _change(draw: Draw, t: Table) -> Edit:
    key, *others = t.columns
    row, column = draw.one(t.rows), draw.one(others)
    who, index = row[key], t.rows.index(row)
    kinds = ["set", "drop key", "rename", "add"] + ["remove", "insert"] * (len(t.rows) > 1)
    kind = draw.one(kinds)
    if kind == "set":
        value = draw.new("set JSON", lambda: (column, t.value(column, draw)))[1]
        shown = json.dumps(value)
        apply = partial(_with_value, index, column, value)

        asks = (
            f"Set the {column} of {who} to {shown}.",
            f"Change the {column} of {who} to {shown}.",
            f"Make {shown} the {column} of {who}.",
            f"The {column} of {who} is now {shown}.",
            f"Update {who}: {column} is {shown}.",
        )
    elif kind == "drop key":

        def apply(rows: list[Record]) -> list[Record]:
            return [{k: v for k, v in r.items() if k != column} for r in rows]

        asks = (
            f'Remove the key "{column}".',
            f'Delete "{column}".',
            f"Leave out {column}.",
            f"Drop the {column}.",
        )
    elif kind == "rename":
        new = draw.one(
            [w for w in ("label", "value", "info", "title", "level", "kind", "note") if w not in t.columns]
        )

        def apply(rows: list[Record]) -> list[Record]:
            return [{new if k == column else k: v for k, v in r.items()} for r in rows]

        asks = (
            f'Rename the key "{column}" to "{new}".',
            f'Call the key "{column}" "{new}".',
            f"Rename {column} to {new}.",
            f'Change the key "{column}" to "{new}".',
        )
    elif kind == "add":
        extra, value = draw.new(
            "add to JSON",
            lambda: draw.one(
                (
                    ("id", draw.number(1, 99)),
                    ("shade", draw.one(COLOURS)),
                    ("place", draw.one(CITIES)),
                    ("owner", draw.one(NAMES)),
                    ("active", draw.one((True, False))),
                    ("points", draw.number(1, 99)),
                )
            ),
        )
        shown = json.dumps(value)
        apply = partial(_with_value, index, extra, value)

        asks = (
            f'Add "{extra}": {shown} to {who}.',
            f"Add the key {extra} with the value {shown} to {who}.",
            f"Give {who} the {extra} {shown}.",
            f"Put {extra} {shown} into the object of {who}.",
        )
    elif kind == "remove":

        def apply(rows: list[Record]) -> list[Record]:
            return rows[:index] + rows[index + 1 :]

        asks = (
            f"Remove {who}.",
            f"Delete the object of {who}.",
            f"Leave out {who}.",
            f"Take {who} out of the array.",
        )
    else:
        made = t.record(draw)
        shown = ", ".join(f"{k} {written(v)}" for k, v in made.items())

        def apply(rows: list[Record]) -> list[Record]:
            return [*rows, made]

        asks = (f"Add one more: {shown}.", f"Append an object: {shown}.", f"Add at the end: {shown}.")
    return Edit(asks, apply)


KINDS: tuple[tuple[Callable[[Draw], Task], int, int], ...] = (
    (to_json, 6, 6),
    (json_edit, 5, 20),
    (to_markdown, 3, 3),
    (to_csv, 2, 2),
    (sql_task, 5, 5),
)
"""With their weights among held-out tasks and in training."""


def task(draw: Draw) -> Task:
    return draw.task(draw.weighed(KINDS))


def grades(tasks: Sequence[Task], answers: Sequence[Answer]) -> list[Grade]:
    """Right: ended, and the same once parsed; layout does not count."""
    return [{"right": (int(a.ended and same(t, a.text)), 1)} for t, a in zip(tasks, answers, strict=True)]


def same(t: Task, text: str) -> bool:
    """Whether an answer means what the task's does."""
    if t.kind.endswith("JSON"):
        try:
            return _typed(json.loads(text)) == _typed(json.loads(t.answer))
        except ValueError:
            return False
    if t.kind == "SQL":
        return same_query(text, t.answer)
    read = _cells if t.kind == "to Markdown" else _fields
    return read(text) == read(t.answer)


def _typed(value: object) -> str:
    """A value as text that tells 1 from true and minds the order of keys, as a reader of the answer would."""
    return json.dumps(value)


def _fields(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text.strip()))]


def _cells(text: str) -> list[list[str]]:
    """A Markdown table's cells, with the line below its head as one mark; [] for what is no table."""
    lines = [line.strip() for line in text.strip().split("\n")]
    if any(not (line.startswith("|") and line.endswith("|")) for line in lines):
        return []
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    return [["---" if re.fullmatch(":?-+:?", cell) else cell for cell in row] for row in rows]
