"""A schema and a question, answered by one SQL query."""

from __future__ import annotations

import re

from specdemo.training.tasks.tables import Table, columns_of
from specdemo.training.tasks.task import Draw, Task, lines

ASKS = (
    "Table {schema}. {question}",
    "Given the table {schema}, write SQL: {question}",
    "SQL for {schema}: {question}",
    "Schema: {schema}\nQuestion: {question}",
    "Write a query for {schema}.\n{question}",
)
QUESTIONS = lines("""
Which {kind} have the {text} {value}? ⟶ SELECT * FROM {kind} {where};
List all {kind} with {text} {value}. ⟶ SELECT * FROM {kind} {where};
Show the {wanted} of all {kind} with {text} {value}. ⟶ SELECT {wanted} FROM {kind} {where};
What {wanted} goes with {text} {value}? ⟶ SELECT {wanted} FROM {kind} {where};
How many {kind} are there? ⟶ SELECT COUNT(*) FROM {kind};
How many {kind} have the {text} {value}? ⟶ SELECT COUNT(*) FROM {kind} {where};
Count the {kind} with {number} {than} than {limit}. ⟶ SELECT COUNT(*) FROM {kind} {bound};
Which {kind} have a {number} of {than} than {limit}? ⟶ SELECT * FROM {kind} {bound};
Show {key} and {number} where {number} is {than} than {limit}. ⟶ SELECT {key}, {number} FROM {kind} {bound};
What is the {first} {number}? ⟶ SELECT {top}({number}) FROM {kind};
What is the {first} {number} with {text} {value}? ⟶ SELECT {top}({number}) FROM {kind} {where};
What is the average {number} for each {text}? ⟶ SELECT {text}, AVG({number}) FROM {kind} GROUP BY {text};
How many {kind} are there for each {text}? ⟶ SELECT {text}, COUNT(*) FROM {kind} GROUP BY {text};
What is the sum of {number}? ⟶ SELECT SUM({number}) FROM {kind};
Sort the {kind} by {number}, {first} first. ⟶ SELECT * FROM {kind} ORDER BY {number} {order};
Give the {few} {kind} with the {first} {number}. ⟶ SELECT * FROM {kind} ORDER BY {number} {order} LIMIT {few};
List the different {text} values. ⟶ SELECT DISTINCT {text} FROM {kind};
Show all {kind} with {text} {value} and {number} {than} than {limit}. ⟶ \
SELECT * FROM {kind} {where} AND {number} {sign} {limit};
Delete all {kind} with {text} {value}. ⟶ DELETE FROM {kind} {where};
Set the {number} to {limit} where {text} is {value}. ⟶ UPDATE {kind} SET {number} = {limit} {where};
""")


def query(draw: Draw) -> Task:
    """Schema and question in one prompt; the answer is the query."""

    def schema() -> tuple[str, tuple[str, ...]]:
        while True:
            made = Table(*columns_of(draw, 3, 5))
            if made.numbers and len(made.texts) > 1:
                return made.kind, made.columns

    table = Table(*draw.new("schema", schema))
    question, answer = draw.new("question", lambda: _question(draw, table))
    ask = draw.phrase(ASKS, table.columns)
    return Task("SQL", ask.format(schema=f"{table.kind}({', '.join(table.columns)})", question=question), answer)


def _question(draw: Draw, table: Table) -> tuple[str, str]:
    """(question, query) over the table's columns."""
    number, text = draw.one(table.numbers), draw.one(table.texts[1:])
    value, limit = table.value(text, draw), int(table.value(number, draw))
    words = {"kind": table.kind, "key": table.columns[0], "number": number, "text": text, "value": value}
    words |= {"limit": limit, "few": limit % 9 + 2, "wanted": draw.one([c for c in table.columns if c != text])}
    more = draw.one((True, False))
    words |= {"than": "more" if more else "less", "first": "highest" if more else "lowest"}
    words |= {"top": "MAX" if more else "MIN", "order": "DESC" if more else "ASC"}
    sign = ">" if more else "<"
    words |= {"sign": sign, "bound": f"WHERE {number} {sign} {limit}", "where": f"WHERE {text} = '{value}'"}
    question, _, answer = draw.one(QUESTIONS).format(**words).partition(" ⟶ ")
    return question, answer


def same_query(text: str, expected: str) -> bool:
    """Whether two queries have the same words; spaces, line ends, case of keywords and a last ; do not count."""
    return _words(text) == _words(expected)


def _words(text: str) -> list[str]:
    words = re.findall(r"'[^']*'|\w+|[^\w\s']", text.strip().removesuffix(";"))
    return [word if word.startswith("'") else word.lower() for word in words]
