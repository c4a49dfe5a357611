"""The figures of a lane whose tokens have no kinds: what its server counted, and what the client's clock says."""

from __future__ import annotations

from dataclasses import dataclass

from specdemo.analysis.metrics import Metrics, ratio
from specdemo.server_record import Counts
from specdemo.trace import Trace


def measure_streamed(trace: Trace) -> Metrics:
    """All figures that are known; the others are None or empty."""
    server = trace.server
    tokens = server.completion_tokens if server else None
    emitted = tokens - 1 if tokens else None
    ttft, seconds = trace.rounds[0].seconds, trace.rounds[-1].seconds
    decode_seconds = seconds - ttft
    totals = _totals(server.counts if server else None, emitted)
    return Metrics(
        rounds=totals.rounds,
        proposed=totals.proposed,
        accepted=totals.accepted,
        emitted=emitted,
        wasted=None if totals.proposed is None else totals.proposed - totals.accepted,
        acceptance_rate=None if totals.proposed is None else ratio(totals.accepted, totals.proposed),
        alpha=totals.alpha,
        mean_acceptance_length=ratio(emitted, totals.rounds) if emitted and totals.rounds else None,
        per_position=totals.per_position,
        conditional_per_position=totals.conditional,
        accepted_histogram=totals.histogram,
        draft_cost=None,
        verify_cost=None,
        tokens_per_second=ratio(emitted, decode_seconds) if emitted else None,
        end_to_end_tokens_per_second=ratio(tokens, seconds) if tokens else None,
        ttft=ttft,
        tpot=ratio(decode_seconds, emitted) if emitted else None,
        seconds=seconds,
        draft_seconds=None,
        verify_seconds=None,
        other_seconds=None,
        draft_share=None,
        verify_share=None,
        other_share=None,
        peak_memory=None,
    )


@dataclass(frozen=True, slots=True)
class _Totals:
    rounds: int | None
    proposed: int | None
    accepted: int | None
    alpha: float | None
    histogram: list[int]
    per_position: list[float]
    conditional: list[float | None]


def _totals(counts: Counts | None, emitted: int | None) -> _Totals:
    """A server's totals in our terms.

    It leaves out its plain steps: those that emitted what the others do not explain. Where it has any, and an end
    cut its last step, there were up to γ more of them than can be seen from here.
    """
    if counts is None or emitted is None:
        return _Totals(None, *((counts.drafted, counts.accepted) if counts else (None, None)), None, [], [], [])
    rounds = max(counts.steps, emitted - counts.accepted)
    histogram = list(counts.histogram) if counts.histogram else []
    more = counts.per_position or tuple(sum(histogram[j + 1 :]) for j in range(len(histogram) - 1))
    if histogram:
        histogram[0] += rounds - counts.steps
    # Only where every step drafted γ tokens is it known how many of each place were tested.
    full = counts.gamma is not None and counts.drafted == counts.steps * counts.gamma and len(more) == counts.gamma
    reached = [counts.steps, *more[:-1]] if full and more else []
    return _Totals(
        rounds=rounds,
        proposed=counts.drafted,
        accepted=counts.accepted,
        alpha=ratio(counts.accepted, sum(reached)) if reached else None,
        histogram=histogram,
        per_position=[count / rounds for count in more] if rounds else [],
        conditional=[ratio(kept, of) for kept, of in zip(more, reached, strict=True)] if reached else [],
    )
