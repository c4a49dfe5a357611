"""vLLM's record of one request's speculation, ``metrics.speculative_decoding`` of the stream's last event."""

from __future__ import annotations

from typing import Any

from specdemo.server_record import Counts
from specdemo.servers.speculation import Speculation, Step, summed

TOTALS = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
UNREADABLE = "the server's record of its speculation cannot be read"


def has_steps(record: Any) -> bool:
    """Whether a record lists its single steps."""
    return isinstance(record, dict) and "per_step_accepted" in record


def read_record(record: Any) -> Speculation:
    """Read a record; what does not add up is reported and not used."""
    if record is None:
        return Speculation()
    counts, steps = (_counts(record), _steps(record)) if isinstance(record, dict) else (None, None)
    if counts is None and steps is None:
        return Speculation(complaints=(UNREADABLE,))
    if steps is None:
        return _from_totals(record, counts)
    found = summed(steps, counts.gamma if counts else None)
    if counts is not None and _totals(counts) != _totals(found):
        return Speculation(
            complaints=(
                f"the server's totals (steps, drafted, accepted: {_totals(counts)}) are not those of its steps "
                f"{_totals(found)}",
            )
        )
    return Speculation(found, steps)


def _from_totals(record: dict[str, Any], counts: Counts | None) -> Speculation:
    """A record whose steps are missing or cannot be read."""
    complaints = _contradictions(counts)
    usable = None if complaints else counts
    if has_steps(record) or "per_step_drafted" in record:
        return Speculation(usable, None, (*complaints, "the server's arrays of steps do not fit each other"))
    return Speculation(usable, () if counts.steps == 0 else None, complaints)


def _counts(record: dict[str, Any]) -> Counts | None:
    totals = [_whole_number(record.get(name)) for name in TOTALS]
    if None in totals:
        return None
    histogram = _whole_numbers(record.get("acceptance_histogram"))
    return Counts(*totals, gamma=_whole_number(record.get("num_spec_tokens")), histogram=histogram)


def _totals(counts: Counts) -> tuple[int, int, int]:
    return counts.steps, counts.drafted, counts.accepted


def _contradictions(counts: Counts | None) -> tuple[str, ...]:
    if counts is None:
        return ("the server's totals cannot be read",)
    wrong = counts.accepted > counts.drafted
    if counts.histogram is not None:
        wrong |= sum(counts.histogram) != counts.steps
        wrong |= sum(i * count for i, count in enumerate(counts.histogram)) != counts.accepted
    return ("the server's totals contradict each other",) if wrong else ()


def _steps(record: dict[str, Any]) -> tuple[Step, ...] | None:
    drafted, accepted = (_whole_numbers(record.get(f"per_step_{name}")) for name in ("drafted", "accepted"))
    if drafted is None or accepted is None or len(drafted) != len(accepted):
        return None
    steps = tuple(map(Step, drafted, accepted))
    return steps if all(s.accepted <= s.drafted for s in steps) else None


def _whole_numbers(values: Any) -> tuple[int, ...] | None:
    if not isinstance(values, list) or any(_whole_number(v) is None for v in values):
        return None
    return tuple(values)


def _whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
