"""What a tab says before anything starts: what it will do, how many runs that is, and about how long they take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from specdemo.drafters import DRAFTERS
from specdemo.errors import PairError, SpecDemoError
from specdemo.servers.catalog import label_of
from specdemo.settings import ACCEPTANCE_RULES, Settings
from specdemo.ui.event_options import UNQUEUED
from specdemo.ui.jobs.durations import Paces
from specdemo.ui.jobs.job import Job
from specdemo.ui.jobs.limits import limits
from specdemo.ui.jobs.measuring import MeasureJob
from specdemo.ui.page_words import in_page_words
from specdemo.ui.panel.controls import Controls
from specdemo.ui.state.methods import needs_models
from specdemo.ui.state.request import PanelLane, PanelRequest
from specdemo.ui.state.state import TABS


@dataclass(frozen=True, slots=True)
class Announcement:
    """A tab's note, and what it is made of.

    Attributes:
        note: where it is said.
        plan: what the page asks for, as a sentence and a job; raises SpecDemoError where that cannot be run.
        on_servers: whether a server can run it.
        file: with prompts; what is in it is read when the job starts.
    """

    note: gr.HTML
    plan: Callable[[PanelRequest], tuple[str, Job]]
    on_servers: bool = False
    file: gr.File | None = None


def announce(
    controls: Controls,
    announcements: Sequence[Announcement],
    paces: Paces,
    view: gr.HTML,
    idle: Callable[[PanelRequest, str], Any],
) -> None:
    """Keep the page saying what its buttons would do, by one event and one look at the page for every change.

    Args:
        controls: of the page; the panel's own note says what is wrong in it.
        announcements: of the tabs that say more.
        paces: how fast pairs were.
        view: of the race.
        idle: its value before there is a race, by request and session; a skip where something else is shown.
    """
    read = controls.inputs(*TABS)
    files = [each.file for each in announcements if each.file is not None]
    notes = [controls.note, *(each.note for each in announcements)]

    def say(request: gr.Request, *sent: Any) -> list[Any]:
        found, texts = said(sent)
        return [gr.skip() if found is None else idle(found, request.session_hash or ""), *texts]

    def said(sent: Sequence[Any]) -> tuple[PanelRequest | None, list[str]]:
        values = [_as_sent(component, value) for component, value in zip(read, sent, strict=False)]
        given = {id(file): bool(value) for file, value in zip(files, sent[len(read) :], strict=True)}
        try:
            found = controls.request(values, *TABS)
        except SpecDemoError as error:
            return None, [_refused(error)] * len(notes)
        return found, ["", *(_note(each, found, given.get(id(each.file), False), paces) for each in announcements)]

    # Values are taken as they are sent: while another pair changes a lane's choices, its method may not be one of
    # them, which Gradio would answer with an error.
    raw: dict[str, Any] = {**UNQUEUED, "preprocess": False}
    # links.js presses it once for changes that come together; a text is taken when it is left.
    look = gr.Button(visible="hidden", elem_id="panel-look")
    left = [c.blur for c in read if isinstance(c, gr.Textbox)]
    events = [look.click, *left, *(file.change for file in files)]
    gr.on(events, say, [*read, *files], [view, *notes], trigger_mode="always_last", **raw)
    for note, text in zip(notes, said([c.value for c in (*read, *files)])[1], strict=True):
        note.value = text


def _as_sent(component: gr.components.Component, value: Any) -> Any:
    """A value as the plan may read it."""
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


def _note(each: Announcement, request: PanelRequest, has_file: bool, paces: Paces) -> str:
    if has_file:
        return "<p>The prompts of a file are counted when it starts.</p>"
    try:
        if request.server is not None and not each.on_servers:
            raise PairError(needs_models(request.server))
        text, job = each.plan(request)
    except SpecDemoError as error:
        return _refused(error)
    return f"<p>{escape(text)} {escape(_time(job, paces))}</p>"


def _refused(error: SpecDemoError) -> str:
    return f'<p class="refused">{escape(in_page_words(str(error)))}</p>'


def _time(job: Job, paces: Paces) -> str:
    if isinstance(job, MeasureJob) and job.budget is not None:  # which the sentence says
        return ""
    pair = job.pairs[0]
    seconds = None if pair is None else paces.seconds(pair.name, job.work)
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


def drafts_as(lane: PanelLane, settings: Settings) -> str:
    """Which lane of the panel a measurement takes its settings from, in batches perhaps with another drafter."""
    warmth = "greedy" if settings.greedy else f"temperature {settings.temperature:g}"
    if settings.server is not None:
        return f"Measures {label_of(settings.server)} as it was started, {warmth}: its γ is its own."
    how, own = DRAFTERS[settings.drafter].label, DRAFTERS[lane.settings.drafter].label
    how += "" if how == own else f" ({own} has no batch)"
    rule = ACCEPTANCE_RULES[settings.acceptance]
    return f"Drafts as lane {lane.number} of the panel does: {how}, {rule}, {warmth}."
