"""A schema and a question, answered by one SQL query."""

from __future__ import annotations

import re

from specdemo.training.tasks.tables import KINDS, columns_of
from specdemo.training.tasks.task import Draw, Task

ASKS = (
    "Table {schema}. {question}",
    "Given the table {schema}, write SQL: {question}",
    "SQL for {schema}: {question}",
    "Schema: {schema}\nQuestion: {question}",
    "Write a query for {schema}.\n{question}",
)


def sql_task(draw: Draw) -> Task:
    """Schema and question in one prompt; the answer is the query."""

    def make() -> tuple[str, tuple[str, ...]]:
        while True:
            kind, columns = columns_of(draw, 3, 5)
            if _numbers(kind, columns) and len(_texts(kind, columns)) > 1:
                return kind, columns

    kind, columns = draw.new("schema", make)
    question, query = draw.new("question", lambda: _question(draw, kind, columns))
    ask = draw.phrase(ASKS, columns)
    return Task("SQL", ask.format(schema=f"{kind}({', '.join(columns)})", question=question), query)


def same_query(text: str, expected: str) -> bool:
    """Whether two queries have the same words; spaces, line ends, case of keywords and a last ; do not count."""
    return _words(text) == _words(expected)


def _words(query: str) -> list[str]:
    words = re.findall(r"'[^']*'|\w+|[^\w\s']", query.strip().removesuffix(";"))
    return [word if word.startswith("'") else word.lower() for word in words]


def _numbers(kind: str, columns: tuple[str, ...]) -> list[str]:
    return [c for c in columns if type(KINDS[kind][c](Draw("type"))) is int]


def _texts(kind: str, columns: tuple[str, ...]) -> list[str]:
    return [c for c in columns if type(KINDS[kind][c](Draw("type"))) is str]


def _question(draw: Draw, kind: str, columns: tuple[str, ...]) -> tuple[str, str]:
    """(question, query) over these columns."""
    key = columns[0]
    number, text = draw.one(_numbers(kind, columns)), draw.one(_texts(kind, columns)[1:])
    value, limit = KINDS[kind][text](draw), KINDS[kind][number](draw)
    wanted = draw.one([c for c in columns if c != text])
    more = draw.one((True, False))
    than, sign = ("more", ">") if more else ("less", "<")
    where = f"WHERE {text} = '{value}'"
    bound = f"WHERE {number} {sign} {limit}"
    order = "DESC" if more else "ASC"
    first, top = ("highest", "MAX") if more else ("lowest", "MIN")
    options = (
        (f"Which {kind} have the {text} {value}?", f"SELECT * FROM {kind} {where};"),
        (f"List all {kind} with {text} {value}.", f"SELECT * FROM {kind} {where};"),
        (f"Show the {wanted} of all {kind} with {text} {value}.", f"SELECT {wanted} FROM {kind} {where};"),
        (f"What {wanted} goes with {text} {value}?", f"SELECT {wanted} FROM {kind} {where};"),
        (f"How many {kind} are there?", f"SELECT COUNT(*) FROM {kind};"),
        (f"How many {kind} have the {text} {value}?", f"SELECT COUNT(*) FROM {kind} {where};"),
        (f"Count the {kind} with {number} {than} than {limit}.", f"SELECT COUNT(*) FROM {kind} {bound};"),
        (f"Which {kind} have a {number} of {than} than {limit}?", f"SELECT * FROM {kind} {bound};"),
        (
            f"Show {key} and {number} where {number} is {than} than {limit}.",
            f"SELECT {key}, {number} FROM {kind} {bound};",
        ),
        (f"What is the {first} {number}?", f"SELECT {top}({number}) FROM {kind};"),
        (f"What is the {first} {number} with {text} {value}?", f"SELECT {top}({number}) FROM {kind} {where};"),
        (
            f"What is the average {number} for each {text}?",
            f"SELECT {text}, AVG({number}) FROM {kind} GROUP BY {text};",
        ),
        (f"How many {kind} are there for each {text}?", f"SELECT {text}, COUNT(*) FROM {kind} GROUP BY {text};"),
        (f"What is the sum of {number}?", f"SELECT SUM({number}) FROM {kind};"),
        (f"Sort the {kind} by {number}, {first} first.", f"SELECT * FROM {kind} ORDER BY {number} {order};"),
        (
            f"Give the {limit % 9 + 2} {kind} with the {first} {number}.",
            f"SELECT * FROM {kind} ORDER BY {number} {order} LIMIT {limit % 9 + 2};",
        ),
        (f"List the different {text} values.", f"SELECT DISTINCT {text} FROM {kind};"),
        (
            f"Show all {kind} with {text} {value} and {number} {than} than {limit}.",
            f"SELECT * FROM {kind} {where} AND {number} {sign} {limit};",
        ),
        (f"Delete all {kind} with {text} {value}.", f"DELETE FROM {kind} {where};"),
        (
            f"Set the {number} to {limit} where {text} is {value}.",
            f"UPDATE {kind} SET {number} = {limit} {where};",
        ),
    )
    return draw.one(options)
