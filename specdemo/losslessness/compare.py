"""Did speculation change the output? Judged from two traces, position by position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specdemo.trace import Trace

Outcome = Literal["identical", "tie", "diverged", "sampled", "partial"]
"""Of a position of a greedy lane one of the first three."""

TIE_MARGIN = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.4}
"""Logits closer than this may change places by the rounding of one forward against another.

A few units in the last place of a logit of size 30 to 60, which is how large a model's logits get.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The judgement on a lane against the baseline.

    Attributes:
        outcome: ``identical``; ``tie``: a different token first chosen where both were equally good within
            rounding; ``diverged``; ``sampled``: random draws, which no single run can compare; ``partial``:
            the same as far as both got, and at least one was stopped.
        position: tokens that agree before the first difference, or all that were compared.
        text: one line for people.
    """

    outcome: Outcome
    position: int
    text: str


def compare(baseline: Trace, lane: Trace) -> Comparison:
    """Compare ``lane``'s output ids with those of ``baseline``."""
    if not (baseline.settings.greedy and lane.settings.greedy):
        return _sampled(baseline, lane)
    if not (baseline.token_ids and lane.token_ids):
        return _texts(baseline, lane)
    left, right = baseline.token_ids, lane.token_ids
    shorter = min(len(left), len(right))
    agreed = next((i for i in range(shorter) if left[i] != right[i]), shorter)
    whole = baseline.complete and lane.complete
    if agreed == shorter and not whole:
        return Comparison("partial", agreed, f"identical so far, over {_tokens(agreed)}")
    if agreed == shorter and len(left) == len(right):
        return Comparison("identical", agreed, f"identical output, checked at all {_tokens(agreed)}")
    # Engines differ in how many of the last places they use.
    ended = baseline if len(left) == shorter else lane
    if agreed == shorter and ended.rounds[-1].stop == "context":
        return Comparison("partial", agreed, f"identical over {_tokens(agreed)}, where a lane's context was full")
    place = f"at token {agreed + 1}"
    if agreed < shorter:
        margins = [t.margin for t in (baseline.output[agreed], lane.output[agreed])]
        if baseline.server and lane.server:
            return Comparison("partial", agreed, f"differs {place}; a server gives no margins, so it may be a tie")
        known = [m for m, t in zip(margins, (baseline, lane), strict=True) if t.server is None]
        margin = min(abs(m or 0.0) for m in known)
        # A server's number type is not known.
        rounding = max(TIE_MARGIN.values()) if len(known) < 2 else tie_margin(lane.dtype)
        if lane.settings.lossless and margin <= rounding:
            return Comparison("tie", agreed, f"numerical tie {place}: two tokens {margin:.1g} logits apart")
    if lane.settings.lossless and baseline.settings.lossless:
        apart = f", where the best two tokens are {margin:.2g} logits apart" if agreed < shorter else ""
        return Comparison("diverged", agreed, f"diverged {place}{apart}")
    rule = (baseline if lane.settings.lossless else lane).settings.acceptance
    return Comparison("diverged", agreed, f"diverged {place}: the acceptance rule {rule} is lossy")


def tie_margin(dtype: str) -> float:
    """Logits that count as rounding for a number type."""
    return TIE_MARGIN.get(dtype, TIE_MARGIN["float32"])


def _texts(baseline: Trace, lane: Trace) -> Comparison:
    """Where a server gave no token ids: by the characters."""
    left, right = baseline.text, lane.text
    shorter = min(len(left), len(right))
    agreed = next((i for i in range(shorter) if left[i] != right[i]), shorter)
    if agreed == shorter and not (baseline.complete and lane.complete):
        return Comparison("partial", agreed, f"identical so far, over {agreed} characters")
    if left == right:
        return Comparison("identical", agreed, f"identical text, all {agreed} characters; token ids are not known")
    return Comparison("partial", agreed, f"texts differ from character {agreed + 1} on; token ids are not known")


def _sampled(baseline: Trace, lane: Trace) -> Comparison:
    lossy = [t.settings.acceptance for t in (baseline, lane) if not t.settings.lossless]
    text = (
        f"sampled; the acceptance rule {lossy[0]} is lossy, so the distribution differs"
        if lossy
        else "sampled, each lane drew its own text from the same distribution"
    )
    return Comparison("sampled", 0, text)


def _tokens(count: int) -> str:
    return f"{count} token" if count == 1 else f"{count} tokens"
