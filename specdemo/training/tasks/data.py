"""Data: small tables and lists as JSON, CSV and Markdown, edits of JSON, and questions as SQL."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from specdemo.training.tasks.task import Answer, Draw, Grade, Task, lines

Value = str | int | bool
Record = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of the same columns; the first column names the row and differs from row to row.

    Attributes:
        title: what a row is, in the plural.
        columns: name → what fills it: ``number``, ``flag`` or a slot of texts.
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

    def of_kind(self, numbers: bool) -> list[str]:
        """The columns of numbers, or those of texts, the first left out."""
        found = [c for c, kind in self.columns.items() if (kind == "number") == numbers and kind != "flag"]
        return [column for column in found if column != next(iter(self.columns))]


def _value(draw: Draw, kind: str) -> Value:
    if kind == "number":
        return draw.number(1, draw.one((9, 99, 999)))
    return draw.chance(0.5) if kind == "flag" else draw.slot(kind)


def table(draw: Draw, rows: tuple[int, int], columns: tuple[int, int]) -> Table:
    """A table of so many rows and columns, both ends included."""
    names = dict.fromkeys(draw.say("<{noun}|{noun}|{identifier}>") for _ in range(draw.number(*columns)))
    kinds = ["name", "name", "word", "text", "code", "number", "number", "number", "flag"]
    filled = {column: draw.one(kinds if i else kinds[:5]) for i, column in enumerate(names)}
    made = Table(draw.slot("nouns"), filled)
    for _ in range(draw.number(*rows)):
        made = replace(made, rows=(*made.rows, made.record(draw)))
    return made


def written(value: Value) -> str:
    """A value outside JSON."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def as_csv(t: Table) -> str:
    return "\n".join([",".join(t.columns), *(",".join(map(written, row.values())) for row in t.rows)])


def as_markdown(t: Table) -> str:
    rows = [tuple(t.columns), ("---",) * len(t.columns), *(tuple(map(written, row.values())) for row in t.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def as_pairs(t: Table) -> str:
    """``- name: Anna, age: 31``"""
    return "\n".join("- " + ", ".join(f"{k}: {written(v)}" for k, v in row.items()) for row in t.rows)


def as_headed(t: Table) -> str:
    """``- name Anna: age 31, city Oslo``"""
    rows = ([f"{k} {written(v)}" for k, v in row.items()] for row in t.rows)
    return "\n".join(f"- {first}: {', '.join(rest)}" if rest else f"- {first}" for first, *rest in rows)


def as_json(t: Table) -> str:
    """An array with one object a line, which is as short as it is readable."""
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in t.rows) + "\n]"


FORMS: dict[str, tuple[Callable[[Table], str], ...]] = {
    "JSON": (as_json,),
    "Markdown": (as_markdown,),
    "CSV": (as_csv,),
    "list": (as_pairs, as_headed),
}
"""How a table can be written."""
ASKS = lines("""
<Turn|Convert|Change|Transform> <this|the|this {source}|the {source}> <in|>to {target}<.|:|, please.>
<Write|Give|Show|Format|Put|Print> <this|it|this {source}> <as|in> {target}<.|:|, please.>
<I need|I want|Give me|Make me> {target}<.|:| of this:| from this {source}.>
<as|As> {target} please<|.|:>
<To |>{target}:
<Can|Could> you <make|write|give me> {target} <of|from> <this|this {source}|it>?
Make <this|this {source}> {target}<.|:>
""")


def convert(draw: Draw) -> Task:
    """From one form to another, most often to JSON."""
    t = table(draw, (1, 5), (1, 4))
    target = draw.one(("JSON", "JSON", "JSON", "Markdown", "CSV"))
    source = draw.one([form for form in FORMS if form != target])
    words = {"JSON": "<JSON|JSON|a JSON array|json>", "Markdown": "<Markdown|a Markdown table|markdown>"}
    wanted = draw.say(words.get(target, "<CSV|CSV|csv>"))
    named = draw.say(
        {"list": "<list|text|data>", "Markdown": "<Markdown|table|Markdown table>"}.get(source, source)
    )
    ask = draw.say(draw.one(ASKS), source=named, target=wanted)
    return Task(f"to {target}", _around(draw, ask, draw.one(FORMS[source])(t)), FORMS[target][0](t))


def _around(draw: Draw, ask: str, text: str) -> str:
    """Most people ask first; some after the text."""
    return f"{text}\n{ask}" if draw.chance(0.2) and not ask.endswith(":") else f"{ask}\n{text}"


CHANGES = {
    "set": "<Set|Change> the {column} of {who} to {value}.|Make {value} the {column} of {who}.|"
    "The {column} of {who} is now {value}.|Update {who}: {column} is {value}.|{who}: {column} = {value}",
    "drop": '<Remove|Delete|Drop> <the key |>"{column}".|Remove {column}.|Without {column}<, please|>.',
    "rename": '<Rename|Change> <the key |>"{column}" to "{new}".|Call "{column}" "{new}".|{new} for {column}.',
    "add": 'Add "{new}": {value} to {who}.|Give {who} the {new} {value}.|Add the key {new} with {value} to {who}.',
    "remove": "<Remove|Delete|Leave out|Drop> {who}.|Take {who} out<| of the array>.|Without {who}<, please|>.",
    "insert": "Add <one more|another|a row>: {value}.|Append <an object: |>{value}.|Add at the end: {value}.",
}


def edit_json(draw: Draw) -> Task:
    """An array of a few objects, with one change."""
    t = table(draw, (1, 3), (2, 4))
    if len(t.columns) < 2:
        return edit_json(draw)
    key, *others = t.columns
    kind = draw.one(["set", "drop", "rename", "add"] + ["remove", "insert"] * (len(t.rows) > 1))
    index, column = draw.number(0, len(t.rows) - 1), draw.one(others)
    rows = [dict(row) for row in t.rows]
    who, new, value = rows[index][key], draw.identifier(), rows[index][column]
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
    shown = ", ".join(f"{k} {written(v)}" for k, v in rows[-1].items()) if kind == "insert" else json.dumps(value)
    ask = draw.say(f"<{CHANGES[kind]}>", column=column, who=who, new=new, value=shown)
    return Task("edit JSON", _around(draw, ask, as_json(t)), as_json(replace(t, rows=tuple(rows))))


SCHEMAS = lines("""
Table {schema}. {question}
<Given|For> the table {schema}, write SQL: {question}
SQL for {schema}: {question}
Schema: {schema}\\nQuestion: {question}
<Write a|A> query for {schema}.\\n{question}
{question}\\nThe table is {schema}. <SQL please.|Answer in SQL.|>
""")
QUESTIONS = lines("""
<Which {kind} have the {text} {value}?|List all {kind} with {text} {value}.> ⟶ SELECT * FROM {kind} {where};
Show the {wanted} of all {kind} with {text} {value}. ⟶ SELECT {wanted} FROM {kind} {where};
<What {wanted} goes with|Which {wanted} has the> {text} {value}? ⟶ SELECT {wanted} FROM {kind} {where};
How many {kind} are there? ⟶ SELECT COUNT(*) FROM {kind};
How many {kind} have the {text} {value}? ⟶ SELECT COUNT(*) FROM {kind} {where};
Count the {kind} with {number} {than} than {limit}. ⟶ SELECT COUNT(*) FROM {kind} {bound};
Which {kind} have a {number} of {than} than {limit}? ⟶ SELECT * FROM {kind} {bound};
Show {key} and {number} where {number} is {than} than {limit}. ⟶ SELECT {key}, {number} FROM {kind} {bound};
What is the {first} {number}? ⟶ SELECT {top}({number}) FROM {kind};
What is the average {number} for each {text}? ⟶ SELECT {text}, AVG({number}) FROM {kind} GROUP BY {text};
How many {kind} are there for each {text}? ⟶ SELECT {text}, COUNT(*) FROM {kind} GROUP BY {text};
What is the sum of {number}? ⟶ SELECT SUM({number}) FROM {kind};
Sort the {kind} by {number}, {first} first. ⟶ SELECT * FROM {kind} ORDER BY {number} {order};
Give the {few} {kind} with the {first} {number}. ⟶ SELECT * FROM {kind} ORDER BY {number} {order} LIMIT {few};
<List|Show> the different {text} values. ⟶ SELECT DISTINCT {text} FROM {kind};
<Delete|Remove> all {kind} with {text} {value}. ⟶ DELETE FROM {kind} {where};
Set the {number} to {limit} where {text} is {value}. ⟶ UPDATE {kind} SET {number} = {limit} {where};
""")


def query(draw: Draw) -> Task:
    """A schema and a question; the answer is one SQL query."""
    while True:
        t = table(draw, (0, 0), (3, 5))
        if t.of_kind(numbers=True) and t.of_kind(numbers=False):
            break
    number, text = draw.one(t.of_kind(numbers=True)), draw.one(t.of_kind(numbers=False))
    value, limit, more = _value(draw, draw.one(("word", "proper"))), draw.number(), draw.chance(0.5)
    words = {"kind": t.title, "key": next(iter(t.columns)), "number": number, "text": text, "value": value}
    words |= {"limit": limit, "few": limit % 9 + 2, "wanted": draw.one([c for c in t.columns if c != text])}
    words |= {"than": "more" if more else "less", "first": "highest" if more else "lowest"}
    words |= {"top": "MAX" if more else "MIN", "order": "DESC" if more else "ASC"}
    words |= {"bound": f"WHERE {number} {'>' if more else '<'} {limit}", "where": f"WHERE {text} = '{value}'"}
    question, _, answer = draw.say(draw.one(QUESTIONS), **words).partition(" ⟶ ")
    schema = f"{t.title}({', '.join(t.columns)})"
    return Task("SQL", draw.say(draw.one(SCHEMAS), schema=schema, question=question).replace("\\n", "\n"), answer)


def grade(task: Task, answer: Answer) -> Grade:
    """Right means the same as the task's answer; layout does not count, the order of keys does."""
    readers: dict[str, Callable[[str], object]] = {
        "SQL": _words,
        "to Markdown": _cells,
        "to CSV": lambda text: [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text.strip()))],
    }
    read = readers.get(task.kind, lambda text: json.dumps(json.loads(text)))  # as text, which tells 1 from true
    try:
        return {"right": [answer.ended and read(answer.text) == read(task.answer)]}
    except ValueError:
        return {"right": [False]}


def _words(query: str) -> list[str]:
    """Spaces, line ends, case of keywords and a last ; do not count."""
    words = re.findall(r"'[^']*'|\w+|[^\w\s']", query.strip().removesuffix(";"))
    return [word if word.startswith("'") else word.lower() for word in words]


def _cells(text: str) -> list[list[str]]:
    """A Markdown table's cells, with the line below its head as one mark.

    Raises:
        ValueError: it is no table.
    """
    rows = [line.strip() for line in text.strip().split("\n")]
    if any(not (row.startswith("|") and row.endswith("|")) for row in rows):
        raise ValueError(text)
    cells = [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]
    return [["---" if re.fullmatch(":?-+:?", cell) else cell for cell in row] for row in cells]
