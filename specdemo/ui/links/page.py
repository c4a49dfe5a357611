"""Links on the page: read when it opens, written by the browser as controls change, copied by a button."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from specdemo.drafters import PARTS
from specdemo.errors import SpecDemoError
from specdemo.models.preflight import gigabytes
from specdemo.models.request import is_public
from specdemo.runs.store import PairStore
from specdemo.ui.event_options import QUIET, UNSEEN
from specdemo.ui.jobs.session_recordings import SessionRecordings
from specdemo.ui.links.fields import METHOD_FIELDS, Field, link_fields, race_fields, table
from specdemo.ui.links.from_recording import query_of
from specdemo.ui.links.links import choices_left, from_query
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.methods import (
    FIRST_LANES,
    NO_LANE,
    method_choices,
    methods_on,
    nearest_method,
    runs_here,
    wish_of,
)
from specdemo.ui.panel.pair_controls import pair_request
from specdemo.ui.panel.pair_loading import LOOKS
from specdemo.ui.panel.run_row import TABS
from specdemo.ui.panel.server_choice import server_of
from specdemo.ui.tabs.recordings_panel import GONE
from specdemo.view.export import script_json

CHOSEN = ("pair", "target", "draft", "target-weights")
"""The fields that decide which methods there are."""
WEB = Path(__file__).parents[1] / "web"
SCRIPTS = ("notices.js", "links.js", "panel.js", "run-row.js", "tabs.js", "caption.js", "talk.js")
"""In the order in which they must be loaded."""
ON_A_SERVER = "autorun waits for you: this link runs on a server; press Run."
OPENED = "() => window.SpecDemoLinks.opened"
OPENED_AND = "(_, ...others) => [window.SpecDemoLinks.opened, ...others]"
CHANGED = "(...values) => { window.SpecDemoLinks.changed(values); }"
MINE = "() => window.SpecDemoLinks.mine()"
READY = "(said, ...values) => { window.SpecDemoLinks.ready(said, values); }"
TOLD = "(said) => { window.SpecDemoLinks.told(said); }"


def link_head() -> str:
    """For the page's head: the table of links, and the scripts that need it."""
    scripts = [f"window.SpecDemoLinkTable = {script_json(table())};"]
    scripts += [(WEB / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return "".join(f"<script>{script}</script>" for script in scripts)


def link_css() -> str:
    """Styles of the notices, and of the talk view."""
    return (WEB / "talk.css").read_text(encoding="utf-8")


def connect_links(page: gr.Blocks, controls: Controls, tabs: gr.Tabs, store: PairStore) -> None:
    """Read the page's link when it opens, then write every change into the address.

    The order makes the page show exactly what the link says: couplings between controls act on a person's input
    only, and nothing is written before all values have arrived.
    """
    opened = gr.JSON(value=None, visible=False, elem_id="link-opened")
    said = gr.JSON(value=None, visible=False, elem_id="link-said")
    components = list(linked_controls(page).values())
    methods = [lane.method for lane in controls.lanes]

    def read_methods(query: Any) -> list[Any]:
        values, _ = from_query(_texts(query))
        wished = [wish_of(values[name], server_of(values["pair"])) for name in METHOD_FIELDS]
        return [*_methods(values), gr.skip() if wished == list(FIRST_LANES) else wished]

    def read(query: Any) -> list[Any]:
        values, notices = from_query(_texts(query))
        page_values = {f.name: values[f.name] for f in link_fields() if not f.element}
        flags = {"page": page_values, "notices": notices, "start": False}
        chosen = gr.skip() if values["tab"] == TABS[0] else gr.Tabs(selected=values["tab"])
        return [*_updates(values), chosen, flags]

    def narrow(query: Any, *chosen: Any) -> list[Any]:
        values, _ = from_query(_texts(query))
        return _choices(values, dict(zip(CHOSEN, chosen, strict=True)))

    def judge(flags: dict[str, Any], *chosen: Any) -> Any:
        pair, lanes = chosen[: -len(methods)], chosen[-len(methods) :]
        return start_flags(flags, pair, lanes, store) if flags and flags["page"]["autorun"] else gr.skip()

    # Gradio refuses a value that is not among its control's choices at that moment: so lanes first get all methods
    # as choices, then all controls their values, and then lanes the choices that the pair leaves.
    widened = page.load(read_methods, opened, [*methods, controls.wished], js=OPENED, **QUIET)
    filled = widened.then(read, opened, [*components, tabs, said], js=OPENED, **QUIET)
    # What a person changed while the link was on its way is newer than the link.
    kept = filled.then(None, None, components, js=MINE, **QUIET)
    pair = [linked_controls(page)[name] for name in CHOSEN]
    loaded = kept.then(narrow, [opened, *pair], methods, js=OPENED_AND, **QUIET)
    begins: dict[str, Any] = {"fn": None, "inputs": [said, *components], "outputs": None, "js": READY, **QUIET}
    ready = loaded.then(**begins)
    for event in (widened, filled, loaded):
        event.failure(**begins)
    waits: dict[str, Any] = {"concurrency_id": "pairs", "concurrency_limit": LOOKS, **UNSEEN}
    judged = ready.then(judge, [said, *controls.pair.inputs(), *methods], said, **waits)
    judged.then(None, said, None, js=TOLD, **QUIET)
    for tab in (b for b in page.blocks.values() if isinstance(b, gr.Tab) and b.id in TABS):
        tab.select(None, None, None, js=f"() => {{ window.SpecDemoTabs.opened('{tab.id}'); }}", **QUIET)
    gr.on([c.change for c in components], None, components, None, js=CHANGED, trigger_mode="multiple", **QUIET)


def connect_use(page: gr.Blocks, controls: Controls, use: gr.Button, recordings: SessionRecordings) -> None:
    """Let ``use`` set the panel to what the visitor's current recording ran with."""
    used = gr.JSON(value=None, visible=False, elem_id="used-query")
    found = linked_controls(page)
    shown = {field.name: found[field.name] for field in race_fields()}
    methods = [lane.method for lane in controls.lanes]

    def ask(request: gr.Request) -> dict[str, Any]:
        """The query, and the page's notices: events that wait in no queue have no others."""
        recording = recordings.get(request.session_hash or "")
        if recording is None:
            return {"query": None, "notices": [GONE]}
        query = query_of(recording)
        return {"query": query, "notices": from_query(query)[1]}

    def read_methods(said: Any) -> list[Any]:
        values = _used(said)
        if values is None:
            return [gr.skip()] * (len(methods) + 1)
        wished = [wish_of(values[name], server_of(values["pair"])) for name in METHOD_FIELDS]
        return [*_methods(values, all_of_them=True), wished]

    def read(said: Any) -> list[Any]:
        values = _used(said)
        if values is None:
            return [gr.skip()] * len(shown)
        return [values[name] if name not in METHOD_FIELDS else gr.skip() for name in shown]

    def narrow(said: Any) -> list[Any]:
        values = _used(said)
        if values is None:
            return [gr.skip()] * len(methods)
        return [gr.update(choices=choices_left(f, values)) for f in _method_fields()]

    asked = use.click(ask, None, used, **QUIET)
    widened = asked.then(read_methods, used, [*methods, controls.wished], **QUIET)
    filled = widened.then(read, used, list(shown.values()), **QUIET)
    narrowed = filled.then(narrow, used, methods, **QUIET)
    narrowed.then(None, used, None, js="(said) => { window.SpecDemoPanel.used(said); }", **QUIET)


def _used(said: Any) -> dict[str, Any] | None:
    """The values that a recording's settings give; None where there is no recording."""
    query = said.get("query") if isinstance(said, dict) else None
    return None if query is None else from_query(_texts(query))[0]


def _texts(query: Any) -> dict[str, str]:
    """What can be a query in what a browser sent."""
    return {n: text for n, text in query.items() if isinstance(text, str)} if isinstance(query, dict) else {}


def linked_controls(page: gr.Blocks) -> dict[str, Any]:
    """The page's controls by the names of their fields, in the order of the fields."""
    found = {block.elem_id: block for block in page.blocks.values() if block.elem_id}
    return {f.name: found[f.element] for f in link_fields() if f.element}


def _method_fields() -> list[Field]:
    return [f for f in link_fields() if f.name in METHOD_FIELDS]


def _methods(values: dict[str, Any], *, all_of_them: bool = False) -> list[Any]:
    """Updates of the lanes' methods, with every method as a choice; of those not as at first, or of all."""
    updates = []
    for field in _method_fields():
        choices = method_choices(parts=PARTS, quantized=True, optional=NO_LANE in field.choices)
        value = values[field.name]
        skipped = value == field.default and not all_of_them
        updates.append(gr.skip() if skipped else gr.update(choices=choices, value=value))
    return updates


def _choices(values: dict[str, Any], chosen: dict[str, Any]) -> list[Any]:
    """Updates of the lanes' methods with the choices that the pair leaves; ``chosen``: what names it now.

    Where it is not the link's any more, since a person was quicker, lanes take the methods that are most like the
    link's.
    """
    first, _ = from_query({})
    fields = _method_fields()
    if any(values[name] != now for name, now in chosen.items()):
        server = server_of(chosen["pair"])
        wished = [wish_of(values[f.name], server_of(values["pair"])) for f in fields]
        wanted = wished if server is None else methods_on(server, wished)
        offered = [choices_left(f, {**values, **chosen}) for f in fields]
        return [
            gr.update(choices=choices, value=nearest_method(wish, [name for _, name in choices]))
            for choices, wish in zip(offered, wanted, strict=True)
        ]
    left = [choices_left(f, values) for f in fields]
    if all(values[f.name] == f.default for f in fields) and left == [choices_left(f, first) for f in fields]:
        return [gr.skip() for _ in fields]
    return [gr.update(choices=choices) for choices in left]


def _updates(values: dict[str, Any]) -> list[Any]:
    """Updates of all controls but methods; where a link says nothing, what a person chose meanwhile stays."""
    first, _ = from_query({})
    updates = []
    for field in (f for f in link_fields() if f.element):
        value, choices = values[field.name], choices_left(field, values)
        if field.name in METHOD_FIELDS or value == first[field.name]:
            updates.append(gr.skip())
        else:
            updates.append(value if choices is None else gr.update(choices=choices, value=value))
    return updates


def start_flags(
    flags: dict[str, Any], pair: tuple[Any, ...], lanes: Sequence[str], store: PairStore
) -> dict[str, Any]:
    """Decide whether a link with ``autorun`` starts: it must not make a person's own machine download models, nor
    spend what somebody pays for on a server.

    Args:
        flags: as the page got them.
        pair: the values of the pair's controls.
        lanes: the methods of the lanes.
        store: knows which models are there.
    """
    if server_of(pair[0]) is not None or any(not runs_here(name) for name in lanes if name != NO_LANE):
        return {**flags, "notices": [*flags["notices"], ON_A_SERVER]}
    try:
        request = pair_request(*pair)
        if is_public() or store.find(request):
            return {**flags, "start": True}
        report = store.look(request)
    except SpecDemoError as error:
        return {**flags, "notices": [*flags["notices"], f"autorun is ignored: {error}"]}
    if report.ok and not report.download:
        return {**flags, "start": True}
    waits = f"autorun waits for you: {gigabytes(report.download)} must be downloaded; press Run."
    notice = waits if report.ok else f"autorun is ignored: {report.conclusion}"
    return {**flags, "notices": [*flags["notices"], notice]}
