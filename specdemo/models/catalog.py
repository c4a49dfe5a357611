"""The pairs that can be chosen by name: ``assets/pairs.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specdemo.models.source import ASSETS


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One pair of the catalogue. None leaves a choice to ``load_pair``."""

    id: str  # the name given to ``load_pair``
    label: str  # its name on the page
    target: str  # a repository of the hub, or ``assets:`` and a folder below ``assets``; so are draft and head
    draft: str | None = None
    head: str | None = None
    target_revision: str | None = None  # a commit; None is the main branch
    draft_revision: str | None = None
    head_revision: str | None = None
    dtype: str | None = None
    target_quantization: str | None = None  # by default
    draft_quantization: str | None = None
    device: str | None = None  # ``auto`` spreads models that fit no single device
    chat: bool = False  # whether its models were trained to answer in a chat
    licence: str = ""  # short names, as on the hub's cards
    gated: bool = False  # whether the hub asks for consent and a token
    memory_gb: float = 0.0  # rough size of the weights as loaded by default, in 10⁹ bytes
    note: str = ""  # one line on what it is good for

    @property
    def parts(self) -> frozenset[str]:
        """What it has besides the target: of ``specdemo.drafters.PARTS``."""
        return frozenset(part for part in ("draft", "head") if getattr(self, part) is not None)


@cache
def catalog() -> dict[str, CatalogEntry]:
    """All entries by id, in the order of the file."""
    return {e["id"]: CatalogEntry(**e) for e in read_toml(ASSETS / "pairs.toml")["pair"]}


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of one TOML file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))
