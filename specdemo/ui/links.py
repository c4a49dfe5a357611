"""Links: what stands behind the ``#`` becomes the values of all parameters, whatever it says, and of the page.

Every value that comes out is one that its control can take, and each parameter that could not be used gives a
sentence. Links are written in the browser, by links.js, from the same table of parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import gradio as gr
from pydantic import TypeAdapter, ValidationError

from specdemo.errors import SpecDemoError
from specdemo.models.preflight import gigabytes
from specdemo.models.request import BETWEEN, catalog, is_network_path, is_public, shorten
from specdemo.recording import Recording
from specdemo.runs.store import PairStore
from specdemo.settings import LARGEST_WHOLE
from specdemo.trace import Trace
from specdemo.ui.panel.controls import UNQUEUED, UNSEEN, Controls, updates
from specdemo.ui.panel.pair_card import LOOKS
from specdemo.ui.state.couplings import BROUGHT, DRAFTER, MODE, choices_left
from specdemo.ui.state.methods import (
    NO_LANE,
    PLAIN,
    UNQUANTIZED,
    method_of,
    pair_name,
    runs_here,
    server_method,
    server_of,
    wish_of,
)
from specdemo.ui.state.request import OPTIONS, SHARED, lane_table, option_values, pair_request, shown_options
from specdemo.ui.state.state import (
    CUSTOM,
    METHOD_PARAMETERS,
    MODES,
    PAGE,
    SHORT_LANE,
    TABS,
    PairChoice,
    Parameter,
    pairs,
    parameter_of,
    parameters,
    precision_of,
)
from specdemo.view.assets import script_of
from specdemo.view.export import script_json

LONGEST_LINK = 16_000
"""Characters. Browsers take more, but the programs in which links are sent on do not."""
LONGEST_KEPT = 2_000  # characters of a prompt in a link that a browser keeps
MOST_NOTICES = 6
MOST_NAMED = 16
OTHERS = ("__", "utm_")
"""Parameters that begin so belong to a Space or to a tracker."""
OTHERS_WHOLE = frozenset({"logs", "deep_link", "embed", "fbclid", "ref", "sweep.c", "sweep.v"})
"""The last two were a prediction's costs in links of earlier versions; what they set is gone."""
FORMER = {"sweep.tokens": "length", "batch.tokens": "length", "losslessness.gamma": "gamma"}
"""Parameters of links from when tabs had a length or a γ of their own, and what they are now."""
TYPES: dict[str, TypeAdapter[Any]] = {
    "whole": TypeAdapter(int),
    "number": TypeAdapter(float),
    "switch": TypeAdapter(bool),
}
WEB = Path(__file__).parent / "web"
SCRIPTS = ("notices.js", "streams.js", "links.js", "panel.js", "tabs.js", "stage.js", "talk.js")
"""In the order in which they must be loaded."""
ON_A_SERVER = "autorun waits for you: this link runs on a server; press Run."
BEGIN = "(...values) => { window.SpecDemoLinks.begin(values); }"
OPENED = "() => window.SpecDemoLinks.opened"
READY = "(said, ...values) => { window.SpecDemoLinks.ready(said, values); }"
DECIDED = "(said) => { window.SpecDemoLinks.decided(said); }"
CHANGED = "(...values) => { window.SpecDemoLinks.changed(values); }"


def from_query(query: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The values of all parameters, by their unescaped texts, and a notice for each one that is ignored."""
    known = {each.name: each for each in parameters()}
    given, notices = migrated(query, known)
    strange = len(notices)
    begins = {name: each.default for name, each in known.items()}
    values: dict[str, Any] = {}
    for name, parameter in known.items():
        values[name] = begins[name]
        if name in given:
            try:
                values[name] = _read(parameter, given[name], values)
            except ValueError as reason:
                notices.append(f"{name}: “{shorten(given[name])}” is ignored; {reason}")
        if name in BROUGHT:
            begins |= BROUGHT[name]({**begins, **values})
    if values["autorun"] and len(notices) > strange:  # what it asks for is not what would run
        values["autorun"] = False
        notices.append("autorun waits for you: check the panel, then press Run.")
    if len(notices) > MOST_NOTICES:
        notices = [*notices[: MOST_NOTICES - 1], f"{len(notices) - MOST_NOTICES + 1} more parameters are ignored."]
    return values, notices


def table() -> dict[str, Any]:
    """For links.js and panel.js, as plain data: the parameters, and what goes with which text of one of them."""
    known = parameters()
    begins = {each.name: each.default for each in known}
    fields = [
        {"name": p.name, "kind": p.kind, "default": p.default, "element": p.element, "choices": list(p.choices)}
        | {"field": p.path[-1]}
        for p in known
    ]
    texts: dict[str, dict[str, Any]] = {
        "target": {"": "", "*": "any"},
        "pair": {name: name for name in pairs()},
        "temperature": {"0": 0, "*": 1},
        MODE: {name: name for name in MODES},
    }

    def brought_by(name: str, value: Any) -> dict[str, Any]:
        found = BROUGHT[name]({**begins, name: value})
        return {other: brings for other, brings in found.items() if brings != begins[other]}

    brought = {name: {text: brought_by(name, value) for text, value in of.items()} for name, of in texts.items()}
    if CUSTOM in brought["pair"]:  # its names say what drafts, so a link says it too
        brought["pair"][CUSTOM] |= dict.fromkeys([METHOD_PARAMETERS[1], DRAFTER])
    return {"fields": fields, "brought": brought, "longest": LONGEST_LINK, "lanes": lane_table()}


def migrated(query: Mapping[str, str], known: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """The query in today's parameters, and a notice for each one that is none.

    A tab's former length or γ is now the one that all tabs share, where the link opens the tab that it was for.
    """
    given, notices = {}, []
    meant = {now: query[n] for n, now in FORMER.items() if n in query and n.startswith(f"{query.get('tab')}.")}
    for said, text in query.items():
        name = said.removeprefix(f"{SHORT_LANE}.")
        if name != said and name in query:
            notices.append(f"{said} is ignored; the link has {name} too, for the same control.")
        elif said in FORMER:
            notices += [f"{said} is ignored; all tabs share {FORMER[said]}."] * (FORMER[said] not in meant)
        elif name in known:
            given[name] = text
        elif said and not said.startswith(OTHERS) and said not in OTHERS_WHOLE:
            similar = len(notices) < MOST_NOTICES and get_close_matches(said[:60], known, n=1)
            hint = f"; did you mean {similar[0]}?" if similar else "."
            notices.append(f"“{shorten(said)}” is no parameter of this page{hint}")
    return given | meant, notices


def _read(parameter: Parameter, text: str, values: Mapping[str, Any]) -> Any:
    """A parameter's value, given those before it; raises ValueError with what the text must be instead."""
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


def query_of(recording: Recording) -> dict[str, str]:
    """The link that would set the panel to what a recording ran with, for :func:`from_query`.

    Precision and device are those of the pair here, not of the machine that recorded. A prompt that is not known
    is left as it is.
    """
    shared = recording.traces[0].settings
    query = {parameter_of(name): getattr(shared, name) for name in SHARED}
    query |= {**_pair_query(recording.traces), "chat": shared.chat is not False}
    query |= {} if recording.prompt is None else {"prompt": recording.prompt}
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


def link_of(recording: Recording, most: int | None = None) -> str:
    """The same as text; a prompt of more characters than ``most`` is left out."""
    long = most is not None and len(recording.prompt or "") > most
    return urlencode(query_of(recording) | ({"prompt": "", "without": "prompt"} if long else {}))


def _pair_query(traces: tuple[Trace, ...]) -> Mapping[str, Any]:
    here = next((t for t in traces if t.server is None), None)
    if here is None:
        server = traces[0].settings.server
        return {"pair": pair_name(server)} if server else {}
    weights = next((t.quantization for t in traces if t.quantization), None)
    precision = precision_of(here.pair) | ({"target-weights": weights} if weights else {})
    if here.pair in catalog():
        return {"pair": here.pair, **precision}
    target, _, draft = here.pair.partition(BETWEEN)
    return {"pair": CUSTOM, "target": target.strip('"'), "draft": draft.strip('"'), **precision}


def _method_of(trace: Trace, traces: tuple[Trace, ...]) -> str:
    settings = trace.settings
    plain = settings.strategy == "autoregressive"
    if settings.server is not None:
        return server_method(settings.server, PLAIN if plain else "speculative")
    if plain:
        quantized = any(t.quantization for t in traces)
        return UNQUANTIZED if quantized and trace.quantization is None else PLAIN
    return method_of(settings.drafter, settings.strategy)


def link_head() -> str:
    scripts = [f"window.SpecDemoLinkTable = {script_json(table())};"]
    scripts += [script_of(WEB / name) for name in SCRIPTS]
    return "".join(f"<script>{script}</script>" for script in scripts)


def connect_links(page: gr.Blocks, controls: Controls, tabs: gr.Tabs, store: PairStore) -> None:
    """Read the page's link when it opens, then write every change into the address.

    A page without a link asks nothing. Couplings between controls act on a person's input only, and nothing is
    written before all values have arrived, so the page shows exactly what the link says.
    """
    opened, said = (gr.JSON(value=None, visible=False) for _ in range(2))
    # Pressed by links.js.
    read, start = (gr.Button(visible="hidden", elem_id=name) for name in ("link-read", "link-start"))
    linked = controls.all()

    def reading(query: Any) -> list[Any]:
        texts = {n: t for n, t in query.items() if isinstance(t, str)} if isinstance(query, dict) else {}
        values, notices = from_query(texts)
        # The values too: Gradio gives those of a tab that was never opened to its events a moment late.
        held = {name: values[name] for name in linked}
        flags = {"page": {name: values[name] for name in PAGE}, "held": held, "notices": notices, "start": False}
        chosen = gr.skip() if values["tab"] == TABS[0] else gr.Tabs(selected=values["tab"])
        wishes = [wish_of(values[name], server_of(values["pair"])) for name in METHOD_PARAMETERS]
        return [*updates(linked, values), wishes, chosen, flags]

    def judge(flags: dict[str, Any], *values: Any) -> Any:
        pair, lanes = values[: -len(METHOD_PARAMETERS)], values[-len(METHOD_PARAMETERS) :]
        return start_flags(flags, controls.choice(pair), lanes, store)

    page.load(None, list(linked.values()), None, js=BEGIN, **UNQUEUED)
    filled = read.click(reading, opened, [*linked.values(), controls.wished, tabs, said], js=OPENED, **UNQUEUED)
    for follow in (filled.then, filled.failure):
        follow(None, [said, *linked.values()], None, js=READY, **UNQUEUED)
    waits: dict[str, Any] = {"concurrency_id": "pairs", "concurrency_limit": LOOKS, **UNSEEN}
    judged = start.click(judge, [said, *controls.pair(), *controls.methods], said, **waits)
    judged.then(None, said, None, js=DECIDED, **UNQUEUED)
    for tab in (b for b in page.blocks.values() if isinstance(b, gr.Tab) and b.id in TABS):
        tab.select(None, None, None, js=f"() => {{ window.SpecDemoTabs.opened('{tab.id}'); }}", **UNQUEUED)
    changes = [c.change for c in linked.values()]
    gr.on(changes, None, list(linked.values()), None, js=CHANGED, trigger_mode="multiple", **UNQUEUED)


def start_flags(flags: dict[str, Any], pair: PairChoice, lanes: Sequence[str], store: PairStore) -> dict[str, Any]:
    """Decide whether a link with ``autorun`` starts: it must not make a person's own machine download models, nor
    spend what somebody pays for on a server.
    """
    notice: str | None = None
    report = None
    if server_of(pair.pair) is not None or any(not runs_here(name) for name in lanes if name != NO_LANE):
        notice = ON_A_SERVER
    else:
        try:
            request = pair_request(pair)
            report = None if is_public() or store.find(request) else store.look(request)
        except SpecDemoError as error:
            notice = f"autorun is ignored: {error}"
    if report and not report.ok:
        notice = f"autorun is ignored: {report.conclusion}"
    elif report and report.download:
        notice = f"autorun waits for you: {gigabytes(report.download)} must be downloaded; press Run."
    return {**flags, "start": notice is None, "notices": [*flags["notices"], *filter(None, [notice])]}
