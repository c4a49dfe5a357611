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


def compare(baseline: Trace, lane: Trace, name: str = "plain") -> Comparison:
    """Compare ``lane``'s output ids with those of ``baseline``, the ``name``; where there are none, the texts."""
    if not (baseline.settings.greedy and lane.settings.greedy):
        lossy = [t.settings.acceptance for t in (baseline, lane) if not t.settings.lossless]
        said = ", each lane drew its own text from the same distribution"
        if lossy:
            said = f"; the acceptance rule {lossy[0]} is lossy, so the distribution differs"
        return Comparison("sampled", 0, f"sampled{said}")
    ids = bool(baseline.token_ids and lane.token_ids)
    left, right = ((t.token_ids if ids else t.text) for t in (baseline, lane))
    shorter = min(len(left), len(right))
    agreed = next((i for i in range(shorter) if left[i] != right[i]), shorter)
    over = f"{agreed} {'token' if ids else 'character'}{'' if agreed == 1 else 's'}"
    if agreed == shorter and not (baseline.complete and lane.complete):
        return Comparison("partial", agreed, f"identical to {name} so far, over {over}")
    if not ids:
        same = left == right
        text = f"identical text, all {over}" if same else f"texts differ from character {agreed + 1} on"
        return Comparison("identical" if same else "partial", agreed, f"{text}; token ids are not known")
    if left == right:
        return Comparison("identical", agreed, f"identical to {name}, checked at all {over}")
    # Engines differ in how many of the last places they use.
    ended = baseline if len(left) == shorter else lane
    if agreed == shorter and ended.rounds[-1].stop == "context":
        return Comparison("partial", agreed, f"identical to {name} over {over}, where a lane's context was full")
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
