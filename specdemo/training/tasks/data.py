"""Data: small tables and lists as JSON, CSV and Markdown, edits of JSON, and questions as SQL."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from specdemo.training.tasks.corpus import TEMPLATES
from specdemo.training.tasks.edit import LISTS, in_form
from specdemo.training.tasks.task import Answer, Draw, Grade, Task, around, rows, typed

dumps = partial(json.dumps, ensure_ascii=False)
Value = str | int | float | bool
Record = dict[str, Value]
COLUMNS, CONVERT, JSON, SQL = (TEMPLATES[part] for part in ("columns", "convert", "json", "sql"))
NUMBERS = ("number", "price")
COMPARED = {column: (more, less) for column, more, less in rows(SQL["compared"])}
RELATED = dict(rows(SQL["related"]))
"""Column → how its numbers are compared; → what stands before its texts."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of the same columns; the first column names the row and differs from row to row.

    Attributes:
        title: what a row is, in the plural.
        columns: name → what fills it: ``number``, ``price``, ``flag`` or a slot of texts.
    """

    title: str
    columns: dict[str, str]
    rows: tuple[Record, ...] = ()

    def record(self, draw: Draw) -> Record:
        """One more row, of a name that no row has."""
        key = next(iter(self.columns))
        while True:
            made = {column: _value(draw, kind) for column, kind in self.columns.items()}
            if made[key] not in [row[key] for row in self.rows]:
                return made


def _value(draw: Draw, kind: str) -> Value:
    if kind in NUMBERS:
        number = draw.number(1, draw.one((9, 99, 999)))
        return number if kind == "number" else round(number + draw.one((0.25, 0.5, 0.95, 0.99)), 2)
    return draw.chance(0.5) if kind == "flag" else draw.slot(kind)


_USUAL = rows(COLUMNS["usual"])


def _column(draw: Draw, first: bool) -> tuple[str, str]:
    """A name, usual or open, and what fills it: in the first column texts."""
    opened = draw.say(COLUMNS["open"]), draw.one(COLUMNS["kinds"])
    name, kind = draw.one(_USUAL) if draw.chance(0.5) else opened
    return _column(draw, first) if first and kind in (*NUMBERS, "flag") else (name, kind)


def table(draw: Draw, length: int, columns: int) -> Table:
    """A table of so many rows and columns."""
    made = Table(draw.slot("nouns"), {})
    while len(made.columns) < columns:
        made.columns.setdefault(*_column(draw, first=not made.columns))
    for _ in range(length):
        made = replace(made, rows=(*made.rows, made.record(draw)))
    return made


def written(value: Value) -> str:
    """A value outside JSON."""
    return dumps(value) if isinstance(value, bool) else str(value)


def as_csv(t: Table) -> str:
    return "\n".join(",".join(row) for row in (t.columns, *(map(written, row.values()) for row in t.rows)))


def as_markdown(t: Table) -> str:
    rows = [t.columns, ["---"] * len(t.columns), *(map(written, row.values()) for row in t.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def as_pairs(t: Table) -> str:
    """``- name: Anna, age: 31``"""
    return "\n".join("- " + ", ".join(f"{k}: {written(v)}" for k, v in row.items()) for row in t.rows)


def as_headed(t: Table) -> str:
    """``- name Anna: age 31, city Oslo``"""
    rows = ([f"{k} {written(v)}" for k, v in row.items()] for row in t.rows)
    return "\n".join(f"- {first}: {', '.join(rest)}" for first, *rest in rows)


def as_twos(t: Table, form: str) -> str:
    """``- Anna (31)``, of two columns, in a form such as ``- {} ({})``."""
    return "\n".join(form.format(*map(written, row.values())) for row in t.rows)


def as_json(t: Table) -> str:
    """An array with one object a line, which is as short as it is readable."""
    return "[\n" + ",\n".join(f"  {dumps(row)}" for row in t.rows) + "\n]"


FORMS: dict[str, tuple[Callable[[Table], str], ...]] = {
    "JSON": (as_json,),
    "Markdown": (as_markdown,),
    "CSV": (as_csv,),
    "list": (as_pairs, as_headed),
}
"""How a table can be written."""


def convert(draw: Draw) -> Task:
    """A table from one form to another, most often to JSON."""
    t = table(draw, draw.one((1, 1, 2, 2, 2, 3, 3, 4)), draw.one((2, 2, 2, 3, 3, 4)))
    target = draw.one(("JSON", "JSON", "JSON", "Markdown", "CSV"))
    source = draw.one([form for form in FORMS if form != target])
    words = {"source": draw.say(CONVERT[f"from {source}"]), "target": draw.say(CONVERT[target])}
    asks = CONVERT["asks"]
    if source == "list" and len(t.columns) == 2 and draw.chance(0.4):
        first, second = t.columns
        words["target"] += draw.say(CONVERT["columns"], first=first, second=second)
        text, asks = as_twos(t, draw.one(CONVERT["twos"])), CONVERT["asks of columns"]
    else:
        text = draw.one(FORMS[source])(t)
    text = text.replace(",", ", ") if source == "CSV" and draw.chance(0.3) else text
    if source == "JSON" and draw.chance(0.4):
        text = dumps(t.rows[0] if len(t.rows) == 1 and draw.chance(0.5) else t.rows)
    return Task(f"to {target}", around(draw, asks, text, **words), FORMS[target][0](t))


def simple(draw: Draw) -> Task:
    """Some texts or numbers as an array, or what is said of one thing as an object, in JSON."""
    made: list[Value] | Record
    if listed := draw.chance(0.6):
        kind = draw.one(("word", "text", "name", "number"))
        made = draw.several(draw.one((2, 3, 3, 4, 5)), lambda: _value(draw, kind))
        form, texts = draw.one((*LISTS, "commas")), [written(value) for value in made]
    else:
        made = table(draw, 1, draw.one((1, 2, 2, 3))).rows[0]
        sign, form = draw.one((": ", ": ", " = ", "=", " is ", " ")), draw.one(("commas", "commas", "lines"))
        texts = [f"{column}{sign}{written(value)}" for column, value in made.items()]
    what = "array" if listed else "object"
    if form == "commas" and draw.chance(0.3):  # all in one sentence, as in "a JSON list of x, y and z"
        *first, last = texts
        said = draw.one((" and ", ", ")).join([", ".join(first), last] if first else [last])
        ask = typed(draw, draw.chosen(CONVERT[f"inline {what}"]))
        return Task("to JSON", draw.say(ask, items=said), dumps(made))
    words = {"source": "list", "target": draw.say(CONVERT[what])}
    return Task("to JSON", around(draw, CONVERT["asks"], in_form(texts, form), **words), dumps(made))


def edit_json(draw: Draw) -> Task:
    """An array of a few objects, or an object alone, with one change."""
    # Short ones are practised more: a change is learned on them soonest.
    t = table(draw, draw.one((1, 1, 2, 2, 3) if draw.held_out else (1, 1, 1, 1, 2, 2, 3)), draw.one((2, 2, 3, 4)))
    key, *others = t.columns
    kind = draw.one(["set", "set", "drop", "rename", "add"] + ["remove", "insert"] * (len(t.rows) > 1))
    index, column = draw.number(0, len(t.rows) - 1), draw.one(others)
    rows = [dict(row) for row in t.rows]
    who, new, value = rows[index][key], draw.say(COLUMNS["open"]), rows[index][column]
    if kind == "set":
        value = rows[index][column] = _value(draw, t.columns[column])
    elif kind == "drop":
        rows = [{k: v for k, v in row.items() if k != column} for row in rows]
    elif kind == "rename":
        rows = [{new if k == column else k: v for k, v in row.items()} for row in rows]
    elif kind == "add":
        value = rows[index][new] = _value(draw, draw.one(("name", "word", "number", "flag")))
    elif kind == "remove":
        del rows[index]
    else:
        rows.append(t.record(draw))
    row = ", ".join(f"{k} {written(v)}" for k, v in rows[-1].items()) if rows else ""
    alone = len(t.rows) == 1 and draw.chance(0.5)
    asks = JSON[f"{kind} alone" if alone and kind in ("set", "add") else kind]
    before, after = (dumps(some[0]) if alone else as_json(replace(t, rows=tuple(some))) for some in (t.rows, rows))
    said = {"column": column, "who": who, "new": new, "row": row, "value": written(value), "shown": dumps(value)}
    return Task("edit JSON", around(draw, asks, before, **said), after)


def query(draw: Draw) -> Task:
    """A schema and a question; the answer is one SQL query."""
    while True:
        t = table(draw, 0, draw.one((3, 3, 4, 5)))
        key, *others = t.columns
        numbers = [column for column in others if t.columns[column] in NUMBERS]
        texts = [column for column in others if t.columns[column] not in (*NUMBERS, "flag")]
        if numbers and texts:
            break
    number, text = draw.one(numbers), draw.one(texts)
    value, limit = draw.slot(draw.one(("word", "proper"))), draw.number()
    than, first, top, order, sign = draw.one(rows(SQL["directions"]))
    words = {"kind": t.title, "key": key, "number": number, "text": text, "value": value}
    words |= {"than": than, "first": first, "top": top, "order": order, "limit": str(limit)}
    words |= {"few": str(limit % 9 + 2), "wanted": draw.one([c for c in t.columns if c != text])}
    compared = COMPARED.get(number, ("with more {number} than", "with less {number} than"))
    words["compared"] = draw.say(compared[sign == "<"], number=number)
    words["related"] = draw.say(RELATED.get(text, "with {text}"), text=text)
    words |= {"bound": f"WHERE {number} {sign} {limit}", "where": f"WHERE {text} = '{value}'"}
    question, _, answer = draw.say(SQL["questions"], **words).partition(" ⟶ ")
    if draw.chance(0.15):  # as it is typed in haste
        question = question[0].lower() + question[1:].rstrip("?.")
    types = {"number": "INT", "price": "REAL", "flag": "BOOLEAN"}
    typed_columns = ", ".join(f"{column} {types.get(kind, 'TEXT')}" for column, kind in t.columns.items())
    *others, last = t.columns
    shown = {"schema": f"{t.title}{draw.one(('', '', ' '))}({draw.one((', ', ', ', ',')).join(t.columns)})"}
    shown |= {"typed": f"{t.title}{draw.one(('', ' '))}({typed_columns})", "table": t.title}
    shown["columns"] = f"{', '.join(others)}{draw.one((' and ', ', '))}{last}"
    return Task("SQL", draw.say(SQL["schemas"], question=question, **shown), answer)


def grade(task: Task, answer: Answer) -> Grade:
    """Right means the same as the task's answer; layout does not count, the order of keys does."""
    try:
        return {"right": [answer.ended and _read(task.kind, answer.text) == _read(task.kind, task.answer)]}
    except ValueError:
        return {"right": [False]}


def _read(kind: str, text: str) -> object:
    """What counts of an answer. ValueError if it is no JSON, or no table in Markdown."""
    if kind == "SQL":  # spaces, line ends, case of keywords and a last ; do not count
        words = re.findall(r"'[^']*'|\w+|[^\w\s']", text.strip().removesuffix(";"))
        return [word if word.startswith("'") else word.lower() for word in words]
    if kind == "to CSV":
        return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text.strip()))]
    if kind != "to Markdown":
        return dumps(json.loads(text))  # as text, which tells 1 from true
    rows = [line.strip() for line in text.strip().split("\n")]
    if any(not (row.startswith("|") and row.endswith("|")) for row in rows):
        raise ValueError(text)
    cells = [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]
    return [["---" if re.fullmatch(":?-+:?", cell) else cell for cell in row] for row in cells]
