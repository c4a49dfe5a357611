"""The example prompts of the page and of the bench: ``assets/prompts.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from specdemo.models.source import ASSETS
from specdemo.toml import read_toml


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt, written by us, and the domain whose text it starts."""

    domain: str
    title: str
    prompt: str


def examples() -> list[Example]:
    """All example prompts, grouped by domain in the order of the file."""
    return [Example(**e) for e in read_toml(ASSETS / "prompts.toml")["prompt"]]


def by_domain() -> dict[str, list[Example]]:
    """The example prompts of each domain."""
    grouped: dict[str, list[Example]] = {}
    for example in examples():
        grouped.setdefault(example.domain, []).append(example)
    return grouped
