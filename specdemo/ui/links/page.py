"""Links on the page: read when it opens, written by the browser as controls change, copied by a button."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from specdemo.errors import SpecDemoError
from specdemo.models.preflight import gigabytes
from specdemo.models.request import is_public
from specdemo.runs.store import PairStore
from specdemo.ui.event_options import QUIET, UNSEEN
from specdemo.ui.links.fields import METHOD_FIELDS, TABS, Field, link_fields, table
from specdemo.ui.links.links import LONGEST_QUERY, from_query
from specdemo.ui.panel.controls import FIRST_LANES, Controls
from specdemo.ui.panel.lane_controls import NO_LANE, method_choices, wish_of
from specdemo.ui.panel.pair_controls import NONE, has_draft, pair_request
from specdemo.ui.panel.pair_loading import LOOKS
from specdemo.ui.panel.server_choice import server_of
from specdemo.ui.tabs.losslessness import drafters_of, rules_of
from specdemo.view.export import script_json

WEB = Path(__file__).parents[1] / "web"
CHANGED = "(...values) => { window.SpecDemoLinks.changed(values); }"
READY = "(said, ...values) => { window.SpecDemoLinks.ready(said, values); }"
TOLD = "(said) => { window.SpecDemoLinks.told(said); }"


def link_head() -> str:
    """For the page's head: the table of links, and the scripts that need it."""
    shared = script_json({**table(), "longest": LONGEST_QUERY})
    scripts = [f"window.SpecDemoLinkTable = {shared};"]
    scripts += [(WEB / name).read_text(encoding="utf-8") for name in ("links.js", "talk.js")]
    return "".join(f"<script>{script}</script>" for script in scripts)


def link_css() -> str:
    """Styles of the notices, and of the talk view."""
    return (WEB / "talk.css").read_text(encoding="utf-8")


def connect_links(page: gr.Blocks, controls: Controls, tabs: gr.Tabs, store: PairStore) -> None:
    """Read the page's link when it opens, then write every change into the address.

    The order is what makes the page show exactly what the link says: couplings between controls act on a person's
    input only, and nothing is written before all values have arrived.
    """
    said = gr.JSON(value=None, visible=False, elem_id="link-said")
    linked = linked_controls(page)
    components = [linked[f.name] for f in link_fields() if f.element]

    methods = [lane.method for lane in controls.lanes]

    def read_methods(request: gr.Request) -> list[Any]:
        values, _ = from_query(dict(request.query_params))
        wished = [wish_of(values[name], server_of(values["pair"])) for name in METHOD_FIELDS]
        return [*_methods(values), gr.skip() if wished == list(FIRST_LANES) else wished]

    def read(request: gr.Request) -> list[Any]:
        values, notices = from_query(dict(request.query_params))
        page_values = {f.name: values[f.name] for f in link_fields() if not f.element}
        flags = {"page": page_values, "notices": notices, "start": False}
        chosen = gr.skip() if values["tab"] == TABS[0] else gr.Tabs(selected=values["tab"])
        return [*_updates(values), chosen, flags]

    def narrow(request: gr.Request) -> list[Any]:
        return _choices(from_query(dict(request.query_params))[0])

    def judge(flags: dict[str, Any], *pair: Any) -> Any:
        return start_flags(flags, pair, store) if flags["page"]["autorun"] else gr.skip()

    # Controls change one by one and tell others on the way; Gradio refuses what is no choice at that moment.
    widened = page.load(read_methods, None, [*methods, controls.wished], **QUIET)
    filled = widened.then(read, None, [*components, tabs, said], **QUIET)
    loaded = filled.then(narrow, None, methods, **QUIET)
    ready = loaded.then(None, [said, *components], None, js=READY, **QUIET)
    waits: dict[str, Any] = {"concurrency_id": "pairs", "concurrency_limit": LOOKS, **UNSEEN}
    judged = ready.then(judge, [said, *controls.pair.inputs()], said, **waits)
    judged.then(None, said, None, js=TOLD, **QUIET)
    for tab in (b for b in page.blocks.values() if isinstance(b, gr.Tab) and b.id in TABS):
        tab.select(None, None, None, js=f"() => {{ window.SpecDemoLinks.set('tab', '{tab.id}'); }}", **QUIET)
    gr.on([c.change for c in components], None, components, None, js=CHANGED, trigger_mode="multiple", **QUIET)


def linked_controls(page: gr.Blocks) -> dict[str, Any]:
    """The page's controls by the names of their fields."""
    found = {block.elem_id: block for block in page.blocks.values() if block.elem_id}
    return {f.name: found[f.element] for f in link_fields() if f.element}


def _methods(values: dict[str, Any]) -> list[Any]:
    """What each lane's method is told. All are choices for now: what is still as it was must be one too."""
    return [
        gr.skip() if values[f.name] == f.default else gr.update(choices=_offered(f), value=values[f.name])
        for f in _method_fields()
    ]


def _choices(values: dict[str, Any]) -> list[Any]:
    """The choices that the pair leaves to each lane, once all values are there."""
    drafts = has_draft(values["pair"], values["target"], values["draft"])
    quantized = values["target-weights"] != NONE
    server = server_of(values["pair"])
    if drafts and not quantized and server is None and all(values[f.name] == f.default for f in _method_fields()):
        return [gr.skip() for _ in METHOD_FIELDS]
    offered = [_offered(f, has_draft=drafts, quantized=quantized, server=server) for f in _method_fields()]
    return [gr.update(choices=choices) for choices in offered]


def _method_fields() -> list[Field]:
    return [f for f in link_fields() if f.name in METHOD_FIELDS]


def _offered(
    field: Field, *, has_draft: bool = True, quantized: bool = True, server: str | None = None
) -> list[tuple[str, str]]:
    optional = NO_LANE in field.choices
    return method_choices(has_draft=has_draft, quantized=quantized, optional=optional, server=server)


def _updates(values: dict[str, Any]) -> list[Any]:
    """What each control is told; nothing where it is as it was, so that whoever was quicker keeps their choice."""
    first, _ = from_query({})
    drafts = has_draft(values["pair"], values["target"], values["draft"])
    updates = []
    for name in (f.name for f in link_fields() if f.element):
        if name in METHOD_FIELDS or values[name] == first[name]:
            updates.append(gr.skip())
        elif name == "losslessness.rule":
            updates.append(gr.update(choices=rules_of(values["losslessness.mode"]), value=values[name]))
        elif name == "losslessness.drafter":
            updates.append(gr.update(choices=drafters_of(has_model=drafts), value=values[name]))
        else:
            updates.append(values[name])
    return updates


def start_flags(flags: dict[str, Any], pair: tuple[Any, ...], store: PairStore) -> dict[str, Any]:
    """Whether to start at once: a link that somebody follows must not fetch gigabytes to their own machine.

    Args:
        flags: as the page got them.
        pair: the values of its controls.
        store: knows what is here.
    """
    if server_of(pair[0]) is not None:  # nothing is fetched to run there
        return {**flags, "start": True}
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
