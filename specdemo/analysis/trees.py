"""What a draft tree bought, and what it cost: the reason of a lane that drafts several guesses a position."""

from __future__ import annotations

from specdemo.analysis.reasons import PAYS
from specdemo.analysis.wording import pace, trend_of
from specdemo.metrics import Metrics, counts_of
from specdemo.trace import Trace


def explain_tree(baseline: Trace, lane: Trace, name: str) -> str | None:
    """The reason of a lane of trees; None where the measurements do not suffice.

    A round's tokens over its time in plain steps are its speed-up, whatever its shape; that of a chain of the same
    first guesses would have kept less, for less.
    """
    plain, figures = baseline.metrics(), lane.metrics()
    if not plain.tokens_per_second or not figures.tokens_per_second or figures.rounds < 3:
        return None
    steps = counts_of(baseline.rounds)
    step = sum(s.seconds for s in steps) / len(steps)
    spent = [seconds / figures.rounds / step for seconds in (figures.draft_seconds, figures.verify_seconds)]
    cost = sum(spent) + figures.other_seconds / figures.rounds / step
    speedup = figures.tokens_per_second / plain.tokens_per_second
    word = "although" if trend_of(speedup) == "slower" and figures.mean_acceptance_length > 1 else "because"
    return (
        f"{pace(speedup, name)} {word} a round keeps {figures.mean_acceptance_length:.2f} tokens and takes "
        f"{cost:.2f} plain steps: {spent[0]:.2f} for drafting (a tree of {figures.tree_nodes:.0f} tokens), "
        f"{spent[1]:.2f} for checking. "
        f"{bought(figures)}{_advice(lane, figures, speedup, cost)}"
    )


def bought(figures: Metrics) -> str:
    """One sentence on what second guesses added to a lane of trees."""
    if not figures.saved_rounds:
        return f"None of {figures.rounds:,} rounds was saved by a second guess."
    added = figures.mean_acceptance_length - figures.first_guess_length
    were = "was" if figures.saved_rounds == 1 else "were"
    return (
        f"{figures.saved_rounds:,} of {figures.rounds:,} rounds {were} saved by a second guess, which is "
        f"{added:.2f} tokens a round more than the first guesses alone."
    )


def _advice(lane: Trace, figures: Metrics, speedup: float, cost: float) -> str:
    """What to try where the tree does not pay."""
    if speedup >= PAYS:
        return ""
    if figures.first_guess_length >= cost:
        return " Fewer tokens in the tree would cost less; a chain (0) costs the least."
    return f" It pays from {cost:.1f} tokens a round on: try a smaller tree, or a chain (0)."
