"""A server's counters before and after a request: their difference is the request's if nothing else ran."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from specdemo.server_record import Counts


@dataclass(frozen=True, slots=True)
class CounterNames:
    """What an engine calls its counters."""

    steps: str  # of its speculation
    drafted: str
    accepted: str
    accepted_by_position: str  # the accepted tokens with a label ``position``
    finished: str  # requests that have ended
    generated: str  # tokens of all outputs
    busy: tuple[str, ...]  # requests that run or wait now


class _Page:
    """A page of metrics: sums over all engines of a deployment by name, and accepted tokens by draft position.

    Raises:
        ValueError: it is none.
    """

    def __init__(self, text: str, names: CounterNames) -> None:
        self.sums: defaultdict[str, float] = defaultdict(float)
        self.positions: defaultdict[int, float] = defaultdict(float)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.sums[sample.name] += sample.value
                if sample.name == names.accepted_by_position:
                    self.positions[int(sample.labels.get("position", -1))] += sample.value
        self.busy = any(self.sums[name] for name in names.busy)


def settled(names: CounterNames, before: str, after: str) -> bool:
    """Whether a later page would tell no more: a request has ended and none runs, or the pages cannot be read."""
    try:
        first, last = _Page(before, names), _Page(after, names)
    except ValueError:
        return True
    return last.sums[names.finished] > first.sums[names.finished] and not last.busy


def difference(names: CounterNames, before: str, after: str, completion_tokens: int | None) -> Counts | str | None:
    """The request's counts from two pages of metrics, or why they are not the request's; None without any."""
    try:
        first, last = _Page(before, names), _Page(after, names)
        totals = (names.steps, names.drafted, names.accepted)
        if any(name not in page.sums for page in (first, last) for name in totals):
            return None
        steps, drafted, accepted = (int(last.sums[name] - first.sums[name]) for name in totals)
        positions = tuple(int(last.positions[i] - first.positions[i]) for i in sorted(last.positions))
    except (ValueError, OverflowError):  # the second: an infinite number
        return "the server's page of metrics cannot be read."
    finished, generated = (last.sums[name] - first.sums[name] for name in (names.finished, names.generated))
    unusable = (
        (first.busy, "it was busy with other requests when this one began."),
        (last.busy, "it is busy with other requests."),
        (finished != 1, f"{finished:g} requests ended while this one ran, so they are not of this one alone."),
        (
            completion_tokens not in (None, generated),
            f"they count {generated:g} tokens, but the answer has {completion_tokens}.",
        ),
        (
            not 0 <= accepted <= drafted or steps < 0 or (positions and sum(positions) != accepted),
            "they do not add up.",
        ),
    )
    if reason := next((text for true, text in unusable if true), None):
        return f"the server's counters are not used: {reason}"
    return Counts(steps, drafted, accepted, len(positions) or None, per_position=positions or None)
