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

HEALTHY = (0.40, 0.20, 0.10)
"""Share of rounds that keep the first, second and third drafted token and all before it, greedily and in chains:
thresholds of the nightly tests of vllm-project/speculators (Llama 3.1 8B with the head of EAGLE-3's authors)."""
LEAST_ROUNDS = 8
"""Rounds of a lane from which on it is held against them."""


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
    said += _unhealthy(trace)
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


def _unhealthy(trace: Trace) -> list[str]:
    """A sentence where less was kept than of trained heads, if the lane kept tokens by the same rule as theirs."""
    settings, figures = trace.settings, trace.metrics()
    alike = settings.greedy and settings.lossless and not (settings.drafts_trees or settings.adaptive_gamma)
    if not alike or figures.rounds < LEAST_ROUNDS:
        return []
    kept = [round(share, 2) for share in figures.per_position]  # as it is said
    for place, (share, least) in enumerate(zip(kept, HEALTHY, strict=False), start=1):
        if share < least:
            return [
                f"The head's drafted token {place} was kept in {share:.0%} of the rounds, and trained heads keep "
                f"it in {least:.0%} or more: this text is harder than most or unlike those it learned from, it "
                "was trained too little or for another model, or its config.json names other hidden states of the "
                "target or another norm_before_residual than it was trained with."
            ]
    return []
