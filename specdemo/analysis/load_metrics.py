"""The figures of requests that several users send at the same time, by the client's clock, network included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise, zip_longest
from math import fsum
from typing import Any

from specdemo.analysis.disturbance import Pace, quarters
from specdemo.metrics import Totals, ratio, shares_by_position
from specdemo.trace import Trace

Answer = tuple[float, Trace]
"""When a request was sent, in seconds, and what was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMetrics(Totals):
    """Figures of all requests together; None or empty where the server does not tell.

    Attributes:
        users: who each send the next request when the last one is answered.
        output: tokens of all answers; ``emitted`` are those after the first of each.
        seconds: from the first request to the end of the last answer; output / seconds is ``tokens_per_second``.
        ttft: of each request, seconds; ``user_tokens_per_second``: its tokens after the first / their time.
        mean_users: Σ time of a request / seconds; fewer than ``users`` are left at the end.
        round_seconds: Σ time after the first token / Σ rounds.
        quarters: median time between two pieces of an answer, by quarters of the time; of one user alone.
        differing, crossed: answers that one user did not get, and of these those that one got to another prompt;
            None where they were not compared.
        slots: requests that the server answers at the same time.
    """

    users: int
    output: int | None
    seconds: float
    tokens_per_second: float | None
    ttft: list[float]
    user_tokens_per_second: list[float | None]
    mean_users: float
    round_seconds: float | None
    quarters: tuple[float, ...]
    differing: int | None
    crossed: int | None
    slots: int | None

    @property
    def pace(self) -> Pace | None:
        """How long its rounds took; None without a speed."""
        if not self.tokens_per_second or not self.output:
            return None
        tau = self.mean_acceptance_length if self.users == 1 else None
        speed, step = self.tokens_per_second, self.round_seconds
        return Pace(self.output, speed, None, step, tau, self.mean_users, self.quarters)


def measure_load(answers: Sequence[Answer], users: int, alone: Sequence[Trace] = ()) -> LoadMetrics:
    """The figures of whole answers, in the order of the requests of so many users.

    ``alone`` are greedy answers to the same prompts, which one user got; none to compare none.
    """
    traces = [trace for _, trace in answers]
    figures = [trace.metrics() for trace in traces]
    sums = added(figures)
    ends = sorted(at + f.seconds for (at, _), f in zip(answers, figures, strict=True))
    seconds = ends[-1] - min(at for at, _ in answers)
    output = None if sums.emitted is None else sums.emitted + len(traces)
    gaps = sorted(
        (at + late.seconds, late.seconds - early.seconds)
        for at, trace in answers
        for early, late in pairwise(trace.rounds)
    )
    other = [trace for n, trace in enumerate(traces) if alone and not _same(trace, alone[n])]
    return LoadMetrics(
        **{each.name: getattr(sums, each.name) for each in fields(sums)},
        users=users,
        output=output,
        seconds=seconds,
        tokens_per_second=ratio(output, seconds),
        ttft=[f.ttft or 0.0 for f in figures],
        user_tokens_per_second=[f.tokens_per_second for f in figures],
        mean_users=fsum(f.seconds for f in figures) / seconds,
        round_seconds=ratio(fsum(f.seconds - (f.ttft or 0.0) for f in figures), sums.rounds),
        # Of several users the contexts grow together, and with them the step of all: 1.4 times from first to last.
        quarters=quarters([gap for _, gap in gaps]) if users == 1 else (),
        differing=len(other) if alone else None,
        crossed=sum(any(_same(trace, one) for one in alone) for trace in other) if alone else None,
        slots=next((trace.server.slots for trace in traces if trace.server), None),
    )


def added(figures: Sequence[Totals]) -> Totals:
    """The sums over several runs, but of tokens None where one of them does not know its own."""

    def total(name: str) -> Any:
        values = [getattr(each, name) for each in figures]
        return None if None in values else sum(values)

    rounds, emitted = total("rounds"), [each.emitted for each in figures if each.emitted is not None]
    histogram = [sum(counts) for counts in zip_longest(*(f.accepted_histogram for f in figures), fillvalue=0)]
    histogram = histogram if rounds and sum(histogram) == rounds else []
    return Totals(
        *(rounds, total("proposed"), total("accepted"), sum(emitted) if emitted else None),
        accepted_histogram=histogram,
        per_position=shares_by_position(histogram, rounds or 0),
        **{name: total(name) for name in ("draft_seconds", "verify_seconds", "other_seconds")},
    )


def _same(one: Trace, other: Trace) -> bool:
    return one.token_ids == other.token_ids if one.token_ids and other.token_ids else one.text == other.text
