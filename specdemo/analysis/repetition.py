"""Does a text loop? Loops are easy to guess, so they flatter every drafter."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

LEAST_DISTINCT = 0.7
"""Of n-grams; figures on outputs below it say little about a drafter."""
LOOP_GRAM = 8
"""Tokens: rows of a table share runs of up to seven, its keys and brackets; a loop repeats whole sentences."""


def distinct_share(ids: Sequence[Hashable], n: int = 4) -> float:
    """Distinct n-grams over all n-grams of ``ids``; 1 for texts shorter than n."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def loops(ids: Sequence[int]) -> bool:
    """Whether too few of the text's runs of eight tokens are distinct."""
    return distinct_share(ids, LOOP_GRAM) < LEAST_DISTINCT
