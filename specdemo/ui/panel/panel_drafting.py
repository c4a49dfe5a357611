"""How the panel drafts: measurements take the settings of its first lane that does, where its pair is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr

from specdemo.drafters import DRAFTERS
from specdemo.errors import SettingsError, SpecDemoError
from specdemo.servers.catalog import label_of
from specdemo.settings import Settings
from specdemo.ui.event_options import QUIET
from specdemo.ui.panel.controls import SHARED_INPUTS, Controls, race_settings, split
from specdemo.ui.panel.lane_controls import ACCEPTANCE_LABELS, LANE_INPUTS
from specdemo.ui.panel.methods import NO_LANE
from specdemo.ui.panel.pair_controls import INSTEAD
from specdemo.ui.panel.server_choice import server_of

NO_LANE_DRAFTS = "no lane drafts in a way that could be measured; set one to “Speculative: …” in the panel."
NO_LANE_THERE = "no lane of the panel drafts on this server; set one to “Speculative”."


def drafting(panel: Sequence[Any]) -> Settings:
    """The settings of the first lane that drafts with our own loop, or, with a server as pair, on a server.

    Args:
        panel: its values, as :func:`split` takes them.

    Raises:
        SpecDemoError: none does, or the panel holds what cannot run.
    """
    return _first_drafting(panel)[1]


def _first_drafting(panel: Sequence[Any]) -> tuple[int, Settings]:
    """The lane's number, and its settings."""
    pair, _, lanes = split(panel)
    server = server_of(pair[0])
    methods = lanes[SHARED_INPUTS::LANE_INPUTS]
    numbers = [number for number, method in enumerate(methods, start=1) if method != NO_LANE]
    for number, settings in zip(numbers, race_settings(*lanes), strict=True):
        away = settings.engine == "server"
        if settings.strategy == "speculative" and away == (server is not None):
            return number, settings
    raise SettingsError("lanes", NO_LANE_DRAFTS if server is None else NO_LANE_THERE)


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
        return f"{label_of(server)} is a server, and this needs the models here; {INSTEAD}"
    try:
        number, settings = _first_drafting(panel)
    except SpecDemoError as error:
        text = str(error).removeprefix("lanes: ")
        return text[:1].upper() + text[1:]
    warmth = "greedy" if settings.greedy else f"temperature {settings.temperature:g}"
    if settings.server is not None:
        return f"Measures {label_of(settings.server)} as it was started, {warmth}: its γ is its own."
    how = DRAFTERS[settings.drafter].label
    if settings.drafter in without:
        return f"Lane {number} of the panel drafts by {how}, which does not work here; choose another."
    return f"Drafts as lane {number} of the panel does: {how}, {ACCEPTANCE_LABELS[settings.acceptance]}, {warmth}."
