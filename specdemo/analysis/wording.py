"""How speed-ups are written for people, in sentences and in large type."""

from __future__ import annotations

from collections.abc import Iterable

LEVEL = 0.05
"""Speeds that differ by no more are said to be the same: repeats of one run differ by as much."""


def factor(value: float) -> str:
    """A speed-up as the page writes it in large type."""
    return f"{value:.{_digits(value)}f}×"


def span(low: float, high: float) -> str:
    """``1.9 to 2.3``, with more digits where the ends would read alike."""
    digits = max(_digits(low), _digits(high))
    if f"{low:.{digits}f}" == f"{high:.{digits}f}":
        digits += 1
    return f"{low:.{digits}f} to {high:.{digits}f}"


def pace(speedup: float, baseline: str) -> str:
    """``2.1× over plain``, ``as fast as plain`` or ``35 % slower than plain``."""
    trend = trend_of(speedup)
    if trend == "faster":
        return f"{factor(speedup)} over {baseline}"
    return f"as fast as {baseline}" if trend == "even" else f"{1 - speedup:.0%} slower than {baseline}"


def trend_of(speedup: float) -> str:
    """``faster``, ``slower``, or ``even`` where the two are within 5 % of each other."""
    return "faster" if speedup > 1 + LEVEL else "slower" if speedup < 1 / (1 + LEVEL) else "even"


def claim(trend: str, lane: str, baseline: str) -> str:
    """What the page says of a lane's speed beside the figure of it: ``faster than Plain: EAGLE-3 head``."""
    if (baseline, lane) == ("Plain", "Speculative"):
        return "As fast as plain" if trend == "even" else f"{trend} with speculation"
    return f"{lane} is as fast as {baseline}" if trend == "even" else f"{trend} than {baseline}: {lane}"


def listed(things: Iterable[object], word: str = "and") -> str:
    """``1``, ``1 and 2``, ``1, 2 and 3``."""
    *some, last = [*map(str, things)] or [""]
    return f"{', '.join(some)} {word} {last}" if some else last


def _digits(value: float) -> int:
    return 2 if value < 0.995 else 1 if value < 9.95 else 0
