"""Does a text loop? Loops are easy to guess, so they flatter every drafter."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_DISTINCT = 0.7
"""Figures on outputs below this share of distinct 4-grams say little about a drafter."""


def distinct_share(ids: Sequence[int], n: int = 4) -> float:
    """Distinct n-grams over all n-grams of ``ids``; 1 for texts shorter than n."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0
