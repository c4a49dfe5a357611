"""Why a lane was fast or slow, in one or two sentences, from measured numbers only."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.analysis.theory import expected_speedup
from specdemo.trace import Trace


def explain_race(traces: Sequence[Trace]) -> str | None:
    """Why the fastest lane was fast or slow against the first, and what quantised weights cost or gave.

    A lane is judged against a plain one of the same weights, since others are another model.
    """
    fastest = max(traces[1:], key=lambda t: t.metrics().tokens_per_second or 0.0)
    alike = [t for t in traces if t.quantization == fastest.quantization]
    baseline = traces[0] if traces[0] in alike else next((t for t in alike if _plain(t)), None)
    if baseline is None:
        return (
            f"No plain lane has the {fastest.quantization or 'unquantised'} weights of the fastest lane, so this "
            "speed-up is of quantisation and speculation together; add one to tell them apart."
        )
    reasons = [None if baseline is fastest else explain(baseline, fastest), explain_quantization(traces)]
    if baseline is not traces[0] and reasons[0]:
        reasons[0] = f"Against plain decoding with the same weights {reasons[0]}"
    return " ".join(reason for reason in reasons if reason) or None


def explain_quantization(traces: Sequence[Trace]) -> str | None:
    """How quantised weights change a target step, where the race has both; None where it has not."""
    plain = [t for t in traces if _plain(t) and t.metrics().tokens_per_second]
    whole = next((t for t in plain if t.quantization is None), None)
    quantised = next((t for t in plain if t.quantization is not None), None)
    if whole is None or quantised is None:
        return None
    speeds = [t.metrics().tokens_per_second for t in (whole, quantised)]
    ratio = speeds[1] / speeds[0]
    figures = f"({speeds[1]:.1f} against {speeds[0]:.1f} tokens/s without drafting)"
    weights = f"{quantised.quantization} weights"
    if 0.97 <= ratio <= 1.03:
        return f"{weights} leave the target as fast as it was {figures}."
    if ratio > 1:
        return f"{weights} make the target {_ratio(ratio)} as fast here {figures}."
    return f"{weights} make the target {_ratio(1 / ratio)} slower here {figures}: they save memory, not time."


def _plain(trace: Trace) -> bool:
    return trace.settings.strategy == "autoregressive"


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
