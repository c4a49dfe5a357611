"""Why a lane was fast or slow, in one or two sentences, from measured numbers only."""

from __future__ import annotations

from specdemo.analysis.theory import expected_speedup
from specdemo.trace import Trace


def explain(baseline: Trace, lane: Trace) -> str | None:
    """A reason for people; None where there is nothing measured to reason from."""
    plain, figures = baseline.metrics(), lane.metrics(baseline)
    rate, tau, c, v = (
        figures.acceptance_rate,
        figures.mean_acceptance_length,
        figures.draft_cost,
        figures.verify_cost,
    )
    speeds = (plain.tokens_per_second, figures.tokens_per_second)
    if None in (rate, tau, c, v, *speeds) or figures.rounds < 3:
        return None
    gamma = figures.proposed / figures.rounds
    longest = len(figures.accepted_histogram) - 1
    measured = speeds[1] / speeds[0]
    # A drafter may propose less than γ, or nothing, in many rounds: those cost less than a full verification.
    predicted = expected_speedup(tau, gamma, c, 1 + (v - 1) * gamma / longest)
    costs = f"a draft step costs {c:.0%} of a target step, and checking {longest + 1} tokens costs {v:.1f} steps"
    if longest + 1 <= longest * c + v:
        return (
            f"{_ratio(measured)} because {costs}: even if all {longest} drafted tokens were kept in every round, "
            f"the round would cost more than it gives. {rate:.0%} were kept (τ {tau:.1f})."
        )
    link = "because" if measured >= 1 else "even though" if rate >= 0.5 else "because only"
    often = "" if gamma > 0.9 * longest else f" {gamma:.1f} tokens were drafted a round."
    return (
        f"{_ratio(measured)} {link} {rate:.0%} of drafted tokens were kept (τ {tau:.1f}); {costs}.{often} "
        f"These costs predict {_ratio(predicted)}."
    )


def _ratio(value: float) -> str:
    """As the page writes it in large type."""
    return f"{value:.{2 if value < 0.995 else 1 if value < 9.95 else 0}f}×"
