"""What a measured acceptance would give on other hardware: a prediction, never a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from specdemo.drafters import DRAFTERS
from specdemo.errors import SettingsError, quoted
from specdemo.metrics import RoundCounts, totals
from specdemo.settings import MAX_GAMMA
from specdemo.theory import predicted_speedup

LEAST_VERIFY, MOST_COST = 0.01, 1000.0
"""Bounds of costs that make any sense, in target steps."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A drafter's best γ and its speed-up, predicted."""

    method: str
    gamma: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What is known of a drafter apart from costs.

    Attributes:
        family: the drafter's name.
        kept: the share of rounds that kept drafted token j where it was reached, j from 0.
        drafting: the share of rounds in which it had something to draft.
        draft_cost: c as measured here, for drafters that run no model of their own.
    """

    family: str
    kept: tuple[float, ...]
    drafting: float
    draft_cost: float


def acceptance_of(family: str, rounds: Sequence[RoundCounts], draft_cost: float | None) -> Acceptance | None:
    """From all rounds of a drafter, whatever their γ; None where none drafted."""
    found = totals(rounds)
    if not found.proposed:
        return None
    kept = tuple(share or 0.0 for share in found.conditional)
    drafting = sum(1 for r in rounds if r.drafted) / len(rounds)
    return Acceptance(family, kept, drafting, draft_cost or 0.0)


def predict(known: Sequence[Acceptance], c: float, v: float) -> list[Prediction]:
    """The best of each drafter where a draft step costs c and a verify v target steps, fastest first.

    By :func:`specdemo.theory.predicted_speedup` from acceptance by position, without time outside the models.
    ``c`` is of drafters with a model or head of their own; others keep the cost that was measured. v is the same
    for every γ: hardware with room for more rows reads the weights once for all of them.

    Raises:
        SettingsError: c or v is no cost.
    """
    for field, cost, least in (("draft_cost", c, 0.0), ("verify_cost", v, LEAST_VERIFY)):
        if not isinstance(cost, Real) or isinstance(cost, bool) or not least <= cost <= MOST_COST:
            wanted = f"must be a number of target steps, from {least:g} to {MOST_COST:g}"
            raise SettingsError(field, f"{wanted}, not {quoted(cost)}.")
    found = []
    for each in known:
        cost = c if DRAFTERS[each.family].needs is not None else each.draft_cost

        def speedup(gamma: int, each: Acceptance = each, cost: float = cost) -> float:
            lengths = {gamma: each.drafting, 0: 1 - each.drafting}
            return predicted_speedup(each.kept[:gamma], lengths, cost, v)

        gamma = max(range(1, min(len(each.kept), MAX_GAMMA) + 1), key=speedup)
        found.append(Prediction(DRAFTERS[each.family].label, gamma, speedup(gamma)))
    return sorted(found, key=lambda p: -p.speedup)
