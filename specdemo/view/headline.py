"""The speed-up that stands above a race: how large, against what, how sure, and what speaks against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdemo.analysis.lanes import compared, plain_elsewhere
from specdemo.analysis.speedup import FEWEST, Speedup, speedup_of, speedup_over_repeats
from specdemo.analysis.wording import pace, ratio, span, trend_of
from specdemo.trace import Trace
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
    short = any(not t.complete and (t.metrics().emitted or 0) < FEWEST for t in traces)
    if short or None in speeds:
        why = "Stopped too early for a speed" if short else "Too few tokens for a speed"
        return _words(f"{why}{'-up' if len(traces) > 1 else ''}")
    if len(traces) == 1:
        return _words("tokens per second", f"{speeds[0]:.{1 if speeds[0] < 99.95 else 0}f}")
    baseline, lane = compared(traces)
    first, second = traces.index(baseline), traces.index(lane)
    found = (
        speedup_over_repeats([each[second] / each[first] for each in repeats])
        if repeats
        else speedup_of(baseline, lane)
    )
    fewest = min(t.metrics().emitted or 0 for t in (baseline, lane))
    few = (
        f"Only {counted(fewest, 'token was', 'tokens were')} decoded: too few to be sure."
        if fewest < FEWEST
        else None
    )
    trend = trend_of(found.ratio)
    figure = {"faster": ratio(found.ratio), "slower": f"{1 - found.ratio:.0%}", "even": ""}[trend]
    text = _compared(traces, headers, first, second, found)
    if len(traces) > 2 and speeds[second] == max(s for n, s in enumerate(speeds) if n != first):
        text = f"{text}, the fastest of {len(traces) - 1} others"
    if trend != "even" and (few or found.open):  # said, but not in large type
        names = _names(traces, headers, second, first)
        text = f"{figure} {text}" if few else f"{' and '.join(names)} cannot be told apart: {ratio(found.ratio)}"
        figure, trend = "", "even"
    return {
        "figure": figure,
        "trend": trend,
        "text": text,
        "detail": _range(found, speeds[second] / speeds[first]) if found.runs > 1 else "",
        "doubt": found.doubt or few,
    }


def headline_text(said: dict[str, Any]) -> str:
    """The same as a sentence."""
    text = " ".join(filter(None, (said["figure"], said["text"])))
    detail = f" ({said['detail']})" if said["detail"] else ""
    return " ".join(filter(None, (f"{text[0].upper()}{text[1:]}{detail}.", said["doubt"])))


def _range(found: Speedup, shown: float) -> str:
    return f"{span(found.low, found.high)}, {found.runs} runs; the one shown: {ratio(shown)}"


def _words(text: str, figure: str = "") -> dict[str, Any]:
    return {"figure": figure, "trend": "even", "text": text, "detail": "", "doubt": None}


def _compared(
    traces: Sequence[Trace], headers: Sequence[dict[str, Any]], first: int, second: int, found: Speedup
) -> str:
    """What the figure means."""
    trend = trend_of(found.ratio)
    baseline, lane = traces[first], traces[second]
    names = _names(traces, headers, first, second)
    claim = f"{names[1]} is as fast as {names[0]}" if trend == "even" else f"{trend} than {names[0]}: {names[1]}"
    if baseline.quantization != lane.quantization:
        return claim
    other = plain_elsewhere(traces, lane)
    if other is not None:
        own = {"faster": "over", "slower": "slower than", "even": "As fast as"}[trend]
        speeds = [t.metrics().tokens_per_second for t in (other, lane)]
        return f"{own} {_weights(lane)} plain, {pace(speeds[1] / speeds[0], f'{_weights(other)} plain')}"
    if names == ["Plain", "Speculative"]:
        return "As fast as plain" if trend == "even" else f"{trend} with speculation"
    return claim


def _names(traces: Sequence[Trace], headers: Sequence[dict[str, Any]], *places: int) -> list[str]:
    """The lanes there; where their weights differ a speed-up has two causes, and the names tell both."""
    both = [headers[n] for n in places]
    if len({traces[n].quantization for n in places}) == 1:
        return [header["title"] for header in both]
    return [f"{header['title']} with {header.get('weights', 'other weights')}" for header in both]


def _weights(trace: Trace) -> str:
    return trace.quantization or "unquantised"
