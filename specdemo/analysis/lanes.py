"""Which lane of a race another one is judged against."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.trace import Trace


def is_plain(trace: Trace) -> bool:
    """Whether it decodes without drafts."""
    return trace.settings.strategy == "autoregressive"


def place_of(trace: Trace) -> str | None:
    """The server that a lane ran on; None is here."""
    return trace.server.name if trace.server else None


def plain_of(traces: Sequence[Trace], lane: Trace) -> Trace | None:
    """The first plain lane with the lane's weights, in the lane's place: others are another model or machine."""
    alike = (t for t in traces if t.quantization == lane.quantization and place_of(t) == place_of(lane))
    return next(filter(is_plain, alike), None)


def plain_elsewhere(traces: Sequence[Trace], lane: Trace) -> Trace | None:
    """The first plain lane with other weights, in the lane's place."""
    near = (t for t in traces if t.quantization != lane.quantization and place_of(t) == place_of(lane))
    return next(filter(is_plain, near), None)


def compared(traces: Sequence[Trace]) -> tuple[Trace, Trace] | None:
    """(baseline, lane) that a race's headline compares; None of a single lane, or where a speed is missing.

    The fastest lane that drafts is compared with its own plain lane, or with the first lane where there is none.
    Without a lane that drafts it is the fastest other lane against the first. The first lane takes part only
    if it has a plain lane to be compared with.
    """
    if len(traces) < 2 or not all(t.metrics().tokens_per_second for t in traces):
        return None
    drafting = [t for t in traces if not is_plain(t)]
    others = [t for t in drafting if t is not traces[0] or plain_of(traces, t)] or drafting or traces[1:]
    lane = max(others, key=lambda t: t.metrics().tokens_per_second or 0.0)
    baseline = plain_of(traces, lane) or traces[0]
    if baseline is lane:  # the only one that drafts comes first, and no plain lane has its weights
        lane = max(traces[1:], key=lambda t: t.metrics().tokens_per_second or 0.0)
        baseline = traces[0]
    return baseline, lane
