"""What the rounds of a lane say of the head that drafted: its vocabulary, and how soon it loses the target."""

from __future__ import annotations

from specdemo.drafters import DRAFTERS
from specdemo.trace import Trace

NARROW = 0.1
"""Share of rejected rounds from which on the left-out vocabulary is worth a sentence."""
FALL = 0.15
"""How much less of the later drafted tokens is kept, where it is worth a sentence."""
LEAST_TESTED = 10
"""Rounds that must have tested a place in the draft before anything is said of it."""


def drafted_by_head(trace: Trace) -> bool:
    """Whether an EAGLE-3 head drafted in this lane."""
    settings = trace.settings
    return settings.strategy == "speculative" and DRAFTERS[settings.drafter].needs == "head"


def outside_vocabulary(trace: Trace) -> float | None:
    """Of the rounds that ended with a rejection, the share whose own token of the target the head cannot draft.

    The head gives such a token no probability at all. None where nothing was rejected, or where top-k or top-p
    may have cut tokens off as well.
    """
    settings = trace.settings
    if not settings.greedy and (settings.top_k or settings.top_p < 1):
        return None
    corrected = [t.q for t in trace.output if t.kind == "corrected" and t.q is not None]
    return sum(q == 0.0 for q in corrected) / len(corrected) if corrected else None


def remarks(trace: Trace) -> list[str]:
    """Sentences on the head's own causes; none for lanes without a head."""
    if not drafted_by_head(trace):
        return []
    said = []
    outside = outside_vocabulary(trace)
    if outside is not None and outside >= NARROW:
        said.append(
            f"In {outside:.0%} of the rejected rounds the target's token was outside the draft vocabulary."
        )
    figures = trace.metrics()
    # At place j those rounds were tested that kept all before it.
    kept = [
        share
        for j, share in enumerate(figures.conditional_per_position)
        if share is not None and sum(figures.accepted_histogram[j:]) >= LEAST_TESTED
    ]
    if len(kept) > 1 and kept[0] - min(kept[1:]) >= FALL:
        place = kept.index(min(kept[1:]), 1)
        said.append(
            f"Its first drafted token was kept in {kept[0]:.0%} of the rounds, number {place + 1}, where tested, "
            f"in {kept[place]:.0%}: it drafts from its own states there, no longer from the target's."
        )
    return said
