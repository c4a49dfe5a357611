"""What stands above a race: the speed-up, how sure it is, and the verdict on the outputs of its lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdemo.analysis.speedup import FEWEST, Speedup, compared, plain_of, speedup_of, speedup_over_repeats
from specdemo.analysis.wording import claim, factor, pace, span, trend_of
from specdemo.losslessness.compare import compare
from specdemo.trace import Trace
from specdemo.view.lane_headers import lane_names
from specdemo.view.progress_text import counted

GRAVITY = ("identical", "partial", "sampled", "tie", "diverged")
"""Kinds of verdicts, from the lightest."""
PROMPTS = "prompts differ: use the chat template in both lanes, or in neither"


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
    figure = {"faster": factor(found.ratio), "slower": f"{1 - found.ratio:.0%}", "even": ""}[trend]
    names = lane_names(headers, second, first)
    text = _against_elsewhere(traces, chosen, trend) or claim(trend, *names)
    if len(traces) > 2 and known[second] == max(s for n, s in enumerate(known) if n != first):
        text = f"{text}, the fastest of {len(traces) - 1} others"
    if trend != "even" and (few or found.open):  # said, but not in large type
        text = f"{figure} {text}" if few else f"{' and '.join(names)} cannot be told apart: {factor(found.ratio)}"
        figure, trend = "", "even"
    detail = ""
    if found.runs > 1 and found.low is not None and found.high is not None:
        detail = f"{span(found.low, found.high)}, {found.runs} runs; the one shown: {factor(shown)}"
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
    other = plain_of(traces, lane, same_weights=False)
    if other is None or baseline.quantization != lane.quantization:
        return None
    own = {"faster": "over", "slower": "slower than", "even": "As fast as"}[trend]
    over_other = speedup_of(other, lane)
    if over_other is None:
        return None
    return f"{own} {_weights(lane)} plain, {pace(over_other.ratio, f'{_weights(other)} plain')}"


def _weights(trace: Trace) -> str:
    return trace.quantization or "unquantised"


def verdict(traces: Sequence[Trace], titles: list[str]) -> dict[str, str]:
    """The verdict on all lanes; each is compared with the first lane of the same weights and prompt.

    Quantised weights are another model, and a server may put a prompt into another template. Where the comparisons
    differ, the text names each with its lane, and the gravest is the verdict's kind.
    """
    judged, against = {}, {}
    for number, (title, trace) in enumerate(zip(titles, traces, strict=True)):
        first = next(t for t in traces[: number + 1] if _comparable(t, trace))
        if first is not trace:
            judged[title] = compare(first, trace)
            if first is not traces[0]:
                against[title] = f" (against {titles[traces.index(first)]})"
    if not judged:
        weights = len({t.quantization for t in traces}) > 1
        differs = "weights differ; add a plain lane with the same weights" if weights else PROMPTS
        return {"kind": "partial", "text": f"not compared: the lanes' {differs}"}
    kind = max((j.outcome for j in judged.values()), key=GRAVITY.index)
    texts = list(dict.fromkeys(j.text for j in judged.values()))
    if len(texts) > 1 or len(judged) < len(traces) - 1:
        texts = [f"{title}: {j.text}{against.get(title, '')}" for title, j in judged.items()]
        texts += [
            f"{title}: not compared with {titles[0]}, since their {PROMPTS}"
            for title, trace in zip(titles, traces, strict=True)
            if trace.quantization == traces[0].quantization and not _comparable(traces[0], trace)
        ]
    return {"kind": kind, "text": "; ".join(texts)}


def _comparable(left: Trace, right: Trace) -> bool:
    known = left.prompt_ids and right.prompt_ids  # a server may keep its ids
    return left.quantization == right.quantization and (not known or left.prompt_ids == right.prompt_ids)
