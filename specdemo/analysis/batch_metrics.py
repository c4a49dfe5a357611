"""The figures of a batch, from the traces of its rows: all rows began together and share one clock.

Round r of the batch is round r of every row that was still in it; the rows' rounds have the same times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from specdemo.analysis.disturbance import Pace
from specdemo.errors import TraceError
from specdemo.metrics import Totals, counts_of, ratio, totals
from specdemo.rounds import Round
from specdemo.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMetrics(Totals):
    """Figures of all rows together, rounds counted by rows; the prefill and its tokens count only for TTFT.

    Attributes:
        rows: prompts decoded together; fewer are left as rows end.
        forwards: of the target after the prefill; a row takes part in as many ``rounds`` as it has.
        ttft: time to the first tokens, the prefill of all rows, seconds.
        seconds: the clock at the end of the last row.
        row_tokens_per_second, row_seconds: of each row until its own end, and when that was.
        fed, fed_needed: token positions put through the models, prompts included, and those that a row needed;
            the difference filled up rows that had fewer than the longest. Both models count alike.
        draft_seconds, verify_seconds, other_seconds: time after the prefill by phase, which rows share.
    """

    rows: int
    forwards: int
    ttft: float
    seconds: float
    row_tokens_per_second: list[float | None]
    row_seconds: list[float]
    fed: int
    fed_needed: int

    @property
    def tokens_per_second(self) -> float | None:
        """Of the whole batch, emitted / (seconds − TTFT)."""
        return ratio(self.emitted, self.seconds - self.ttft)

    @property
    def mean_rows(self) -> float | None:
        """Rows that took part in a forward."""
        return ratio(self.rounds, self.forwards)

    @property
    def padding(self) -> float | None:
        """Share of positions that no row needed."""
        return ratio(self.fed - self.fed_needed, self.fed)

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
    longest = max(len(t.rounds) for t in traces)
    # After the prefill, each by row.
    rounds = [{row: t.rounds[r] for row, t in enumerate(traces) if len(t.rounds) > r} for r in range(1, longest)]
    sums = totals([counted for trace in traces for counted in counts_of(trace.rounds)])
    # Rows share the times of a round, so one row that took part tells them.
    times = totals(counts_of(next(iter(round_.values())) for round_ in rounds))
    phases = {name: getattr(times, name) for name in ("draft_seconds", "verify_seconds", "other_seconds")}
    fed, needed = _work(traces, rounds)
    return BatchMetrics(
        **{each.name: getattr(sums, each.name) for each in fields(sums)} | phases,
        rows=len(traces),
        forwards=len(rounds),
        ttft=traces[0].rounds[0].seconds,
        seconds=max(t.rounds[-1].seconds for t in traces),
        row_tokens_per_second=[t.metrics().tokens_per_second for t in traces],
        row_seconds=[t.rounds[-1].seconds for t in traces],
        fed=fed,
        fed_needed=needed,
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


def _work(traces: Sequence[Trace], rounds: Sequence[dict[int, Round]]) -> tuple[int, int]:
    """Token positions fed and needed: a forward is as wide as its longest row.

    A draft model's first pass of a round takes in what its cache lacks of each row, then one token a pass.
    """
    prompts, drafts = [len(t.prompt_ids) for t in traces], traces[0].settings.needs == "draft"
    fed, needed = (1 + drafts) * max(prompts) * len(prompts), (1 + drafts) * sum(prompts)
    committed, held = [length + 1 for length in prompts], [*prompts]  # tokens of a row, and in the draft's cache
    for round_ in rounds:
        rows, longest = len(round_), max(r.drafted for r in round_.values())
        fed += rows * (longest + 1)
        needed += sum(r.drafted + 1 for r in round_.values())
        if drafts and longest:
            lacks = {row: committed[row] - held[row] for row in round_}
            fed += rows * (max(lacks.values()) + longest - 1)
            needed += sum(lacks[row] + r.drafted - 1 for row, r in round_.items() if r.drafted)
        for row, r in round_.items():
            before, committed[row] = committed[row], committed[row] + len(r.emitted)
            if longest:
                held[row] = min(before + longest - 1, committed[row] - 1)
    return fed, needed
