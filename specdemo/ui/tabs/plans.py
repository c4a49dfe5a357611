"""What a tab says before anything starts: what it will do, how many runs that is, and about how long they take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from specdemo.drafters import DRAFTERS
from specdemo.errors import SpecDemoError
from specdemo.servers.catalog import label_of
from specdemo.settings import ACCEPTANCE_RULES, Settings
from specdemo.ui.event_options import QUIET
from specdemo.ui.jobs.limits import limits
from specdemo.ui.jobs.pace import Paces
from specdemo.ui.page_words import in_page_words
from specdemo.ui.panel.controls import Controls
from specdemo.ui.state.request import PanelLane, PanelRequest


@dataclass(frozen=True, slots=True)
class Plan:
    """What a press of the tab's button would do.

    Attributes:
        text: what is run, in a sentence.
        pair: the name of the pair, for its pace; None on a server.
        budget: seconds, where the runs are as many as fit into them.
        plain, drafted: tokens that all runs decode at most, such that a batch counts as so many tokens one by one.
    """

    text: str
    pair: str | None
    plain: float
    drafted: float
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Announcement:
    """A tab's note, and what it is made of.

    Attributes:
        note: where it is said.
        own: the tab's controls.
        plan: makes the plan of the panel's request and the values of ``own``; raises SpecDemoError where they
            cannot be run.
    """

    note: gr.HTML
    own: Sequence[gr.components.Component]
    plan: Callable[..., Plan]


@dataclass(frozen=True, slots=True)
class Idle:
    """What the race shows before there is one.

    Attributes:
        view: where.
        value: of the panel's request and the visitor's session; a skip where something else is shown.
    """

    view: gr.HTML
    value: Callable[[PanelRequest, str], Any]


def announce(controls: Controls, announcements: Sequence[Announcement], paces: Paces, idle: Idle) -> None:
    """Keep the page saying what its buttons would do, by one event and one look at the panel for every change.

    Args:
        controls: of the panel, whose own note says what is wrong in it.
        announcements: of the tabs that say more.
        paces: how fast pairs were.
        idle: the race's view, and its value before there is a race.
    """
    panel = controls.inputs()
    own = [component for each in announcements for component in each.own]
    notes = [controls.note, *(each.note for each in announcements)]

    def say(request: gr.Request, *sent: Any) -> list[Any]:
        found, texts = said(sent)
        lanes = gr.skip() if found is None else idle.value(found, request.session_hash or "")
        return [lanes, *texts]

    def said(sent: Sequence[Any]) -> tuple[PanelRequest | None, list[str]]:
        values = [_as_sent(component, value) for component, value in zip(inputs, sent, strict=True)]
        begin = len(panel)
        try:
            found, wrong = controls.request(values[:begin]), ""
        except SpecDemoError as error:
            found, wrong = None, _refused(error)
        texts = [wrong]
        for each in announcements:
            mine = values[begin : begin + len(each.own)]
            if any(isinstance(c, gr.File) and v for c, v in zip(each.own, sent[begin:], strict=False)):
                texts.append("<p>The prompts of a file are counted when it starts.</p>")
            else:
                texts.append(wrong if found is None else _note(each.plan, found, mine, paces))
            begin += len(each.own)
        return found, texts

    # Values are taken as they are sent: while another pair changes a lane's choices, its method may not be one of
    # them, which Gradio would answer with an error.
    raw: dict[str, Any] = {**QUIET, "preprocess": False}
    inputs = [*panel, *own]
    # links.js presses it once for changes that come together; a text is taken when it is left.
    look = gr.Button(visible="hidden", elem_id="panel-look")
    left = [c.blur for c in inputs if isinstance(c, gr.Textbox)]
    files = [c.change for c in inputs if isinstance(c, gr.File)]
    gr.on([look.click, *left, *files], say, inputs, [idle.view, *notes], trigger_mode="always_last", **raw)
    for note, text in zip(notes, said([c.value for c in inputs])[1], strict=True):
        note.value = text


def _as_sent(component: gr.components.Component, value: Any) -> Any:
    """A value as the plan may read it. A file is not: its path would be whatever a stranger sends."""
    if isinstance(component, gr.File):
        return None
    if isinstance(component, gr.Textbox):
        return value if isinstance(value, str) else ""
    if isinstance(component, gr.Dropdown):
        return f"{value}"
    if isinstance(component, gr.Radio | gr.CheckboxGroup):
        choices = [name for _, name in component.choices]
        if isinstance(component, gr.Radio):
            return value if isinstance(value, str) and value in choices else choices[0]
        return [name for name in value if name in choices] if isinstance(value, list) else []
    return value


def _note(plan: Callable[..., Plan], panel: PanelRequest, own: Sequence[Any], paces: Paces) -> str:
    try:
        found = plan(panel, *own)
    except SpecDemoError as error:
        return _refused(error)
    return f"<p>{escape(found.text)} {escape(_time(found, paces))}</p>"


def _refused(error: SpecDemoError) -> str:
    return f'<p class="refused">{escape(in_page_words(str(error)))}</p>'


def _time(plan: Plan, paces: Paces) -> str:
    if plan.budget is not None:
        return ""
    seconds = None if plan.pair is None else paces.seconds(plan.pair, plan.plain, plan.drafted)
    if seconds is None:
        return "How long they take is known once they have begun."
    most = limits().seconds
    over = "" if most is None or seconds < most else f" A job here may take {most:.0f} s; the rest is left out."
    return f"They take about {_rounded(seconds)} at most.{over}"


def _rounded(seconds: float) -> str:
    """One digit and a half: no more is known."""
    if seconds < 90:
        return f"{max(1, seconds if seconds < 10 else 5 * math.ceil(seconds / 5)):.0f}\u00a0s"
    return f"{seconds / 60:.0f}\u00a0min" if seconds < 5400 else f"{seconds / 3600:.1f}\u00a0h"


def drafts_as(lane: PanelLane, in_place_of: str | None = None) -> str:
    """Which lane of the panel a measurement takes its settings from.

    Args:
        lane: with the drafter that is measured.
        in_place_of: the lane's own drafter, where that has no batch.
    """
    settings = lane.settings
    if settings.server is not None:
        return f"Measures {label_of(settings.server)} as it was started, {_warmth(settings)}: its γ is its own."
    how = DRAFTERS[settings.drafter].label
    if in_place_of is not None:
        how += f" ({DRAFTERS[in_place_of].label} has no batch)"
    rule = ACCEPTANCE_RULES[settings.acceptance]
    return f"Drafts as lane {lane.number} of the panel does: {how}, {rule}, {_warmth(settings)}."


def _warmth(settings: Settings) -> str:
    return "greedy" if settings.greedy else f"temperature {settings.temperature:g}"
