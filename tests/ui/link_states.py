"""States of the page that a link can hold, drawn by hypothesis, their queries, and texts of strangers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from hypothesis import strategies as st

from specdemo.ui.links import from_query
from specdemo.ui.state.couplings import choices_left
from specdemo.ui.state.state import Parameter, parameters

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


def values_of(field: Parameter) -> st.SearchStrategy[Any]:
    """Values that the field's control can hold."""
    if field.name in ("target", "draft"):
        return texts.filter(lambda text: not text.strip().startswith(("//", "\\\\")))
    if field.kind == "text":
        return texts
    if field.kind == "switch":
        return st.booleans()
    if field.kind == "choice":
        return st.sampled_from(list(field.choices))
    if field.kind == "several":
        return st.sets(st.sampled_from(list(field.choices))).map(
            lambda s: [name for name in field.choices if name in s]
        )
    if field.kind == "whole":
        return st.integers(int(field.least), int(field.most))
    return st.integers(round(field.least * 100), round(field.most * 100)).map(lambda n: n / 100)


@st.composite
def states(draw: st.DrawFn) -> dict[str, Any]:
    """States that the page can be in: a lane's method is one that the pair offers, and so on."""
    values: dict[str, Any] = {}
    for field in parameters():
        left = choices_left(field.name, values)
        named = values_of(field) if left is None else st.sampled_from([name for _, name in left])
        values[field.name] = draw(named)
        if field.name == "autorun" and values["recording"]:
            values["autorun"] = False
    return values


def read(query: str) -> tuple[dict[str, Any], list[str]]:
    """The values and the notices of a link, as the server reads it."""
    return from_query(dict(parse_qsl(query, keep_blank_values=True)))


def query_of(values: Mapping[str, Any]) -> str:
    """A query that says every one of these values by field, those too with which the page begins."""
    return urlencode({name: _text(value) for name, value in values.items()})


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(int(value) if isinstance(value, bool) else value)
