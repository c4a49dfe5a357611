"""What stands above a race: the speed-up, how sure it is, and the verdict on the outputs of its lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdemo.analysis.disturbance import FEWEST
from specdemo.analysis.speedup import Speedup, compared, plain_of, speedup_of, speedup_over_repeats
from specdemo.analysis.wording import claim, factor, inside, listed, pace, span, trend_of
from specdemo.losslessness.compare import compare
from specdemo.trace import Trace
from specdemo.view.lane_headers import lane_names

STEADY = 12
"""Rounds, with fewer of which the speed of a run that was stopped, or goes on, is noise."""
GRAVITY = ("identical", "partial", "sampled", "tie", "diverged")
"""Kinds of verdicts, from the lightest."""
PROMPTS = "prompts differ: use the chat template in both lanes, or in neither"


def headline(
    traces: Sequence[Trace], headers: Sequence[dict[str, Any]], repeats: Sequence[Sequence[float]] = ()
) -> dict[str, Any]:
    """What the page says first, as texts: ``lane``, ``figure``, ``trend``, ``text``, ``detail`` and ``doubt``.

    Where there is a figure, ``lane`` is whose it is.

    Args:
        traces: of the lanes, each with at least its first round.
        headers: of the lanes, for their names.
        repeats: tokens a second of each lane, for each time that the race was run again.
    """
    if any(t.server is not None and t.server.incomplete for t in traces):
        return _words("No speed-up: an answer broke off")
    speeds = [t.metrics().tokens_per_second for t in traces]
    known, chosen = [speed for speed in speeds if speed is not None], compared(traces)
    if len(known) < len(traces) or (not repeats and any(map(_too_few, chosen or traces))):
        return _words(f"Too few tokens for a speed{'-up' if len(traces) > 1 else ''}")
    if chosen is None:
        return _words("tokens per second", f"{known[0]:.{1 if known[0] < 99.95 else 0}f}")
    first, second = map(traces.index, chosen)
    one = speedup_of(*chosen) or Speedup(known[second] / known[first])
    found = speedup_over_repeats([each[second] / each[first] for each in repeats], one.most) if repeats else one
    trend = trend_of(found.ratio)
    figure = {"faster": factor(found.ratio), "slower": f"{1 - found.ratio:.0%}", "even": ""}[trend]
    names = lane_names(headers, second, first)
    text = _against_elsewhere(traces, chosen, trend, names[0]) or claim(trend, *names)
    if len(traces) > 2 and known[second] == max(s for n, s in enumerate(known) if n != first):
        text = f"{text}, the fastest of {len(traces) - 1} others"
    if trend != "even" and found.open and found.low is not None and found.high is not None:
        between = f"between {factor(found.low)} and {factor(found.high)}"
        text = f"{names[0]} and {inside(names[1])} cannot be told apart: {between}"
        figure, trend = "", "even"
    elif found.doubt and found.low and found.high:  # bounds for a figure that is not to be relied on
        figure = f"{span(found.low, found.high)}×" if found.low < found.high else f"at most {factor(found.high)}"
        trend, text = "even", f"the speed of {inside(names[1])}"
    detail = ""
    if found.runs > 1 and found.low is not None and found.high is not None:
        detail = f"{span(found.low, found.high)}, {found.runs} runs; the one shown: {factor(one.ratio)}"
    return {
        "lane": names[0] if figure else "",
        "figure": figure,
        "trend": trend,
        "text": text,
        "detail": detail,
        "doubt": found.doubt,
    }


def headline_text(said: dict[str, Any]) -> str:
    text = " ".join(filter(None, (said["lane"] and f"{said['lane']}:", said["figure"], said["text"])))
    detail = f" ({said['detail']})" if said["detail"] else ""
    return " ".join(filter(None, (f"{text}{detail}.", said["doubt"])))


def _too_few(trace: Trace) -> bool:
    figures = trace.metrics()
    emitted = figures.emitted or 0
    return emitted < FEWEST or (not trace.complete and (figures.rounds or emitted) < STEADY)


def _words(text: str, figure: str = "") -> dict[str, Any]:
    return {"lane": "", "figure": figure, "trend": "even", "text": text, "detail": "", "doubt": None}


def _against_elsewhere(traces: Sequence[Trace], chosen: tuple[Trace, Trace], trend: str, name: str) -> str | None:
    """What the figure means where there is a plain lane of other weights too: the speed over both."""
    baseline, lane = chosen
    other = plain_of(traces, lane, same_weights=False)
    if other is None or baseline.quantization != lane.quantization:
        return None
    over_other = speedup_of(other, lane)
    if over_other is None:
        return None
    own = claim(trend, name, f"{_weights(lane)} plain")
    return f"{own}, {pace(over_other.ratio, f'{_weights(other)} plain')}"


def _weights(trace: Trace) -> str:
    return trace.quantization or "unquantised"


def verdict(traces: Sequence[Trace], titles: list[str]) -> dict[str, str]:
    """The verdict on all lanes; each is compared with the first lane of the same weights and prompt.

    Quantised weights are another model, and a server may put a prompt into another template. Where the comparisons
    differ, the text names each with its lanes, and the gravest is the verdict's kind.
    """
    judged = {}
    for number, (title, trace) in enumerate(zip(titles, traces, strict=True)):
        first = next(t for t in traces[: number + 1] if _comparable(t, trace))
        if first is not trace:
            judged[title] = compare(first, trace, inside(titles[traces.index(first)]))
    if not judged:
        weights = len({t.quantization for t in traces}) > 1
        differs = "weights differ; add a plain lane with the same weights" if weights else PROMPTS
        return {"kind": "partial", "text": f"Not compared: the lanes' {differs}"}
    kind = max((j.outcome for j in judged.values()), key=GRAVITY.index)
    alike: dict[str, list[str]] = {}
    for title, found in judged.items():
        alike.setdefault(found.text, []).append(title)
    texts = [text[0].upper() + text[1:] for text in alike]
    if len(texts) > 1 or len(judged) < len(traces) - 1:
        texts = [f"{listed(lanes)}: {text}" for text, lanes in alike.items()]
        texts += [
            f"{title}: not compared with {titles[0]}, since their {PROMPTS}"
            for title, trace in zip(titles, traces, strict=True)
            if trace.quantization == traces[0].quantization and not _comparable(traces[0], trace)
        ]
    return {"kind": kind, "text": "; ".join(texts)}


def _comparable(left: Trace, right: Trace) -> bool:
    known = left.prompt_ids and right.prompt_ids  # a server may keep its ids
    return left.quantization == right.quantization and (not known or left.prompt_ids == right.prompt_ids)
