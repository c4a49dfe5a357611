"""The pairs that can be chosen by name: ``assets/pairs.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdemo.errors import PairError
from specdemo.toml import read_toml

ASSETS = Path(__file__).resolve().parents[2] / "assets"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One pair of the catalogue.

    Attributes:
        id: the name given to ``load_pair``.
        label: how the page calls it.
        target, draft: folders below ``assets``; no draft leaves the drafters that need none.
        note: one line on what it is good for.
    """

    id: str
    label: str
    target: str
    draft: str | None = None
    note: str = ""


def catalog() -> dict[str, CatalogEntry]:
    """All entries by id, in the order of the file."""
    return {e["id"]: CatalogEntry(**e) for e in read_toml(ASSETS / "pairs.toml")["pair"]}


def entry(name: str) -> CatalogEntry:
    """The entry of that id.

    Raises:
        PairError: no such pair; lists those there are.
    """
    entries = catalog()
    if name not in entries:
        raise PairError(f"pair: {name!r} is not known; choose one of {', '.join(entries)}.")
    return entries[name]
