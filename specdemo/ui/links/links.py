"""Reading links: what stands behind the ``#`` becomes the values of all parameters, whatever it says.

Every value that comes out is one that its control can take, and each parameter that could not be used gives a
sentence. Links are written in the browser, by links.js, from the same table of parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import TypeAdapter, ValidationError

from specdemo.drafters import PARTS, first_choice
from specdemo.models.request import BETWEEN, catalog, is_network_path, is_public, shorten
from specdemo.recording import Recording
from specdemo.settings import LARGEST_WHOLE
from specdemo.trace import Trace
from specdemo.ui.state.methods import (
    FIRST_LANES,
    NO_LANE,
    PLAIN,
    UNQUANTIZED,
    method_choices,
    method_of,
    methods_on,
    pair_name,
    server_method,
    server_of,
)
from specdemo.ui.state.request import OPTIONS, SHARED, chats, lane_table, option_values, parts_of, shown_options
from specdemo.ui.state.state import (
    CUSTOM,
    GREEDY,
    METHOD_PARAMETERS,
    MODES,
    NONE,
    SHORT_LANE,
    Parameter,
    of_lanes,
    pairs,
    parameter_of,
    parameters,
    precision_of,
)
from specdemo.ui.tabs.losslessness import drafters_of, rules_of

LONGEST_LINK = 16_000
"""Characters. Browsers take more, but the programs in which links are sent on do not."""
MOST_NOTICES = 6
MOST_NAMED = 16
OTHERS = ("__", "utm_")
"""Parameters that begin so belong to a Space or to a tracker."""
OTHERS_WHOLE = frozenset({"logs", "deep_link", "embed", "fbclid", "ref", "sweep.c", "sweep.v"})
"""The last two were a prediction's costs in links of earlier versions; what they set is gone."""
FORMER = {
    "sweep.tokens": ("sweep", "length"),
    "batch.tokens": ("batch", "length"),
    "losslessness.gamma": ("losslessness", "gamma"),
}
"""Parameters of links from when tabs had a length or a γ of their own: the tab, and what it is now."""
TYPES: dict[str, TypeAdapter[Any]] = {
    "whole": TypeAdapter(int),
    "number": TypeAdapter(float),
    "switch": TypeAdapter(bool),
}


def from_query(query: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The values of all parameters, and a notice for each one that is ignored.

    Args:
        query: parameters and their texts, already unescaped.
    """
    known = {each.name: each for each in parameters()}
    given, notices = migrated(query, known)
    strange = len(notices)
    begins = {name: each.default for name, each in known.items()}
    values: dict[str, Any] = {}
    for name, parameter in known.items():
        values[name] = begins[name]
        if values[name] is None:  # the names of a pair of one's own say what drafts
            drafter = first_choice(_parts(values))
            values[name] = method_of(drafter.name) if name in METHOD_PARAMETERS else drafter.name
        if name in given:
            try:
                values[name] = _read(parameter, given[name], values)
            except ValueError as reason:
                notices.append(f"{name}: “{shorten(given[name])}” is ignored; {reason}")
        begins |= brought_by(name, values[name])
    if values["autorun"] and len(notices) > strange:  # what it asks for is not what would run
        values["autorun"] = False
        notices.append("autorun waits for you: check the panel, then press Run.")
    if len(notices) > MOST_NOTICES:
        notices = [*notices[: MOST_NOTICES - 1], f"{len(notices) - MOST_NOTICES + 1} more parameters are ignored."]
    return values, notices


def table() -> dict[str, Any]:
    """For links.js and panel.js, as plain data: the parameters, and what goes with which text of one of them."""
    fields = [
        {"name": p.name, "kind": p.kind, "default": p.default, "element": p.element, "choices": list(p.choices)}
        for p in parameters()
    ]
    brought = {
        "target": {"": {}, "*": brought_by("target", "any")},
        "pair": {name: brought_by("pair", name) for name in pairs()},
        "temperature": {"0": {}, "*": brought_by("temperature", 1)},
        "losslessness.mode": {name: brought_by("losslessness.mode", name) for name in MODES},
    }
    return {"fields": fields, "brought": brought, "longest": LONGEST_LINK, "lanes": lane_table()}


def brought_by(name: str, value: Any) -> dict[str, Any]:
    """What other parameters begin with once one has a value; None where only the names of a pair say it."""
    if name == "target" and value and not is_public():
        return {"pair": CUSTOM}
    if name == "temperature" and value:
        return dict.fromkeys(of_lanes("acceptance"), "sampling")
    if name == "losslessness.mode" and value == GREEDY:
        return {"losslessness.rule": "exact"}
    if name != "pair":
        return {}
    return {**precision_of(value), "chat": chats(value), **_lanes_of(value)}


def _lanes_of(pair: str) -> dict[str, Any]:
    """What the lanes begin with on a server, or on a pair that has not every part."""
    server = server_of(pair)
    if server is not None:
        lanes = dict(zip(METHOD_PARAMETERS, methods_on(server, FIRST_LANES), strict=True))
        return {**lanes, "losslessness.drafter": first_choice(parts_of(pair)).name}
    lanes = dict(zip(METHOD_PARAMETERS, FIRST_LANES, strict=True))
    drafting = [name for name, first in lanes.items() if first not in (PLAIN, NO_LANE)]
    if pair == CUSTOM:
        return dict.fromkeys([*drafting, "losslessness.drafter"])
    spec = first_choice(catalog()[pair].parts)
    if spec == first_choice(PARTS):
        return {}
    return {**dict.fromkeys(drafting, method_of(spec.name)), "losslessness.drafter": spec.name}


def choices_left(name: str, values: Mapping[str, Any]) -> list[tuple[str, str]] | None:
    """(label, value) of the choices that the parameters before leave to one; None where they leave all."""
    if name == "losslessness.rule":
        return rules_of(values["losslessness.mode"])
    if name == "losslessness.drafter":
        return drafters_of(_parts(values))
    if name not in METHOD_PARAMETERS:
        return None
    return method_choices(
        parts=_parts(values),
        quantized=values["target-weights"] != NONE,
        optional=name != METHOD_PARAMETERS[0],
        server=server_of(values["pair"]),
    )


def migrated(query: Mapping[str, str], known: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """The query in today's parameters, and a notice for each one that is none.

    A tab's former length or γ is now the one that all tabs share, where the link opens the tab that it was for.
    """
    given, notices = {}, []
    for said, text in query.items():
        name = said.removeprefix(f"{SHORT_LANE}.")
        if name != said and f"lane1.{name}" not in known:
            name = said
        if name != said and name in query:
            notices.append(f"{said} is ignored; the link has {name} too, for the same control.")
        elif said in FORMER and query.get("tab") != FORMER[said][0]:
            notices.append(f"{said} is ignored; all tabs share {FORMER[said][1]}.")
        elif name in known:
            given[name] = text
        elif said not in FORMER and said and not said.startswith(OTHERS) and said not in OTHERS_WHOLE:
            similar = len(notices) < MOST_NOTICES and get_close_matches(said[:60], known, n=1)
            hint = f"; did you mean {similar[0]}?" if similar else "."
            notices.append(f"“{shorten(said)}” is no parameter of this page{hint}")
    meant = {now: query[name] for name, (tab, now) in FORMER.items() if name in query and query.get("tab") == tab}
    return {**given, **meant}, notices


def _read(parameter: Parameter, text: str, values: Mapping[str, Any]) -> Any:
    """
    Args:
        parameter: to read.
        text: what the link says.
        values: of the parameters before it.

    Raises:
        ValueError: what the text must be instead.
    """
    value: Any = text
    left = choices_left(parameter.name, values)
    if parameter.kind == "several":
        named = [_one_of(part, parameter.choices) for part in text.split(",") if part]
        return [name for name in parameter.choices if name in named]
    if parameter.kind == "choice":
        return _one_of(text, parameter.choices if left is None else [name for _, name in left])
    if parameter.kind in TYPES:
        try:
            value = TYPES[parameter.kind].validate_python(text)
        except ValidationError:
            value = None
        if parameter.kind == "switch" and value is None:
            raise ValueError("it must be 1 or 0.")
        if value is None or not parameter.least <= value <= parameter.most:
            bounded, least = parameter.most < LARGEST_WHOLE, f"{parameter.least:g}"
            span = f"from {least} to {parameter.most:,}" if bounded else f"of at least {least}"
            raise ValueError(f"it must be a {'whole ' if parameter.kind == 'whole' else ''}number {span}.")
        if parameter.kind == "number":
            value = round(value, 4)  # as links are written
    if parameter.name in ("target", "draft") and value:
        if is_public():
            raise ValueError("this public page runs the pairs of its catalogue only.")
        if is_network_path(value):
            raise ValueError("a link may not make this machine ask another one for a folder.")
    if parameter.name == "autorun" and value and values["recording"]:
        raise ValueError("the link opens a recording, which plays by itself.")
    return value


def _one_of(text: str, choices: Collection[str]) -> str:
    if text not in choices:
        more = ", …" if len(choices) > MOST_NAMED else ""
        raise ValueError(f"choose one of {', '.join([*choices][:MOST_NAMED])}{more}.")
    return text


def _parts(values: Mapping[str, Any]) -> frozenset[str]:
    return parts_of(values["pair"], values["target"], values["draft"])


def query_of(recording: Recording) -> dict[str, str]:
    """The link that would set the panel to what a recording ran with, for :func:`from_query`.

    Precision and device are those of the pair here, not of the machine that recorded.
    """
    shared = recording.traces[0].settings
    query = {parameter_of(name): getattr(shared, name) for name in SHARED}
    query |= {**_pair_query(recording.traces), "prompt": recording.prompt or "", "chat": shared.chat is not False}
    if shared.server is not None:
        query["engine"] = "auto"
    for number, method in enumerate(METHOD_PARAMETERS, start=1):
        if number > len(recording.traces):
            query[method] = NO_LANE
            continue
        trace = recording.traces[number - 1]
        query[method] = _method_of(trace, recording.traces)
        options = dict(zip(OPTIONS, option_values(trace.settings), strict=True))
        for name in shown_options(query[method], trace.settings.acceptance):
            query[parameter_of(f"lane{number}", name)] = options[name]
    return {name: str(int(value) if isinstance(value, bool) else value) for name, value in query.items()}


def _pair_query(traces: tuple[Trace, ...]) -> Mapping[str, Any]:
    here = next((t for t in traces if t.server is None), None)
    if here is None:
        server = traces[0].settings.server
        return {"pair": pair_name(server)} if server else {}
    weights = next((t.quantization for t in traces if t.quantization), None)
    precision = {"target-weights": weights} if weights else {}
    if here.pair in catalog():
        return {"pair": here.pair, **precision}
    target, _, draft = here.pair.partition(BETWEEN)
    return {"target": target.strip('"'), "draft": draft.strip('"'), **precision}


def _method_of(trace: Trace, traces: tuple[Trace, ...]) -> str:
    settings = trace.settings
    plain = settings.strategy == "autoregressive"
    if settings.server is not None:
        return server_method(settings.server, PLAIN if plain else "speculative")
    if plain:
        quantized = any(t.quantization for t in traces)
        return UNQUANTIZED if quantized and trace.quantization is None else PLAIN
    return method_of(settings.drafter, settings.strategy)
