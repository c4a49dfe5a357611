"""The speed-up that stands above a race: how large, against what, how sure, and what speaks against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdemo.analysis.lanes import compared, plain_elsewhere
from specdemo.analysis.speedup import FEWEST, Speedup, speedup_of, speedup_over_repeats
from specdemo.analysis.wording import claim, pace, ratio, span, trend_of
from specdemo.trace import Trace
from specdemo.view.lane_headers import lane_names
from specdemo.view.progress_text import counted


def headline(
    traces: Sequence[Trace], headers: Sequence[dict[str, Any]], repeats: Sequence[Sequence[float]] = ()
) -> dict[str, Any]:
    """What the page says first, as texts: ``figure``, ``trend``, ``text``, ``detail`` and ``doubt``.

    Args:
        traces: of the lanes, each with at least its first round.
        headers: of the lanes, for their names.
        repeats: tokens a second of each lane, for each time that the race was run again.
    """
    if any(t.server is not None and t.server.incomplete for t in traces):
        return _words("no speed-up: an answer broke off")
    speeds = [t.metrics().tokens_per_second for t in traces]
    known = [speed for speed in speeds if speed is not None]
    short = any(not t.complete and (t.metrics().emitted or 0) < FEWEST for t in traces)
    if short or len(known) < len(traces):
        why = "Stopped too early for a speed" if short else "Too few tokens for a speed"
        return _words(f"{why}{'-up' if len(traces) > 1 else ''}")
    chosen = compared(traces)
    if chosen is None:
        return _words("tokens per second", f"{known[0]:.{1 if known[0] < 99.95 else 0}f}")
    first, second = map(traces.index, chosen)
    shown = known[second] / known[first]
    one = speedup_of(*chosen) or Speedup(shown)
    found = speedup_over_repeats([each[second] / each[first] for each in repeats]) if repeats else one
    fewest = min(t.metrics().emitted or 0 for t in chosen)
    decoded = counted(fewest, "token was", "tokens were")
    few = f"Only {decoded} decoded: too few to be sure." if fewest < FEWEST else None
    trend = trend_of(found.ratio)
    figure = {"faster": ratio(found.ratio), "slower": f"{1 - found.ratio:.0%}", "even": ""}[trend]
    names = lane_names(headers, second, first)
    text = _against_elsewhere(traces, chosen, trend) or claim(trend, *names)
    if len(traces) > 2 and known[second] == max(s for n, s in enumerate(known) if n != first):
        text = f"{text}, the fastest of {len(traces) - 1} others"
    if trend != "even" and (few or found.open):  # said, but not in large type
        text = f"{figure} {text}" if few else f"{' and '.join(names)} cannot be told apart: {ratio(found.ratio)}"
        figure, trend = "", "even"
    detail = ""
    if found.runs > 1 and found.low is not None and found.high is not None:
        detail = f"{span(found.low, found.high)}, {found.runs} runs; the one shown: {ratio(shown)}"
    return {
        "figure": figure,
        "trend": trend,
        "text": text,
        "detail": detail,
        "doubt": found.doubt or few,
    }


def headline_text(said: dict[str, Any]) -> str:
    """The same as a sentence."""
    text = " ".join(filter(None, (said["figure"], said["text"])))
    detail = f" ({said['detail']})" if said["detail"] else ""
    return " ".join(filter(None, (f"{text[0].upper()}{text[1:]}{detail}.", said["doubt"])))


def _words(text: str, figure: str = "") -> dict[str, Any]:
    return {"figure": figure, "trend": "even", "text": text, "detail": "", "doubt": None}


def _against_elsewhere(traces: Sequence[Trace], chosen: tuple[Trace, Trace], trend: str) -> str | None:
    """What the figure means where there is a plain lane of other weights too: the speed over both."""
    baseline, lane = chosen
    other = plain_elsewhere(traces, lane)
    if other is None or baseline.quantization != lane.quantization:
        return None
    own = {"faster": "over", "slower": "slower than", "even": "As fast as"}[trend]
    over_other = speedup_of(other, lane)
    if over_other is None:
        return None
    return f"{own} {_weights(lane)} plain, {pace(over_other.ratio, f'{_weights(other)} plain')}"


def _weights(trace: Trace) -> str:
    return trace.quantization or "unquantised"
