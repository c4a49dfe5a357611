"""Data: small tables and lists as JSON, CSV and Markdown, and edits of JSON; the checker knows SQL too."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence

from specdemo.training.tasks.slots import SLOTS
from specdemo.training.tasks.sql import same_query
from specdemo.training.tasks.tables import Record, Table, Value, table
from specdemo.training.tasks.task import Answer, Draw, Task, exact, lines

ASK_JSON = lines("""
Write this {form} as JSON.
Turn this {form} into JSON.
Convert the {form} to JSON.
Give this {form} as a JSON array.
I need this {form} as JSON:
Make JSON of this {form}.
""")
ASK_MARKDOWN = lines("""
Write this CSV as a Markdown table.
Turn this CSV into a Markdown table.
Convert the CSV to Markdown.
Show this CSV as a Markdown table:
Make a Markdown table of this CSV.
Format the CSV as a Markdown table.
""")
ASK_CSV = lines("""
Write this Markdown table as CSV.
Turn this table into CSV.
Convert the Markdown table to CSV.
Give this table as CSV:
Make CSV of this table.
I need this Markdown table as CSV.
""")
ASK_EDIT = {
    "set": lines("""
Set the {column} of {who} to {value}.
Change the {column} of {who} to {value}.
Make {value} the {column} of {who}.
The {column} of {who} is now {value}.
Update {who}: {column} is {value}.
"""),
    "drop key": lines("""
Remove the key "{column}".
Delete "{column}".
Leave out {column}.
Drop the {column}.
"""),
    "rename": lines("""
Rename the key "{column}" to "{new}".
Call the key "{column}" "{new}".
Rename {column} to {new}.
Change the key "{column}" to "{new}".
"""),
    "add": lines("""
Add "{new}": {value} to {who}.
Add the key {new} with the value {value} to {who}.
Give {who} the {new} {value}.
Put {new} {value} into the object of {who}.
"""),
    "remove": lines("""
Remove {who}.
Delete the object of {who}.
Leave out {who}.
Take {who} out of the array.
"""),
    "insert": lines("""
Add one more: {value}.
Append an object: {value}.
Add at the end: {value}.
"""),
}
NEW_KEYS = ("label", "value", "info", "title", "level", "kind", "note")


def written(value: Value) -> str:
    """A value outside JSON."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def as_csv(t: Table) -> str:
    return "\n".join([",".join(t.columns), *(",".join(map(written, row.values())) for row in t.rows)])


def as_markdown(t: Table) -> str:
    rows = [t.columns, tuple("---" for _ in t.columns), *(tuple(map(written, row.values())) for row in t.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def as_list(t: Table, style: str) -> str:
    """A line for each row: ``- name: Anna, age: 31`` in pairs, else ``- name Anna: age 31, city Oslo``."""
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
    return _converted(draw, "to Markdown", ASK_MARKDOWN, as_csv, as_markdown)


def to_csv(draw: Draw) -> Task:
    return _converted(draw, "to CSV", ASK_CSV, as_markdown, as_csv)


def _converted(
    draw: Draw, kind: str, asks: Sequence[str], given: Callable[[Table], str], wanted: Callable[[Table], str]
) -> Task:
    t = table(draw)
    return Task(kind, f"{draw.phrase(asks, t.columns)}\n{given(t)}", wanted(t))


def json_edit(draw: Draw) -> Task:
    """One object or a few, with one change."""
    t = table(draw, rows=(1, 3), columns=(3, 4))
    key, *others = t.columns
    chosen, column = draw.one(t.rows), draw.one(others)
    kind = draw.one(["set", "drop key", "rename", "add"] + ["remove", "insert"] * (len(t.rows) > 1))
    rows = [dict(row) for row in t.rows]
    row = rows[t.rows.index(chosen)]
    new, value = column, row[column]
    if kind == "set":
        value = row[column] = draw.new("set JSON", lambda: (column, t.value(column, draw)))[1]
    elif kind == "drop key":
        rows = [{k: v for k, v in r.items() if k != column} for r in rows]
    elif kind == "rename":
        new = draw.one([word for word in NEW_KEYS if word not in t.columns])
        rows = [{new if k == column else k: v for k, v in r.items()} for r in rows]
    elif kind == "add":
        new, value = draw.new("add to JSON", lambda: _extra(draw))
        row[new] = value
    elif kind == "remove":
        rows.remove(row)
    else:
        rows.append(t.record(draw))
    shown = json.dumps(value)
    if kind == "insert":
        shown = ", ".join(f"{k} {written(v)}" for k, v in rows[-1].items())
    asks = [ask.format(column=column, who=chosen[key], new=new, value=shown) for ask in ASK_EDIT[kind]]
    return Task("edit JSON", f"{draw.phrase(asks, t.columns)}\n{as_json(t.rows)}", as_json(rows))


def _extra(draw: Draw) -> tuple[str, Value]:
    """A key that no table has, with a value."""
    options: list[tuple[str, Value]] = [("id", draw.number(1, 99))]
    options += [
        (key, draw.one(SLOTS[kind])) for key, kind in (("shade", "colour"), ("place", "city"), ("owner", "name"))
    ]
    return draw.one([*options, ("active", draw.one((True, False))), ("points", draw.number(1, 99))])


def same(t: Task, answer: Answer) -> bool:
    """Whether an answer means what the task's does; layout does not count, the order of keys does."""
    if t.kind.endswith("JSON"):
        try:
            return json.dumps(json.loads(answer.text)) == json.dumps(json.loads(t.answer))  # tells 1 from true
        except ValueError:
            return False
    if t.kind == "SQL":
        return same_query(answer.text, t.answer)
    read = _cells if t.kind == "to Markdown" else _fields
    return read(answer.text) == read(t.answer)


grades = exact(same)


def _fields(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text.strip()))]


def _cells(text: str) -> list[list[str]]:
    """A Markdown table's cells, with the line below its head as one mark; [] for what is no table."""
    rows = [line.strip() for line in text.strip().split("\n")]
    if any(not (row.startswith("|") and row.endswith("|")) for row in rows):
        return []
    cells = [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]
    return [["---" if re.fullmatch(":?-+:?", cell) else cell for cell in row] for row in cells]
