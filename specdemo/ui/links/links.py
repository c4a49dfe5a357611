"""Reading links: what stands behind the ``#`` becomes the values of all fields, whatever it says.

Every value that comes out is one that its control can take, and each parameter that could not be used gives a
sentence. Links are written in the browser, by links.js, from the same table of fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from difflib import get_close_matches
from typing import Any

from specdemo.drafters import first_choice
from specdemo.models.request import is_public
from specdemo.models.source import is_network_path, shorten
from specdemo.settings import LARGEST_WHOLE
from specdemo.ui.links.fields import (
    FORMER,
    METHOD_FIELDS,
    SHORT_LANE,
    Field,
    Rule,
    lane_field,
    link_fields,
    link_rules,
)
from specdemo.ui.panel.methods import NO_LANE, method_choices
from specdemo.ui.panel.pair_controls import NONE, parts_of
from specdemo.ui.panel.server_choice import server_of
from specdemo.ui.tabs.losslessness import drafters_of, rules_of

MOST_NOTICES = 6
MOST_NAMED = 16
LONGEST_NAME = 60
"""Characters of a parameter for which a similar one is looked up, which takes time."""
OTHERS = ("__", "utm_")
"""Parameters that begin so belong to a Space or to a tracker."""

OTHERS_WHOLE = frozenset({"logs", "deep_link", "embed", "fbclid", "ref", "sweep.c", "sweep.v"})
"""The last two were a prediction's costs in links of earlier versions; what they set is gone."""
ON, OFF = ("1", "true", "on", "yes"), ("0", "false", "off", "no")
WHOLE = re.compile(r"[+-]?[0-9]{1,16}")
NUMBER = re.compile(r"[+-]?([0-9]{1,9}(\.[0-9]{0,20})?|\.[0-9]{1,20})")
FINEST = Decimal("0.0001")


class _Unusable(ValueError):
    """What a parameter must be instead."""


def from_query(query: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The values of all fields, and a notice for each parameter that is ignored.

    Args:
        query: parameters and their texts, already unescaped.
    """
    fields, rules = link_fields(), link_rules()
    query, notices = _renamed(query)
    given, unknown = _known(query, [f.name for f in fields])
    notices += unknown
    values: dict[str, Any] = {}
    for field in fields:
        values[field.name] = _default(field, rules, values)
        if field.name in given:
            try:
                value = _read(field, given[field.name])
                _check(field, value, values)
                values[field.name] = value
            except _Unusable as reason:
                notices.append(f"{field.name}: “{shorten(given[field.name])}” is ignored; {reason}")
    if len(notices) > MOST_NOTICES:
        notices = [*notices[: MOST_NOTICES - 1], f"{len(notices) - MOST_NOTICES + 1} more parameters are ignored."]
    return values, notices


def choices_left(field: Field, values: Mapping[str, Any]) -> list[tuple[str, str]] | None:
    """(label, name) of the choices that the fields before leave to a field; None where they leave all.

    Args:
        field: any.
        values: of the fields before it.
    """
    if field.name == "losslessness.rule":
        return rules_of(values["losslessness.mode"])
    if field.name == "losslessness.drafter":
        return drafters_of(_parts(values))
    if field.name not in METHOD_FIELDS:
        return None
    return method_choices(
        parts=_parts(values),
        quantized=values["target-weights"] != NONE,
        optional=NO_LANE in field.choices,
        server=server_of(values["pair"]),
    )


def _renamed(query: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The query with a tab's former length or γ as the one that all tabs share, and a notice for each left out.

    It counts where the link opens its tab, for which it was meant.
    """
    renamed, notices = {name: text for name, text in query.items() if name not in FORMER}, []
    for name, (tab, now) in FORMER.items():
        if name in query and query.get("tab") == tab:
            renamed[now] = query[name]
            renamed.pop(f"lane{SHORT_LANE}.{now}", None)
        elif name in query:
            notices.append(f"{name} is ignored; all tabs share {now}.")
    return renamed, notices


def _known(query: Mapping[str, str], names: list[str]) -> tuple[dict[str, str], list[str]]:
    """The parameters of this page by the field's name, and a notice for each unknown one."""
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
            unknown = len(notices) < MOST_NOTICES and len(said) < LONGEST_NAME  # of the others nothing is shown
            meant = get_close_matches(said, names, n=1) if unknown else []
            hint = f"; did you mean {meant[0]}?" if meant else "."
            notices.append(f"“{shorten(said)}” is no parameter of this page{hint}")
    return given, notices


def _default(field: Field, rules: Iterable[Rule], values: Mapping[str, Any]) -> Any:
    """What a field begins with, by the fields before it."""
    default = field.default
    for rule in rules:
        if field.name in rule.defaults and (values[rule.field] == rule.value) != rule.negated:
            default = rule.defaults[field.name]
    if default is not None:
        return default
    spec = first_choice(_parts(values))
    return spec.method if field.name in METHOD_FIELDS else spec.name


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
        named = [_one_of(part, field.choices) for part in text.split(",") if part]
        return [name for name in field.choices if name in named]
    whole = field.kind == "whole"
    found = (WHOLE if whole else NUMBER).fullmatch(text)
    value = None if not found else int(text) if whole else float(Decimal(text).quantize(FINEST, ROUND_HALF_UP))
    if value is None or not field.least <= value <= field.most:
        bounded = field.most < LARGEST_WHOLE
        span = f"from {field.least:g} to {field.most:,}" if bounded else f"of at least {field.least:g}"
        raise _Unusable(f"it must be a {'whole ' if whole else ''}number {span}.")
    return value


def _one_of(text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        more = ", …" if len(choices) > MOST_NAMED else ""
        raise _Unusable(f"choose one of {', '.join(choices[:MOST_NAMED])}{more}.")
    return text


def _check(field: Field, value: Any, values: Mapping[str, Any]) -> None:
    """Whether a value goes with those of the fields before it.

    Raises:
        _Unusable: it does not.
    """
    left = choices_left(field, values)
    if left is not None:
        _one_of(value, [name for _, name in left])
    elif field.name in ("target", "draft") and value:
        if is_public():
            raise _Unusable("this public page runs the pairs of its catalogue only.")
        if is_network_path(value):
            raise _Unusable("a link may not make this machine ask another one for a folder.")
    elif field.name == "autorun" and value and values["recording"]:
        raise _Unusable("the link opens a recording, which plays by itself.")


def _parts(values: Mapping[str, Any]) -> frozenset[str]:
    return parts_of(values["pair"], values["target"], values["draft"])
