"""vLLM's record of one request's speculation (``metrics.speculative_decoding`` of its usage chunk), checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specdemo.server_record import Counts


@dataclass(frozen=True, slots=True)
class Step:
    """A verify step in which something was drafted: how many tokens, and how many of them passed."""

    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Speculation:
    """What the server's record says.

    Attributes:
        counts: its totals; None if there is no record, or none that can be read.
        steps: every verify step in order; None at the level ``summary``.
        complaints: what in the record contradicts itself.
    """

    counts: Counts | None = None
    steps: tuple[Step, ...] | None = None
    complaints: tuple[str, ...] = ()


def has_steps(record: Any) -> bool:
    """Whether a record tells of single steps."""
    return isinstance(record, dict) and "per_step_accepted" in record


def read_speculation(record: Any) -> Speculation:
    """Read a record; what does not add up is said and not used."""
    if record is None:
        return Speculation()
    if not isinstance(record, dict):
        return Speculation(complaints=("the server's record of its speculation cannot be read",))
    counts = _counts(record)
    steps = _steps(record)
    if counts is None and steps is None:
        return Speculation(complaints=("the server's record of its speculation cannot be read",))
    if steps is None:
        missing = "per_step_accepted" not in record and "per_step_drafted" not in record
        told = _consistent(counts)
        empty = missing and counts is not None and counts.steps == 0
        return Speculation(
            counts if not told else None,
            () if empty else None,
            told if missing else (*told, "the server's arrays of steps do not fit each other"),
        )
    summed = Counts(
        steps=len(steps),
        drafted=sum(s.drafted for s in steps),
        accepted=sum(s.accepted for s in steps),
        gamma=counts.gamma if counts else None,
        histogram=_histogram(steps, counts.gamma if counts else None),
    )
    if counts is not None and _totals(counts) != _totals(summed):
        return Speculation(
            complaints=(
                f"the server's totals (steps, drafted, accepted: {_totals(counts)}) are not those of its steps "
                f"{_totals(summed)}",
            )
        )
    return Speculation(summed, steps)


def _totals(counts: Counts) -> tuple[int, int, int]:
    return counts.steps, counts.drafted, counts.accepted


def _counts(record: dict[str, Any]) -> Counts | None:
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    numbers = [_whole(record.get(name)) for name in names]
    if None in numbers:
        return None
    histogram = record.get("acceptance_histogram")
    return Counts(*numbers, gamma=_whole(record.get("num_spec_tokens")), histogram=_wholes(histogram))


def _consistent(counts: Counts | None) -> tuple[str, ...]:
    """What in the totals contradicts itself."""
    if counts is None:
        return ("the server's totals cannot be read",)
    histogram = counts.histogram
    wrong = counts.accepted > counts.drafted
    if histogram is not None:
        wrong |= sum(histogram) != counts.steps
        wrong |= sum(i * count for i, count in enumerate(histogram)) != counts.accepted
    return ("the server's totals contradict each other",) if wrong else ()


def _steps(record: dict[str, Any]) -> tuple[Step, ...] | None:
    drafted, accepted = _wholes(record.get("per_step_drafted")), _wholes(record.get("per_step_accepted"))
    if drafted is None or accepted is None or len(drafted) != len(accepted):
        return None
    steps = tuple(Step(d, a) for d, a in zip(drafted, accepted, strict=True))
    return steps if all(s.accepted <= s.drafted for s in steps) else None


def _histogram(steps: tuple[Step, ...], gamma: int | None) -> tuple[int, ...]:
    most = max((s.drafted for s in steps), default=gamma or 0)
    kept = [s.accepted for s in steps]
    return tuple(kept.count(i) for i in range(most + 1))


def _wholes(values: Any) -> tuple[int, ...] | None:
    if not isinstance(values, list) or any(_whole(v) is None for v in values):
        return None
    return tuple(values)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
