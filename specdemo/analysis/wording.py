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
    """``2.1× as fast as plain``, ``as fast as plain`` or ``35% slower than plain``."""
    trend = trend_of(speedup)
    if trend == "slower":
        return f"{1 - speedup:.0%} slower than {baseline}"
    return f"{factor(speedup) if trend == 'faster' else ''} as fast as {baseline}".lstrip()


def trend_of(speedup: float) -> str:
    """``faster``, ``slower``, or ``even`` where the two are within 5 % of each other."""
    return "faster" if speedup > 1 + LEVEL else "slower" if speedup < 1 / (1 + LEVEL) else "even"


def claim(trend: str, lane: str, baseline: str) -> str:
    """What stands behind a lane's name and its figure, ``as fast as plain``; an even one has no figure."""
    said = f"slower than {inside(baseline)}" if trend == "slower" else f"as fast as {inside(baseline)}"
    return f"{lane} is {said}" if trend == "even" else said


def inside(title: str) -> str:
    """A lane's title within a sentence: other names than ``Plain`` are written as they are."""
    return title.replace("Plain", "plain", 1) if title.startswith("Plain") else title


def counted(number: int, thing: str, things: str | None = None) -> str:
    """``1 row``, ``2 rows``; ``things`` where it is not an s that is added."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def listed(things: Iterable[object], word: str = "and") -> str:
    """``1``, ``1 and 2``, ``1, 2 and 3``."""
    *some, last = [*map(str, things)] or [""]
    return f"{', '.join(some)} {word} {last}" if some else last


def _digits(value: float) -> int:
    return 2 if value < 0.995 else 1 if value < 9.95 else 0
