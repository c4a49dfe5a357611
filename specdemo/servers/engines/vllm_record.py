"""vLLM's record of one request's speculation, ``metrics.speculative_decoding`` of the stream's last event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel, NonNegativeInt, ValidationError

from specdemo.server_record import Counts
from specdemo.servers.speculation import Speculation, Step, summed, totals

UNREADABLE = Speculation(complaints=("the server's record of its speculation cannot be read",))


class _Record(BaseModel, strict=True):
    num_spec_steps: NonNegativeInt | None = None
    num_draft_tokens: NonNegativeInt | None = None
    num_accepted_draft_tokens: NonNegativeInt | None = None
    num_spec_tokens: NonNegativeInt | None = None
    acceptance_histogram: list[NonNegativeInt] | None = None
    per_step_drafted: list[NonNegativeInt] | None = None
    per_step_accepted: list[NonNegativeInt] | None = None


def read_record(record: Any) -> Speculation:
    """Read a record; what does not add up is reported and not used."""
    if record is None:
        return Speculation()
    try:
        read = _Record.model_validate(record)
    except ValidationError:
        return UNREADABLE
    counts, drafted, accepted = _counts(read), read.per_step_drafted, read.per_step_accepted
    of_totals = totals(counts) if counts else UNREADABLE
    if drafted is None and accepted is None:
        return replace(of_totals, steps=()) if of_totals.counts and not of_totals.counts.steps else of_totals
    drafted, accepted = drafted or [], accepted or []
    if len(drafted) != len(accepted) or any(a > d for d, a in zip(drafted, accepted, strict=True)):
        complaint = "the server's arrays of steps do not fit each other"
        return replace(of_totals, complaints=(*of_totals.complaints, complaint))
    steps = tuple(map(Step, drafted, accepted))
    found = summed(steps, read.num_spec_tokens)
    if counts is not None and _sums(counts) != _sums(found):
        complaint = f"the server's totals (steps, drafted, accepted: {_sums(counts)}) are not those of its steps "
        return Speculation(complaints=(complaint + str(_sums(found)),))
    return Speculation(found, steps)


def _counts(read: _Record) -> Counts | None:
    steps, drafted, accepted = read.num_spec_steps, read.num_draft_tokens, read.num_accepted_draft_tokens
    if steps is None or drafted is None or accepted is None:
        return None
    histogram = read.acceptance_histogram
    return Counts(steps, drafted, accepted, read.num_spec_tokens, None if histogram is None else tuple(histogram))


def _sums(counts: Counts) -> tuple[int | None, int, int]:
    return counts.steps, counts.drafted, counts.accepted
