"""Small tables of known kinds with columns, rows and values drawn anew."""

from __future__ import annotations

from dataclasses import dataclass

from specdemo.training.tasks.slots import slot
from specdemo.training.tasks.task import Draw, lines

Value = str | int | bool
Record = dict[str, Value]

# On each line a kind and its columns, with the slot or the numbers that fill a column where its name does not say
# it. The first column names the row and is always there; columns of text come first.
_KINDS = lines("""
people name city job sport age:18-79
products item:thing colour price:1-99 stock:0-60
pets pet:name animal colour owner:name age:1-15
trips city day month nights:1-14 cost:20-900
orders customer:name dish:food day seat:1-30 paid:bool
students student:name subject month grade:1-10 passed:bool
""")
KINDS: dict[str, dict[str, str]] = {
    kind: {name: filling or name for name, _, filling in (column.partition(":") for column in columns)}
    for kind, *columns in map(str.split, _KINDS)
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind; the first of ``columns`` names the row and differs from row to row."""

    kind: str
    columns: tuple[str, ...]
    rows: tuple[Record, ...] = ()

    @property
    def numbers(self) -> list[str]:
        """The columns of numbers."""
        return [column for column in self.columns if "-" in KINDS[self.kind][column]]

    @property
    def texts(self) -> list[str]:
        """The columns of text."""
        return [c for c in self.columns if c not in self.numbers and KINDS[self.kind][c] != "bool"]

    def value(self, column: str, draw: Draw) -> Value:
        filling = KINDS[self.kind][column]
        if column in self.numbers:
            low, high = map(int, filling.split("-"))
            return draw.number(low, high)
        return draw.one((True, False)) if filling == "bool" else slot(draw, filling)

    def record(self, draw: Draw) -> Record:
        """One more row, of a name that no row has."""
        taken = {row[self.columns[0]] for row in self.rows}
        while True:
            made = draw.new("record", lambda: {column: self.value(column, draw) for column in self.columns})
            if made[self.columns[0]] not in taken:
                return made


def columns_of(draw: Draw, low: int, high: int) -> tuple[str, tuple[str, ...]]:
    """(kind, columns): the naming column, then others in any order."""
    kind = draw.one(tuple(KINDS))
    key, *others = KINDS[kind]
    return kind, (key, *draw.some(others, min(len(others), draw.number(low, high) - 1)))


def table(draw: Draw, rows: tuple[int, int] = (2, 5), columns: tuple[int, int] = (2, 4)) -> Table:
    """A table of so many rows and columns, both ends included."""
    made = Table(*draw.new("columns", lambda: columns_of(draw, *columns)))
    for _ in range(draw.number(*rows)):
        made = Table(made.kind, made.columns, (*made.rows, made.record(draw)))
    return made
