"""Traces made by hand, round by round, for tests of figures, reasons and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdemo import Round, Settings, Token, Trace

PLAIN = Settings(strategy="autoregressive")


def round_of(
    index: int,
    kinds: Sequence[str],
    seconds: float,
    phases: tuple[float, float, float] = (0.0, 0.1, 0.0),
    *,
    id: int = 20,
    margin: float = 1.0,
    **fields: Any,
) -> Round:
    """A round with tokens of these kinds; the accepted ones and the first rejected one were tested."""
    accepted, rejected = kinds.count("accepted"), kinds.count("rejected")
    tested = min(accepted + 1, accepted + rejected)
    places = [*range(1, accepted + rejected + 1), accepted + 1]
    tokens = [
        Token(
            id=id,
            text="x",
            kind=kind,
            round=index,
            position=place,
            p=0.5,
            q=0.5,
            acceptance=0.5 if order < tested else None,
            seconds=seconds,
            margin=None if kind == "rejected" else margin,
        )
        for order, (kind, place) in enumerate(zip(kinds, places, strict=False))
    ]
    return Round(index, tuple(tokens), accepted + rejected, accepted, seconds, *phases, **fields)


def lane_of(
    settings: Settings,
    rounds: Sequence[tuple[Sequence[str], tuple[float, float, float]]],
    prefill: float = 0.1,
    **fields: Any,
) -> Trace:
    """A lane of rounds that are given as their tokens' kinds and their seconds by phase, after a prefill."""
    clock = prefill
    made = [round_of(0, ["target"], clock, (0.0, prefill, 0.0))]
    for index, (kinds, phases) in enumerate(rounds, start=1):
        clock += sum(phases)
        made.append(round_of(index, kinds, clock, phases))
    return Trace(settings, (1, 2), tuple(made), **fields)


def plain_lane(steps: Sequence[float], prefill: float = 0.1) -> Trace:
    """An autoregressive lane whose target steps took these seconds."""
    return lane_of(PLAIN, [(["target"], (0.0, step, 0.0)) for step in steps], prefill)
