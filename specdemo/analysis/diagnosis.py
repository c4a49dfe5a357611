"""Why a lane was fast or slow, in one or two sentences, from measured numbers only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdemo.analysis.reasons import RULES, Evidence, ratio
from specdemo.analysis.server_reasons import explain_server
from specdemo.theory import expected_speedup
from specdemo.trace import Trace

BETTER = 1.05
"""A smaller γ is only advised if it promises that much more."""


def explain_race(traces: Sequence[Trace]) -> str | None:
    """Why the fastest lane was fast or slow against the first, and what quantised weights cost or gave.

    A lane is judged against a plain one of the same weights in the same place, since others are another model, or
    another machine.
    """
    fastest = max(traces[1:], key=lambda t: t.metrics().tokens_per_second or 0.0)
    near = [t for t in traces if _place(t) == _place(fastest)]
    alike = [t for t in near if t.quantization == fastest.quantization]
    baseline = traces[0] if traces[0] in alike else next((t for t in alike if _plain(t)), None)
    if baseline is None and not any(_plain(t) for t in near):
        where = "on the server of the fastest lane" if fastest.server else "here, as the fastest lane did"
        return (
            f"No plain lane ran {where}, so this speed-up is of machines and speculation together; "
            "add one to tell them apart."
        )
    if baseline is None:
        return (
            f"No plain lane has the {fastest.quantization or 'unquantised'} weights of the fastest lane, so this "
            "speed-up is of quantisation and speculation together; add one to tell them apart."
        )
    reasons = [None if baseline is fastest else explain(baseline, fastest), explain_quantization(traces)]
    if baseline is not traces[0] and reasons[0]:
        same = "in the same place" if _place(traces[0]) != _place(fastest) else "with the same weights"
        reasons[0] = f"Against plain decoding {same} {reasons[0]}"
    return " ".join(reason for reason in reasons if reason) or None


def explain_quantization(traces: Sequence[Trace]) -> str | None:
    """How quantised weights change a target step, where the race has both; None where it has not."""
    plain = [t for t in traces if _plain(t) and t.server is None and t.metrics().tokens_per_second]
    whole = next((t for t in plain if t.quantization is None), None)
    quantised = next((t for t in plain if t.quantization is not None), None)
    if whole is None or quantised is None:
        return None
    speeds = [t.metrics().tokens_per_second for t in (whole, quantised)]
    pace = speeds[1] / speeds[0]
    figures = f"({speeds[1]:.1f} against {speeds[0]:.1f} tokens/s without drafting)"
    weights = f"{quantised.quantization} weights"
    if 0.97 <= pace <= 1.03:
        return f"{weights} leave the target as fast as it was {figures}."
    if pace > 1:
        return f"{weights} make the target {ratio(pace)} as fast here {figures}."
    return f"{weights} make the target {ratio(1 / pace)} slower here {figures}: they save memory, not time."


def _plain(trace: Trace) -> bool:
    return trace.settings.strategy == "autoregressive"


def _place(trace: Trace) -> str | None:
    """The server that a lane ran on; None is here."""
    return trace.server.name if trace.server else None


def explain(baseline: Trace, lane: Trace) -> str | None:
    """A reason for people; None where there is nothing measured to reason from."""
    if baseline.server or lane.server:
        return explain_server(baseline, lane)
    evidence = gather(baseline, lane)
    if evidence is None:
        return None
    rule = next(rule for rule in RULES if rule.applies(evidence))
    return f"{ratio(evidence.speedup)} {rule.text(evidence)}"


def gather(baseline: Trace, lane: Trace) -> Evidence | None:
    """The figures that the rules look at; None with fewer than three rounds or without costs."""
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
    decode = [r for r in lane.rounds if r.index > 0]

    def predict(tau: float, drafted: float) -> float:
        # A drafter may propose less than γ, or nothing: checking fewer tokens costs less, in proportion.
        return expected_speedup(tau, drafted, c, 1 + (v - 1) * drafted / longest)

    predicted, speedup = predict(tau, gamma), speeds[1] / speeds[0]
    return Evidence(
        speedup=speedup,
        predicted=predicted,
        rate=rate,
        tau=tau,
        gamma=gamma,
        longest=longest,
        c=c,
        v=v,
        overhead=figures.other_share or 0.0,
        drafting=sum(1 for r in decode if r.drafted) / len(decode),
        quantization=lane.quantization,
        shorter=_shorter(figures.per_position, max(predicted, speedup), predict)
        if gamma > 0.9 * longest
        else None,
    )


def _shorter(
    per_position: list[float], now: float, predict: Callable[[float, float], float]
) -> tuple[int, float] | None:
    """The best γ below this one: what was kept of the first tokens is measured, whatever came after them."""
    promises = [(1 + sum(per_position[:g]), g) for g in range(1, len(per_position))]
    best, gamma = max(((predict(tau, g), g) for tau, g in promises), default=(0.0, 0))
    return (gamma, best) if best >= BETTER * now else None
