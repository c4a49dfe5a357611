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
    """One pair of the catalogue.

    Attributes:
        id: the name given to ``load_pair``.
        label: its name on the page.
        target, draft, head: a repository of the hub, or ``assets:`` and a folder below ``assets``; a pair
            without a draft model or a head has only the drafters that need none.
        target_revision, draft_revision, head_revision: a commit; None is the main branch.
        dtype: of the weights; None leaves the choice to ``load_pair``.
        target_quantization, draft_quantization: the default quantisation of the weights.
        device: ``auto`` spreads models that fit no single device.
        chat: whether its models were trained to answer in a chat.
        licence: short names, as on the hub's cards.
        gated: whether the hub asks for consent and a token.
        memory_gb: rough size of the weights as loaded by default, in 10⁹ bytes; the preflight computes it.
        note: one line on what it is good for.
    """

    id: str
    label: str
    target: str
    draft: str | None = None
    head: str | None = None
    target_revision: str | None = None
    draft_revision: str | None = None
    head_revision: str | None = None
    dtype: str | None = None
    target_quantization: str | None = None
    draft_quantization: str | None = None
    device: str | None = None
    chat: bool = False
    licence: str = ""
    gated: bool = False
    memory_gb: float = 0.0
    note: str = ""

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
