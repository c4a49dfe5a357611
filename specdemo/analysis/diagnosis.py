"""Why the lanes of a race, or a batch, were fast or slow, in a line each, from measured numbers only."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.analysis.batch_metrics import BatchMetrics
from specdemo.analysis.disturbance import BUSY, FEWEST, QUIETER, SAME_ROWS, disturbance
from specdemo.analysis.reasons import gather, sentence, unhealthy
from specdemo.analysis.speedup import is_plain, place_of, plain_of, speedup_of
from specdemo.analysis.wording import factor
from specdemo.server_record import IN_TURN
from specdemo.trace import Trace

TOO_FEW = "too little was decoded to say why."


def explain_race(traces: Sequence[Trace], titles: Sequence[str] | None = None) -> str | None:
    """Why each lane was fast or slow against plain decoding, and what quantised weights cost or gave: a line each.

    None where no lane drafts, and nothing is to be said of weights.

    A lane is judged against a plain one of the same weights in the same place, which its line names, since others
    are another model, or another machine. Only such a lane's steps are what c, v and a prediction count in.

    Args:
        traces: of the lanes.
        titles: how the page calls them; every line begins with its lane's where there are several.
    """
    lines: dict[str, list[int]] = {}  # what is said of several lanes is said once
    for number, trace in enumerate(traces):
        if not is_plain(trace):
            lines.setdefault(_line(traces, trace), []).append(number)
    several = sum(map(len, lines.values())) > 1
    said = [
        f"{', '.join(titles[n] for n in numbers)}: {line}"
        if titles and several
        else f"{line[0].upper()}{line[1:]}"
        for line, numbers in lines.items()
    ]
    return "\n".join(filter(None, [*said, explain_quantization(traces)])) or None


def explain(baseline: Trace, lane: Trace, name: str = "plain") -> str:
    """Why a lane is fast or slow against a plain one, which is called ``name``; and a remark on its head."""
    found = speedup_of(baseline, lane)
    few = any((trace.metrics().emitted or 0) < FEWEST for trace in (baseline, lane))
    evidence = gather(baseline, lane, found) if found and not few else None
    return sentence(evidence, name) + unhealthy(lane) if evidence else TOO_FEW


def _line(traces: Sequence[Trace], lane: Trace) -> str:
    """The reason of one lane that drafts, or what is missing for one."""
    baseline = plain_of(traces, lane)
    if baseline is not None:
        return explain(baseline, lane, _name(traces, baseline))
    where = f"on {lane.server.name}" if lane.server else "here"
    if not any(map(is_plain, traces)):
        return f"no plain lane ran {where}, so there is nothing to count its costs in; add one."
    missing, mixed = f"no plain lane ran {where}", "machines"
    if any(is_plain(t) and place_of(t) == place_of(lane) for t in traces):
        weights = f"{lane.quantization or 'unquantised'} weights"
        missing, mixed = f"no plain lane has the {weights} of this lane", "quantisation"
    elif any(t.server and IN_TURN in t.server.notes for t in traces):
        mixed = "engines"
    return f"{missing}, so this speed-up is of {mixed} and speculation together; add one to tell them apart."


def _name(traces: Sequence[Trace], baseline: Trace) -> str:
    """A plain lane as a sentence calls it, with what sets it apart from the race's other plain lanes."""
    plain = [t for t in traces if is_plain(t)]
    weights = f"{baseline.quantization or 'unquantised'} " if len({t.quantization for t in plain}) > 1 else ""
    where = f" on {baseline.server.name}" if baseline.server and len(set(map(place_of, plain))) > 1 else ""
    return f"{weights}plain{where}"


def explain_quantization(traces: Sequence[Trace]) -> str | None:
    """How quantised weights change a target step, where the race has both; None where it has not."""
    plain = [(t.quantization, t.metrics().tokens_per_second) for t in traces if is_plain(t) and t.server is None]
    before = next((speed for weights, speed in plain if weights is None and speed), None)
    name, after = next(((weights, speed) for weights, speed in plain if weights and speed), (None, None))
    if before is None or after is None:
        return None
    pace = after / before
    figures = f"({after:.1f} against {before:.1f} tokens/s without drafting)"
    weights = f"{name} weights"
    if 0.97 <= pace <= 1.03:
        return f"{weights} leave the target as fast as it was {figures}."
    if pace > 1:
        return f"{weights} make the target {factor(pace)} as fast here {figures}."
    return f"{weights} make the target {factor(1 / pace)} slower here {figures}: they save memory, not time."


def explain_batch(plain: BatchMetrics, drafted: BatchMetrics) -> str | None:
    """What a round of a batch keeps, what it costs, and what waste there was; None where nothing was measured.

    A speed-up is tokens kept a round over the time of a round, both against plain decoding of the same batch:
    (τ · rows taking part) / (cost in plain steps · rows taking part in a plain round).
    """
    if said := disturbance(plain.pace, drafted.pace):
        return f"{BUSY} {said} {QUIETER}"
    slow, fast, kept = plain.tokens_per_second, drafted.tokens_per_second, drafted.mean_acceptance_length
    if not slow or not fast or not plain.mean_rows or not drafted.mean_rows:
        return None
    step = (plain.seconds - plain.ttft) / plain.forwards * drafted.forwards
    named = ("drafting", "one pass of the target", "everything else")
    phases = (drafted.draft_seconds, drafted.verify_seconds, drafted.other_seconds)
    parts = [((seconds or 0.0) / step, what) for seconds, what in zip(phases, named, strict=True)]
    cost = sum(amount for amount, _ in parts)
    spent = ", ".join(f"{amount:.2f} for {what}" for amount, what in parts if amount >= 0.005)
    sentences = [
        f"{fast / slow:.2f}×: a round keeps {kept:.2f} tokens a row and takes {cost:.2f} plain steps ({spent})."
    ]
    if drafted.mean_rows < SAME_ROWS * plain.mean_rows:
        sentences.append(
            f"Rows end apart, which leaves {drafted.mean_rows:.2f} of {drafted.rows} in a drafted round on "
            f"average and {plain.mean_rows:.2f} in a plain one."
        )
    return " ".join(sentences)
