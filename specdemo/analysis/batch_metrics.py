"""The figures of a batch, from the traces of its rows: all rows began together and share one clock.

Round r of the batch is round r of every row that was still in it; the rows' rounds have the same times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from specdemo.analysis.disturbance import Pace
from specdemo.errors import TraceError
from specdemo.metrics import Totals, counts_of, ratio, totals
from specdemo.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMetrics(Totals):
    """Figures of all rows together, rounds counted by rows; the prefill and its tokens count only for TTFT.

    Attributes:
        rows: prompts decoded together; fewer are left as rows end.
        forwards: of the target after the prefill; a row takes part in as many ``rounds`` as it has.
        ttft: time to the first tokens, the prefill of all rows, seconds.
        seconds: the clock at the end of the last row.
        row_tokens_per_second: of each row until its own end.
        draft_seconds, verify_seconds, other_seconds: time after the prefill by phase, which rows share.
    """

    rows: int
    forwards: int
    ttft: float
    seconds: float
    row_tokens_per_second: list[float | None]

    @property
    def tokens_per_second(self) -> float | None:
        """Of the whole batch, emitted / (seconds − TTFT)."""
        return ratio(self.emitted, self.seconds - self.ttft)

    @property
    def mean_rows(self) -> float | None:
        """Rows that took part in a forward."""
        return ratio(self.rounds, self.forwards)

    @property
    def other_share(self) -> float | None:
        """Of the time after the prefill, what passed outside model forwards."""
        return ratio(self.other_seconds, self.seconds - self.ttft)

    @property
    def pace(self) -> Pace | None:
        """How long its rounds took; None without a speed."""
        if not self.tokens_per_second:
            return None
        forward, tau = ratio(self.verify_seconds, self.forwards), self.mean_acceptance_length
        single, rows = tau if self.rows == 1 else None, self.mean_rows or 1.0
        return Pace(self.emitted or 0, self.tokens_per_second, forward=forward, tau=single, rows=rows)


def measure_batch(traces: Sequence[Trace]) -> BatchMetrics:
    """All figures of a batch, stopped ones too.

    Args:
        traces: of all its rows; each has at least its prefill.

    Raises:
        TraceError: these are not the rows of one batch, which share a clock and a strategy; or one has no rounds.
    """
    traces = _checked(traces)
    longest = max(traces, key=lambda trace: len(trace.rounds))
    sums = totals([counted for trace in traces for counted in counts_of(trace.rounds)])
    # Rows share the times of a round, so the row with the most rounds tells them.
    times = totals(counts_of(longest.rounds))
    phases = {name: getattr(times, name) for name in ("draft_seconds", "verify_seconds", "other_seconds")}
    return BatchMetrics(
        **{each.name: getattr(sums, each.name) for each in fields(sums)} | phases,
        rows=len(traces),
        forwards=len(longest.rounds) - 1,
        ttft=traces[0].rounds[0].seconds,
        seconds=max(t.rounds[-1].seconds for t in traces),
        row_tokens_per_second=[t.metrics().tokens_per_second for t in traces],
    )


def _checked(traces: Iterable[Trace]) -> list[Trace]:
    rows = list(traces) if isinstance(traces, Iterable) and not isinstance(traces, str | Trace) else []
    if not rows or not all(isinstance(t, Trace) and t.rounds for t in rows):
        raise TraceError("A batch is a list of traces with at least one round each, as run_batch gives it.")
    if len({(t.settings.strategy, t.settings.drafter) for t in rows}) > 1:
        raise TraceError("These traces are not rows of one batch: their strategies differ. Measure each alone.")
    clock = max((tuple(r.seconds for r in t.rounds) for t in rows), key=len)
    if any(tuple(r.seconds for r in t.rounds) != clock[: len(t.rounds)] for t in rows):
        raise TraceError(
            "These traces are not rows of one batch: their clocks differ. Decode them with run_batch."
        )
    return rows
