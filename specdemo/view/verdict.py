"""The verdict on the outputs of a race's lanes."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.losslessness.compare import compare
from specdemo.trace import Trace

GRAVITY = ("identical", "partial", "sampled", "tie", "diverged")
"""Kinds of verdicts, from the lightest."""
PROMPTS = "prompts differ: use the chat template in both lanes, or in neither"


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
