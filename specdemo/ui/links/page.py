"""Links on the page: read when it opens, written by the browser as controls change, copied by a button."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from specdemo.errors import SpecDemoError
from specdemo.models.preflight import gigabytes
from specdemo.models.request import is_public
from specdemo.recording import Recording
from specdemo.runs.store import PairStore
from specdemo.ui.event_options import UNQUEUED, UNSEEN
from specdemo.ui.jobs.session_recordings import SessionRecordings
from specdemo.ui.links.links import choices_left, from_query, query_of, table
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.pair_loading import LOOKS
from specdemo.ui.state.methods import NO_LANE, runs_here, server_of, wish_of
from specdemo.ui.state.request import pair_request
from specdemo.ui.state.state import METHOD_PARAMETERS, PAGE, TABS, PairChoice
from specdemo.ui.tabs.recordings_panel import GONE
from specdemo.view.assets import script_of
from specdemo.view.export import script_json

WEB = Path(__file__).parents[1] / "web"
SCRIPTS = ("notices.js", "links.js", "panel.js", "tabs.js", "stage.js", "talk.js")
"""In the order in which they must be loaded."""
ON_A_SERVER = "autorun waits for you: this link runs on a server; press Run."
NO_PROMPT = "This recording does not say its prompt: the panel keeps the one that it has."
BEGIN = "(...values) => { window.SpecDemoLinks.begin(values); }"
OPENED = "() => window.SpecDemoLinks.opened"
READY = "(said, ...values) => { window.SpecDemoLinks.ready(said, values); }"
DECIDED = "(said) => { window.SpecDemoLinks.decided(said); }"
CHANGED = "(...values) => { window.SpecDemoLinks.changed(values); }"
USED = "(said) => { window.SpecDemoPanel.used(said); }"


def link_head() -> str:
    """For the page's head: the table of links, and the scripts that need it."""
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
        return [*updates(linked, values), _wishes(values), chosen, flags]

    def judge(flags: dict[str, Any], *values: Any) -> Any:
        pair, lanes = values[: -len(METHOD_PARAMETERS)], values[-len(METHOD_PARAMETERS) :]
        return start_flags(flags, controls.choice(pair), lanes, store)

    page.load(None, None, list(linked.values()), js=BEGIN, **UNQUEUED)
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


def connect_use(controls: Controls, use: gr.Button, recordings: SessionRecordings) -> None:
    """Let ``use`` set the panel to what the visitor's current recording ran with."""
    used = gr.JSON(value=None, visible=False)
    panel = {name: each for name, each in controls.all().items() if each in controls.inputs()}

    def take_over(request: gr.Request) -> list[Any]:
        """The values, and the page's notices: events that wait in no queue have no others."""
        recording = recordings.get(request.session_hash or "")
        if recording is None:
            return [*(gr.skip() for _ in panel), gr.skip(), {"query": None, "notices": [GONE]}]
        return taken_over(panel, recording)

    event = use.click(take_over, None, [*panel.values(), controls.wished, used], **UNQUEUED)
    event.then(None, used, None, js=USED, **UNQUEUED)


def taken_over(panel: Mapping[str, Any], recording: Recording) -> list[Any]:
    """Updates of the panel's controls to what a recording ran with; its wishes, and what is said."""
    query = query_of(recording)
    values, notices = from_query(query)
    found = dict(zip(panel, updates(panel, values), strict=True))
    if recording.prompt is None:
        found["prompt"] = gr.skip()
        notices.append(NO_PROMPT)
    return [*found.values(), _wishes(values), {"query": query, "notices": notices}]


def updates(controls: Iterable[str], values: Mapping[str, Any]) -> list[Any]:
    """Updates of controls, by parameter, to what a link says, with the choices that its pair leaves."""
    left = {name: choices_left(name, values) for name in controls}
    return [
        values[name] if choices is None else gr.update(choices=choices, value=values[name])
        for name, choices in left.items()
    ]


def _wishes(values: Mapping[str, Any]) -> list[str]:
    return [wish_of(values[name], server_of(values["pair"])) for name in METHOD_PARAMETERS]


def start_flags(flags: dict[str, Any], pair: PairChoice, lanes: Sequence[str], store: PairStore) -> dict[str, Any]:
    """Decide whether a link with ``autorun`` starts: it must not make a person's own machine download models, nor
    spend what somebody pays for on a server.

    Args:
        flags: as the page got them.
        pair: as the panel names it.
        lanes: the methods of the lanes.
        store: knows which models are there.
    """
    if server_of(pair.pair) is not None or any(not runs_here(name) for name in lanes if name != NO_LANE):
        return {**flags, "notices": [*flags["notices"], ON_A_SERVER]}
    try:
        request = pair_request(pair)
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
