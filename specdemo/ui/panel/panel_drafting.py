"""The note that says which lane of the panel a measurement takes its settings from."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr

from specdemo.drafters import DRAFTERS
from specdemo.errors import SpecDemoError
from specdemo.servers.catalog import label_of
from specdemo.settings import ACCEPTANCE_RULES
from specdemo.ui.event_options import QUIET
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.request import panel_request
from specdemo.ui.panel.server_choice import needs_models, server_of


def say_what_drafts(
    controls: Controls, note: gr.HTML, without: Sequence[str] = (), *, servers: bool = False
) -> None:
    """Keep ``note`` saying which lane of the panel is measured.

    Args:
        controls: the panel.
        note: where it is said.
        without: names of drafters that the tab cannot use.
        servers: whether the tab can measure a server.
    """
    inputs = controls.inputs()

    def say(*values: Any) -> str:
        return f"<p>{escape(_said(values, without, servers))}</p>"

    chosen = [c for lane in controls.lanes for c in (lane.method, lane.acceptance)]
    # Values are taken as they are sent: while another pair changes a lane's choices, its method may not be one of
    # them, which Gradio would answer with an error. The note is made again once the lanes have followed the pair.
    raw: dict[str, Any] = {**QUIET, "preprocess": False}
    gr.on([c.change for c in (*chosen, controls.temperature)], say, inputs, note, **raw)
    controls.followed.then(say, inputs, note, **raw)
    note.value = say(*(c.value for c in inputs))


def _said(panel: Sequence[Any], without: Sequence[str], servers: bool) -> str:
    server = server_of(panel[0])
    if server is not None and not servers:
        return needs_models(server)
    try:
        lane = panel_request(panel).drafting_lane()
    except SpecDemoError as error:
        text = str(error).removeprefix("lanes: ")
        return text[:1].upper() + text[1:]
    settings = lane.settings
    warmth = "greedy" if settings.greedy else f"temperature {settings.temperature:g}"
    if settings.server is not None:
        return f"Measures {label_of(settings.server)} as it was started, {warmth}: its γ is its own."
    number, how = lane.number, DRAFTERS[settings.drafter].label
    if settings.drafter in without:
        return f"Lane {number} of the panel drafts by {how}, which does not work here; choose another."
    return f"Drafts as lane {number} of the panel does: {how}, {ACCEPTANCE_RULES[settings.acceptance]}, {warmth}."
