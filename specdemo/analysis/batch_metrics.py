"""The figures of a batch, from the traces of its rows: all rows began together and share one clock.

Round r of the batch is round r of every row that was still in it; the rows' rounds have the same times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import fsum
from typing import Any

from specdemo.analysis.disturbance import Pace
from specdemo.drafters import DRAFTERS
from specdemo.errors import TraceError
from specdemo.metrics import counts_of, ratio, totals
from specdemo.rounds import Round
from specdemo.trace import Trace


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """Figures of all rows together; None where nothing was measured. Prefill and its tokens count only for TTFT.

    Attributes:
        rows: prompts decoded together.
        rounds: target forwards after the prefill.
        emitted: tokens of all rows kept after the prefill's.
        proposed, accepted: drafted tokens of all rows, and those kept.
        acceptance_rate: accepted / proposed.
        mean_acceptance_length: τ, tokens a row keeps of a round it takes part in.
        row_rounds: rows that took part, summed over the rounds.
        mean_rows: row_rounds / rounds; the batch shrinks as rows end.
        ttft: time to the first tokens, the prefill of all rows, seconds.
        seconds: the clock at the end of the last row.
        tokens_per_second: of the whole batch, emitted / (seconds − TTFT).
        row_tokens_per_second: of each row until its own end.
        row_seconds: when each row ended.
        fed, fed_needed: token positions put through the models, prompts included, and those that a row needed;
            the difference filled up rows that had fewer than the longest. Both models count alike.
        slots, slots_needed: KV cache slots read by the target over all rounds, and those with a token of the row.
        padding: share of positions that no row needed, 1 − fed_needed / fed.
        idle_slots: share of cache slots read for nothing, 1 − slots_needed / slots.
        draft_seconds, verify_seconds, other_seconds: time after the prefill by phase.
        other_share: of the time after the prefill, what passed outside model forwards.
    """

    rows: int
    rounds: int
    emitted: int
    proposed: int
    accepted: int
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    row_rounds: int
    mean_rows: float | None
    ttft: float
    seconds: float
    tokens_per_second: float | None
    row_tokens_per_second: list[float | None]
    row_seconds: list[float]
    fed: int
    fed_needed: int
    slots: int
    slots_needed: int
    padding: float | None
    idle_slots: float | None
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    other_share: float | None

    @property
    def pace(self) -> Pace | None:
        """How long its rounds took; None without a speed."""
        if not self.tokens_per_second:
            return None
        forward, tau = ratio(self.verify_seconds, self.rounds), self.mean_acceptance_length
        single, rows = tau if self.rows == 1 else None, self.mean_rows or 1.0
        return Pace(self.emitted, self.tokens_per_second, forward=forward, tau=single, rows=rows)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_batch(traces: Sequence[Trace]) -> BatchMetrics:
    """All figures of a batch, stopped ones too.

    Args:
        traces: of all its rows; each has at least its prefill.

    Raises:
        TraceError: these are not the rows of one batch, which share a clock and a strategy; or one has no rounds.
    """
    traces = _checked(traces)
    rounds = _rounds(traces)
    sums = totals([counted for trace in traces for counted in counts_of(trace.rounds)])
    # Rows share the times of a round, so one row that took part tells them.
    times = totals(counts_of(next(iter(round_.values())) for round_ in rounds))
    phases = [seconds or 0.0 for seconds in (times.draft_seconds, times.verify_seconds, times.other_seconds)]
    ttft = traces[0].rounds[0].seconds
    seconds = max(t.rounds[-1].seconds for t in traces)
    fed, needed, slots, live = _work(traces, rounds)
    return BatchMetrics(
        rows=len(traces),
        rounds=len(rounds),
        emitted=sums.emitted or 0,
        proposed=sums.proposed or 0,
        accepted=sums.accepted or 0,
        acceptance_rate=sums.acceptance_rate,
        mean_acceptance_length=sums.mean_acceptance_length,
        row_rounds=sums.rounds or 0,
        mean_rows=ratio(sums.rounds, len(rounds)),
        ttft=ttft,
        seconds=seconds,
        tokens_per_second=ratio(sums.emitted, seconds - ttft),
        row_tokens_per_second=[t.metrics().tokens_per_second for t in traces],
        row_seconds=[t.rounds[-1].seconds for t in traces],
        fed=fed,
        fed_needed=needed,
        slots=slots,
        slots_needed=live,
        padding=ratio(fed - needed, fed),
        idle_slots=ratio(slots - live, slots),
        draft_seconds=phases[0],
        verify_seconds=phases[1],
        other_seconds=phases[2],
        other_share=ratio(phases[2], fsum(phases)),
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


def _rounds(traces: Sequence[Trace]) -> list[dict[int, Round]]:
    """The rounds after the prefill, each by row."""
    last = max(len(t.rounds) for t in traces)
    return [{row: t.rounds[r] for row, t in enumerate(traces) if len(t.rounds) > r} for r in range(1, last)]


def _work(traces: Sequence[Trace], rounds: Sequence[dict[int, Round]]) -> tuple[int, int, int, int]:
    """Token positions fed and needed, cache slots read and needed: a forward is as wide as its longest row.

    A draft model's first pass of a round takes in what its cache lacks of each row, then one token a pass.
    """
    settings, prompts = traces[0].settings, [len(t.prompt_ids) for t in traces]
    drafts = settings.strategy == "speculative" and DRAFTERS[settings.drafter].needs == "draft"
    fed, needed = (1 + drafts) * max(prompts) * len(prompts), (1 + drafts) * sum(prompts)
    slots = live = 0
    committed, held = (
        [length + 1 for length in prompts],
        list(prompts),
    )  # tokens of a row, and in the draft's cache
    for round_ in rounds:
        rows, longest = len(round_), max(r.drafted for r in round_.values())
        own = sum(r.drafted + 1 for r in round_.values())
        fed, needed = fed + rows * (longest + 1), needed + own
        slots += rows * (max(committed[row] for row in round_) + longest)
        live += own + sum(committed[row] - 1 for row in round_)
        if drafts and longest:
            lacks = {row: committed[row] - held[row] for row in round_}
            fed += rows * (max(lacks.values()) + longest - 1)
            needed += sum(lacks[row] + r.drafted - 1 for row, r in round_.items() if r.drafted)
        for row, r in round_.items():
            before, committed[row] = committed[row], committed[row] + len(r.emitted)
            if longest:
                held[row] = min(before + longest - 1, committed[row] - 1)
    return fed, needed, slots, live
