"""What an engine tells of one request's speculation, in this project's terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from specdemo.server_record import Counts


@dataclass(frozen=True, slots=True)
class Step:
    """A verify step in which something was drafted: how many tokens, and how many of them were accepted."""

    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Speculation:
    """What the server says.

    Attributes:
        counts: its totals; None if it says nothing, or nothing that can be used.
        steps: every verify step in order; None if only totals are known.
        complaints: what in its report contradicts itself.
    """

    counts: Counts | None = None
    steps: tuple[Step, ...] | None = None
    complaints: tuple[str, ...] = ()


def totals(counts: Counts) -> Speculation:
    """What is known if only totals are; if they contradict each other, that alone."""
    histogram, wrong = counts.histogram, counts.accepted > counts.drafted
    if histogram is not None:
        wrong |= sum(histogram) != counts.steps
        wrong |= sum(i * count for i, count in enumerate(histogram)) != counts.accepted
    return Speculation(complaints=("the server's totals contradict each other",)) if wrong else Speculation(counts)


def summed(steps: Sequence[Step], gamma: int | None) -> Counts:
    """The totals of known steps; ``gamma`` is the most that one may draft, None if that is unknown."""
    most = max((s.drafted for s in steps), default=gamma or 0)
    accepted = Counter(s.accepted for s in steps)
    return Counts(
        steps=len(steps),
        drafted=sum(s.drafted for s in steps),
        accepted=sum(s.accepted for s in steps),
        gamma=gamma,
        histogram=tuple(accepted[i] for i in range(most + 1)),
    )
