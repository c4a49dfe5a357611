"""States of the page that a link can hold, drawn by hypothesis, and texts of strangers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from specdemo.ui.links.fields import METHOD_FIELDS, Field, link_fields
from specdemo.ui.panel.lane_controls import NO_LANE, method_choices
from specdemo.ui.panel.pair_controls import NONE, has_draft
from specdemo.ui.tabs.losslessness import drafters_of, rules_of

HOSTILE = [
    "<img src=x onerror=alert(1)> ${1+1} {{2+2}}",
    "a&b=c#d%e+f;g?h/i\\j\n\t\r\n'\"",
    "שלום 你好 🙂 \u202e\u0000\u2028",
    "%",
    "%%%41",
    "../../etc/passwd",
    "1e309",
    "NaN",
    "٣",
    "1_000",
    " 5 ",
    "-0",
    "",
]
texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=60))


def values_of(field: Field) -> st.SearchStrategy[Any]:
    """Values that the field's control can hold."""
    if field.name in ("target", "draft"):
        return texts.filter(lambda text: not text.strip().startswith(("//", "\\\\")))
    if field.kind == "text":
        return texts
    if field.kind == "switch":
        return st.booleans()
    if field.kind == "choice":
        return st.sampled_from(field.choices)
    if field.kind == "several":
        return st.sets(st.sampled_from(field.choices)).map(lambda s: [name for name in field.choices if name in s])
    if field.kind == "whole":
        return st.integers(int(field.least), int(field.most))
    return st.integers(round(field.least * 100), round(field.most * 100)).map(lambda n: n / 100)


@st.composite
def states(draw: st.DrawFn) -> dict[str, Any]:
    """States that the page can be in: a lane's method is one that the pair offers, and so on."""
    values: dict[str, Any] = {}
    for field in link_fields():
        values[field.name] = draw(values_of(field))
        drafts = "pair" in values and has_draft(values["pair"], values["target"], values["draft"])
        offered = None
        if field.name in METHOD_FIELDS:
            quantized = values["target-weights"] != NONE
            offered = method_choices(has_draft=drafts, quantized=quantized, optional=NO_LANE in field.choices)
        elif field.name == "losslessness.rule":
            offered = rules_of(values["losslessness.mode"])
        elif field.name == "losslessness.drafter":
            offered = drafters_of(has_model=drafts)
        elif field.name == "autorun" and values["recording"]:
            values["autorun"] = False
        if offered is not None:
            values[field.name] = draw(st.sampled_from([name for _, name in offered]))
    return values
