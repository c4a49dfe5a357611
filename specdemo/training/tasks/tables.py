"""Small tables of known kinds with columns, rows and values drawn anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdemo.training.tasks.task import Draw
from specdemo.training.tasks.words import (
    ANIMALS,
    CITIES,
    COLOURS,
    DAYS,
    FOODS,
    JOBS,
    MONTHS,
    SPORTS,
    SUBJECTS,
    THINGS,
    person,
)

Value = str | int | bool
Record = dict[str, Value]
Values = dict[str, Callable[[Draw], Value]]

# Each kind's columns; the first names the row and is always there. Columns of text come first.
KINDS: dict[str, Values] = {
    "people": {
        "name": lambda d: person(d.rng),
        "city": lambda d: d.one(CITIES),
        "job": lambda d: d.one(JOBS),
        "sport": lambda d: d.one(SPORTS),
        "age": lambda d: d.number(18, 79),
    },
    "products": {
        "item": lambda d: d.one(THINGS)[0],
        "colour": lambda d: d.one(COLOURS),
        "price": lambda d: d.number(1, 99),
        "stock": lambda d: d.number(0, 60),
    },
    "pets": {
        "pet": lambda d: person(d.rng),
        "animal": lambda d: d.one(ANIMALS),
        "colour": lambda d: d.one(COLOURS),
        "owner": lambda d: person(d.rng),
        "age": lambda d: d.number(1, 15),
    },
    "trips": {
        "city": lambda d: d.one(CITIES),
        "day": lambda d: d.one(DAYS),
        "month": lambda d: d.one(MONTHS),
        "nights": lambda d: d.number(1, 14),
        "cost": lambda d: d.number(20, 900),
    },
    "orders": {
        "customer": lambda d: person(d.rng),
        "dish": lambda d: d.one(FOODS),
        "day": lambda d: d.one(DAYS),
        "seat": lambda d: d.number(1, 30),
        "paid": lambda d: d.one((True, False)),
    },
    "students": {
        "student": lambda d: person(d.rng),
        "subject": lambda d: d.one(SUBJECTS),
        "month": lambda d: d.one(MONTHS),
        "grade": lambda d: d.number(1, 10),
        "passed": lambda d: d.one((True, False)),
    },
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind; the first of ``columns`` names the row and differs from row to row."""

    kind: str
    columns: tuple[str, ...]
    rows: tuple[Record, ...]

    def value(self, column: str, draw: Draw) -> Value:
        return KINDS[self.kind][column](draw)

    def record(self, draw: Draw) -> Record:
        """One more row, of a name that no row has."""
        key = self.columns[0]
        taken = {row[key] for row in self.rows}
        while True:
            made = _record(self.kind, self.columns, draw)
            if made[key] not in taken:
                return made


def columns_of(draw: Draw, low: int, high: int) -> tuple[str, tuple[str, ...]]:
    """(kind, columns): the naming column, then others in any order."""
    kind = draw.one(tuple(KINDS))
    key, *others = KINDS[kind]
    return kind, (key, *draw.some(others, min(len(others), draw.number(low, high) - 1)))


def table(draw: Draw, rows: tuple[int, int] = (2, 5), columns: tuple[int, int] = (2, 4)) -> Table:
    """A table of so many rows and columns, both ends included."""
    kind, chosen = draw.new("columns", lambda: columns_of(draw, *columns))
    made = Table(kind, chosen, ())
    for _ in range(draw.number(*rows)):
        made = Table(kind, chosen, (*made.rows, made.record(draw)))
    return made


def _record(kind: str, columns: tuple[str, ...], draw: Draw) -> Record:
    return draw.new("record", lambda: {column: KINDS[kind][column](draw) for column in columns})
