"""Links to the page as it stands: the text after the ``?``, made from the controls' values and read again.

Only what differs from what the page begins with is written. Whatever a link says, reading it gives values that the
controls can take, and a sentence for each parameter that could not be used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote

from specdemo.models.request import is_public
from specdemo.models.source import shorten
from specdemo.ui.links.fields import (
    EXACT_IN_BROWSERS,
    METHOD_FIELDS,
    SHORT_LANE,
    Field,
    Rule,
    lane_field,
    link_fields,
    link_rules,
)
from specdemo.ui.panel.lane_controls import NO_LANE, method_choices
from specdemo.ui.panel.pair_controls import NONE, has_draft
from specdemo.ui.panel.server_choice import server_of
from specdemo.ui.tabs.losslessness import drafters_of, rules_of

LONGEST_QUERY = 6000
"""Characters. Servers on the way take about 8,000, and Gradio appends the query to its own requests."""

MOST_NOTICES = 6
MOST_NAMED = 16
KEPT_BY_ENCODERS = "!~*'()"  # what the browser's encodeURIComponent leaves as it is, besides what quote does
OTHERS = ("__", "utm_")
"""Parameters that begin so are a Space's or a tracker's own."""

OTHERS_WHOLE = frozenset({"logs", "deep_link", "embed", "fbclid", "ref"})
ON, OFF = ("1", "true", "on", "yes"), ("0", "false", "off", "no")
WHOLE = re.compile(r"[+-]?[0-9]{1,16}")
NUMBER = re.compile(r"[+-]?([0-9]{1,9}(\.[0-9]{0,20})?|\.[0-9]{1,20})")
FINEST = Decimal("0.0001")
NETWORK = ("\\\\", "//")
"""How a folder on another machine begins: Windows would greet whoever is named there with a password's hash."""


class _Unusable(ValueError):
    """What a parameter must be instead."""


# ---- writing ---------------------------------------------------------------------------------------------------


def to_query(values: Mapping[str, Any]) -> str:
    """The query that gives these values, without ``?``; texts too long for a link are left out.

    Args:
        values: of all fields by name, as the controls hold them.
    """
    return "&".join(f"{name}={text}" for name, text in _parts(values)[0].items())


def too_long(values: Mapping[str, Any]) -> list[str]:
    """The names of the texts that :func:`to_query` leaves out."""
    return _parts(values)[1]


def _parts(values: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Encoded texts by name, and what was left out to stay within the limit: the longest text first."""
    fields, rules = link_fields(), link_rules()
    texts = {f.name: encode(f, values[f.name]) for f in fields}
    parts = {}
    for field in fields:
        default = _default(field, rules, texts)
        if texts[field.name] is not None and (default is None or texts[field.name] != encode(field, default)):
            parts[field.name] = quote(texts[field.name] or "", safe=KEPT_BY_ENCODERS)
    left = []
    while sum(len(name) + len(text) + 2 for name, text in parts.items()) > LONGEST_QUERY:
        longest = max(
            (f.name for f in fields if f.kind == "text" and f.name in parts), key=lambda n: len(parts[n])
        )
        del parts[longest]
        left.append(longest)
    return parts, left


def encode(field: Field, value: Any) -> str | None:
    """A value as text, before it is escaped; None for a field that was emptied."""
    if field.kind == "text":
        return re.sub("[\ud800-\udfff]", "\ufffd", value or "")
    if value is None:
        return None
    if field.kind == "switch":
        return ON[0] if value else OFF[0]
    if field.kind == "several":
        return ",".join(name for name in field.choices if name in value)
    return str(value) if field.kind == "choice" else _decimal(value)


def _decimal(value: float) -> str:
    """At most four decimals, and never an exponent: browsers write large and small numbers in another way."""
    rounded = Decimal(value).quantize(FINEST, ROUND_HALF_UP)
    return f"{rounded:f}".rstrip("0").rstrip(".")


def _default(field: Field, rules: Iterable[Rule], texts: Mapping[str, str | None]) -> Any:
    """What a field begins with beside these others."""
    default = field.default
    for rule in rules:
        if field.name in rule.defaults and (texts.get(rule.field) == rule.text) != rule.negated:
            default = rule.defaults[field.name]
    return default


# ---- reading ---------------------------------------------------------------------------------------------------


def from_query(query: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The values of all fields, and a notice for each parameter that is ignored.

    Args:
        query: parameters and their texts, already unescaped.
    """
    fields, rules = link_fields(), link_rules()
    given, notices = _known(query, [f.name for f in fields])
    values: dict[str, Any] = {}
    texts: dict[str, str | None] = {}
    for field in fields:
        default = _default(field, rules, texts)
        values[field.name] = _of_custom(field, values) if default is None else default
        if field.name in given:
            try:
                value = _read(field, given[field.name])
                _check(field, value, values)
                values[field.name] = value
            except _Unusable as reason:
                notices.append(f"{field.name}: “{shorten(given[field.name])}” is ignored; {reason}")
        texts[field.name] = encode(field, values[field.name])
    if len(notices) > MOST_NOTICES:
        notices = [*notices[: MOST_NOTICES - 1], f"{len(notices) - MOST_NOTICES + 1} more parameters are ignored."]
    return values, notices


def _known(query: Mapping[str, str], names: list[str]) -> tuple[dict[str, str], list[str]]:
    """What is ours, by the field's name, and a notice for what seems to be meant for us and is not."""
    given, notices = {}, []
    for said, text in query.items():
        name = said.removeprefix(f"lane{SHORT_LANE}.")
        if name != said and lane_field(SHORT_LANE, name) in names and name in query:
            notices.append(f"{said} is ignored; the link has {name} too, for the same control.")
        elif said in names:
            given[said] = text
        elif name != said and f"lane1.{name}" in names:
            given[name] = text
        elif said and not said.startswith(OTHERS) and said not in OTHERS_WHOLE:
            meant = get_close_matches(said, names, n=1)
            hint = f"; did you mean {meant[0]}?" if meant else "."
            notices.append(f"“{shorten(said)}” is no parameter of this page{hint}")
    return given, notices


def _read(field: Field, text: str) -> Any:
    """
    Raises:
        _Unusable: the text is no value of this kind.
    """
    if field.kind == "text":
        return text
    if field.kind == "switch":
        if text.lower() not in ON + OFF:
            raise _Unusable("it must be 1 or 0.")
        return text.lower() in ON
    if field.kind == "choice":
        return _one_of(text, field.choices)
    if field.kind == "several":
        return [
            name for name in field.choices if name in [_one_of(t, field.choices) for t in text.split(",") if t]
        ]
    whole = field.kind == "whole"
    span = (
        f"from {field.least:g} to {field.most:,}"
        if field.most < EXACT_IN_BROWSERS
        else f"of at least {field.least:g}"
    )
    found = (WHOLE if whole else NUMBER).fullmatch(text)
    value = None if not found else int(text) if whole else float(Decimal(text).quantize(FINEST, ROUND_HALF_UP))
    if value is None or not field.least <= value <= field.most:
        raise _Unusable(f"it must be a {'whole ' if whole else ''}number {span}.")
    return value


def _one_of(text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        more = ", …" if len(choices) > MOST_NAMED else ""
        raise _Unusable(f"choose one of {', '.join(choices[:MOST_NAMED])}{more}.")
    return text


def _check(field: Field, value: Any, values: Mapping[str, Any]) -> None:
    """Whether a value goes with those before it.

    Raises:
        _Unusable: it does not.
    """
    if field.name in ("target", "draft") and value:
        if is_public():
            raise _Unusable("this public page runs the pairs of its catalogue only.")
        if value.strip().startswith(NETWORK):
            raise _Unusable("a link may not make this machine ask another one for a folder.")
    elif field.name in METHOD_FIELDS:
        quantized, optional = values["target-weights"] != NONE, NO_LANE in field.choices
        choices = method_choices(
            has_draft=_has_draft(values),
            quantized=quantized,
            optional=optional,
            server=server_of(values["pair"]),
        )
        _one_of(value, [name for _, name in choices])
    elif field.name == "losslessness.rule":
        _one_of(value, [name for _, name in rules_of(values["losslessness.mode"])])
    elif field.name == "losslessness.drafter":
        _one_of(value, [name for _, name in drafters_of(has_model=_has_draft(values))])
    elif field.name == "autorun" and value and values["recording"]:
        raise _Unusable("the link opens a recording, which plays by itself.")


def _of_custom(field: Field, values: Mapping[str, Any]) -> str:
    """What a custom pair begins with; whether it has a draft model is known only here."""
    if field.name == "losslessness.drafter":
        return "model" if _has_draft(values) else "prompt_lookup"
    return "draft" if _has_draft(values) else "lookup"


def _has_draft(values: Mapping[str, Any]) -> bool:
    return has_draft(values["pair"], values["target"], values["draft"])
