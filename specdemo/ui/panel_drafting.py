"""How the panel drafts: measurements take the settings of its first lane that does."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr

from specdemo.errors import SettingsError, SpecDemoError
from specdemo.settings import Settings
from specdemo.ui.controls import SHARED_INPUTS, Controls, race_settings, split
from specdemo.ui.lane_controls import ACCEPTANCE_LABELS, LANE_INPUTS, METHODS
from specdemo.ui.quiet import QUIET

NO_LANE_DRAFTS = "no lane drafts in a way that could be measured; set one to “Speculative: …” in the panel."


def drafting(lanes: Sequence[Any]) -> Settings:
    """The settings of the first lane that drafts with our own loop, from what :func:`race_settings` takes.

    Raises:
        SpecDemoError: none does, or the panel holds what cannot run.
    """
    found = next((s for s in race_settings(*lanes) if s.strategy == "speculative"), None)
    if found is None:
        raise SettingsError("lanes", NO_LANE_DRAFTS)
    return found


def say_what_drafts(controls: Controls, note: gr.HTML, without: Sequence[str] = ()) -> None:
    """Keep ``note`` saying which of the panel's lanes that is.

    Args:
        controls: of the panel.
        note: the line.
        without: drafters that the tab cannot use, which the note says.
    """
    inputs = controls.inputs()

    def say(*values: Any) -> str:
        _, _, lanes = split(values)
        methods = lanes[SHARED_INPUTS::LANE_INPUTS]
        number = next((n for n, m in enumerate(methods, start=1) if _drafts(m)), None)
        if number is None:
            return f"<p>{escape(NO_LANE_DRAFTS[0].upper() + NO_LANE_DRAFTS[1:])}</p>"
        try:
            settings = drafting(lanes)
        except SpecDemoError as error:
            return f"<p>{escape(str(error))}</p>"
        how = METHODS[methods[number - 1]][0].removeprefix("Speculative: ")
        if settings.drafter in without:
            return f"<p>Lane {number} of the panel drafts by {how}, which does not work here; choose another.</p>"
        rule = ACCEPTANCE_LABELS[settings.acceptance]
        warmth = "greedy" if settings.greedy else f"temperature {settings.temperature:g}"
        return f"<p>Drafts as lane {number} of the panel does: {how}, {rule}, {warmth}.</p>"

    chosen = [c for lane in controls.lanes for c in (lane.method, lane.acceptance)]
    gr.on([c.change for c in (*chosen, controls.temperature)], say, inputs, note, **QUIET)
    note.value = say(*(c.value for c in inputs))


def _drafts(method: str) -> bool:
    return method in METHODS and METHODS[method][1]["strategy"] == "speculative"
