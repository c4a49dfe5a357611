"""The figures of one lane. Raw counts are kept, and divided last; sums of seconds are correctly rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import fsum
from statistics import median
from typing import Any

from specdemo.trace import Round, Trace


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of one lane; None where a trace cannot tell. The prefill and its token count only for TTFT.

    Attributes:
        rounds: target forwards after the prefill.
        proposed: drafted tokens, Σγᵢ.
        accepted: drafted tokens kept, Σaᵢ.
        emitted: tokens kept after the prefill's, Σ(aᵢ + the target's own).
        wasted: drafted tokens thrown away, Σ(γᵢ − aᵢ).
        acceptance_rate: Σaᵢ/Σγᵢ.
        alpha: acceptance per tested token: mean of Σₓ min(p, q) where both distributions are known, else
            accepted / tested.
        mean_acceptance_length: τ, emitted / rounds.
        per_position: share of rounds with more than j accepted tokens, j from 0.
        conditional_per_position: of the rounds in which drafted token j was tested, the share that kept it, j
            from 0; None where it was never tested. The acceptance that predictions for other γ are made of.
        accepted_histogram: number of rounds with i accepted tokens, i from 0 to γ.
        draft_cost: c, draft step time / target step time; needs a baseline.
        verify_cost: v(γ), time of a verify forward of γ+1 tokens / target step time; needs a baseline.
        tokens_per_second: decode speed, emitted / (seconds − TTFT).
        end_to_end_tokens_per_second: all output tokens / seconds, the prefill and its token counted.
        ttft: time to first token, the prefill of all models of the lane, seconds.
        tpot: time per output token, (seconds − TTFT) / emitted.
        seconds: the lane clock at the end.
        draft_seconds, verify_seconds, other_seconds: decode time by phase, prefill not counted; None of a server.
        draft_share, verify_share, other_share: of the three together; the last is the overhead share, time
            outside model forwards.
        peak_memory: bytes, see :class:`specdemo.trace.Trace`.
    """

    rounds: int | None
    proposed: int | None
    accepted: int | None
    emitted: int | None
    wasted: int | None
    acceptance_rate: float | None
    alpha: float | None
    mean_acceptance_length: float | None
    per_position: list[float]
    conditional_per_position: list[float | None]
    accepted_histogram: list[int]
    draft_cost: float | None
    verify_cost: float | None
    tokens_per_second: float | None
    end_to_end_tokens_per_second: float | None
    ttft: float | None
    tpot: float | None
    seconds: float
    draft_seconds: float | None
    verify_seconds: float | None
    other_seconds: float | None
    draft_share: float | None
    verify_share: float | None
    other_share: float | None
    peak_memory: int | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON and tables."""
        return asdict(self)


def measure(trace: Trace, baseline: Trace | None = None) -> Metrics:
    """All figures of ``trace``; the costs relative to the single target steps of ``baseline``."""
    if any(t.kind == "streamed" for t in trace.tokens):
        from specdemo.analysis.server_metrics import measure_streamed  # it is made of this module's figures

        return measure_streamed(trace)
    decode = [r for r in trace.rounds if r.index > 0]
    ttft = trace.rounds[0].seconds if trace.rounds else None
    seconds = trace.rounds[-1].seconds if trace.rounds else 0.0
    proposed = sum(r.drafted for r in decode)
    accepted = sum(r.accepted for r in decode)
    emitted = sum(len(r.emitted) for r in decode)
    decode_seconds = seconds - (ttft or 0.0)
    # Rounds at the end are shorter, so the histogram's width is the longest draft, not the setting.
    histogram = [0] * (max((r.drafted for r in decode), default=0) + 1)
    for round_ in decode:
        histogram[round_.accepted] += 1
    draft_cost, verify_cost = _costs(decode, baseline)
    phases = _phases(decode) if trace.server is None else [None, None, None]
    whole = None if None in phases else fsum(phases)
    return Metrics(
        rounds=len(decode),
        proposed=proposed,
        accepted=accepted,
        emitted=emitted,
        wasted=proposed - accepted,
        acceptance_rate=ratio(accepted, proposed),
        alpha=_alpha(decode),
        mean_acceptance_length=ratio(emitted, len(decode)),
        per_position=[sum(histogram[j + 1 :]) / len(decode) for j in range(len(histogram) - 1)],
        conditional_per_position=[kept_where_tested(decode, j) for j in range(len(histogram) - 1)],
        accepted_histogram=histogram,
        draft_cost=draft_cost,
        verify_cost=verify_cost,
        tokens_per_second=ratio(emitted, decode_seconds),
        end_to_end_tokens_per_second=ratio(len(trace.output), seconds),
        ttft=ttft,
        tpot=ratio(decode_seconds, emitted),
        seconds=seconds,
        draft_seconds=phases[0],
        verify_seconds=phases[1],
        other_seconds=phases[2],
        draft_share=ratio(phases[0], whole) if whole else None,
        verify_share=ratio(phases[1], whole) if whole else None,
        other_share=ratio(phases[2], whole) if whole else None,
        peak_memory=trace.peak_memory,
    )


def _phases(decode: list[Round]) -> list[float]:
    """Seconds of draft, verify and all else."""
    return [fsum(getattr(r, f"{phase}_seconds") for r in decode) for phase in ("draft", "verify", "other")]


def tested(round_: Round) -> int:
    """Drafted tokens of a round that were put to the rule: the accepted ones and the first rejected.

    A server's rounds have no chances of acceptance; behind an end, where no token of the target's own follows,
    nothing was tested.
    """
    if round_.verify_seconds is None:
        return round_.accepted + any(t.kind == "corrected" for t in round_.tokens)
    return sum(1 for t in round_.tokens if t.acceptance is not None)


def kept_where_tested(decode: Sequence[Any], place: int) -> float | None:
    """Of the rounds that tested a drafted token, the share that kept it.

    Rounds are anything with ``drafted`` and ``accepted``. ``place`` counts from 0; a token is tested if all
    before it were kept. None if it never was.
    """
    reached = [r for r in decode if r.drafted > place and r.accepted >= place]
    return ratio(sum(1 for r in reached if r.accepted > place), len(reached))


def _alpha(decode: list[Round]) -> float | None:
    overlaps = [o for r in decode if r.overlaps is not None for o in r.overlaps]
    if overlaps:
        return fsum(overlaps) / len(overlaps)
    return ratio(sum(r.accepted for r in decode), sum(tested(r) for r in decode))


def _costs(decode: list[Round], baseline: Trace | None) -> tuple[float | None, float | None]:
    """(c, v(γ)) over the rounds of full length, by medians, which a single hiccup does not move."""
    longest = max((r.drafted for r in decode), default=0)
    if baseline is None or not longest:
        return None, None
    steps = [r.verify_seconds for r in baseline.rounds if r.index > 0]
    if not steps or any(r.verify_seconds is None for r in (*decode, *baseline.rounds)):
        return None, None
    step = median(steps)
    full = [r for r in decode if r.drafted == longest]
    return (
        ratio(median(r.draft_seconds / r.drafted for r in full), step),
        ratio(median(r.verify_seconds for r in full), step),
    )


def ratio(amount: float, of: float) -> float | None:
    """A quotient; None where there is nothing to divide by."""
    return amount / of if of else None
