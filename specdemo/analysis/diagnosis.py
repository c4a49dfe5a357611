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
    longest = max(r.drafted for r in lane.rounds)
    measured = speeds[1] / speeds[0]
    predicted = expected_speedup(tau, gamma, c, v)
    link = "because" if measured >= 1 else "even though" if rate >= 0.5 else "because only"
    return (
        f"{measured:.1f}× {link} {rate:.0%} of drafted tokens were kept (τ {tau:.1f}); a draft step costs "
        f"{c:.0%} of a target step, and checking {longest + 1} tokens costs {v:.1f} steps. "
        f"These costs predict {predicted:.1f}×."
    )
