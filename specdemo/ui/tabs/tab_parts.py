"""What all tabs have in common: buttons that start and stop a job, and the line that says how far it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import gradio as gr

from specdemo.errors import SettingsError, SpecDemoError
from specdemo.settings import Settings
from specdemo.ui.event_options import UNQUEUED, UNSEEN
from specdemo.ui.jobs.job import WAITING, Job, JobState
from specdemo.ui.jobs.limits import limits
from specdemo.ui.jobs.queue import visitor_of
from specdemo.ui.jobs.runner import JobRunner
from specdemo.ui.page_words import in_page_words
from specdemo.ui.panel.controls import Controls
from specdemo.ui.state.methods import server_of
from specdemo.ui.state.request import whole

REFUSED = "{refused}"
"""Stands in what shows that a job did not begin; ``notices.js`` has the sentence that says why."""
Updates = dict[Any, Any]
"""New values by component."""
Show = Callable[[Iterator[JobState], str], Iterator[Updates]]
"""What the page shows of a job's states, one update or more for each; also takes the visitor's session."""


@dataclass(frozen=True, slots=True)
class Start:
    """A button that starts a job.

    Attributes:
        button: to press.
        job: makes the job of what the page asks for and the values of ``more``, or of these alone; raises
            SpecDemoError where they cannot be run.
        show: shows it.
        more: components beside the controls that the job is made of.
        of_page: whether the job is made of the controls at all.
        begin: what else changes as it begins, for the visitor's session.
    """

    button: gr.Button
    job: Callable[..., Job]
    show: Show
    more: Sequence[Any] = ()
    of_page: bool = True
    begin: Callable[[str], Updates] = lambda session: {}


def connect(
    runner: JobRunner,
    controls: Controls,
    tab: str,
    starts: Sequence[Start],
    outputs: Sequence[Any],
    *,
    more: Sequence[Any] = (),
    end: Callable[[str], Updates] = lambda session: {},
    on_servers: bool = True,
) -> None:
    """Wire what starts something on a tab, and Stop, which is free while anything of the visitor runs.

    Args:
        runner: runs what is started.
        controls: have Stop and the signals, and collect the events after which the buttons are free again.
        tab: whose buttons they are; one job of each tab runs at a time.
        starts: the buttons that start something, and what.
        outputs: what the jobs are shown in; the first shows how far they are.
        more: further components that change as a job begins and ends.
        end: their new values as a job has ended, for a session.
        on_servers: whether servers can do it; else the buttons are dimmed while one is chosen.
    """
    signals, stop, inputs = controls.signals, controls.stop, controls.inputs(tab)
    models = None if on_servers else controls["pair"]
    buttons = [start.button for start in starts]
    free = [*buttons, stop, *more]

    def buttons_of(session: str, pair: str | None = None) -> Updates:
        free = not signals.running(session, tab) and server_of(pair) is None
        return {button: gr.update(interactive=free) for button in buttons}

    def prepare(start: Start) -> Callable[[gr.Request], Updates]:
        def prepared(request: gr.Request) -> Updates:
            signals.arm(request.session_hash or "", tab)
            shown = next(start.show(iter([JobState("loading", WAITING)]), request.session_hash or ""))
            running = {**buttons_of(request.session_hash or ""), stop: gr.update(interactive=True)}
            return {**shown, **running, **start.begin(request.session_hash or "")}

        return prepared

    def execute(start: Start) -> Callable[..., Iterator[Updates]]:
        def states(request: gr.Request, values: Sequence[Any]) -> Generator[JobState]:
            try:
                page = [controls.request(values[: len(inputs)], tab)] if start.of_page else []
                job = start.job(*page, *values[len(inputs) :] if start.of_page else values)
            except SpecDemoError as error:
                yield JobState("error", str(error))
                return
            signal = signals.signal(request.session_hash or "", tab)
            yield from runner.run(job, visitor_of(request), signal)

        def executed(request: gr.Request, *values: Any) -> Iterator[Updates]:
            with closing(states(request, values)) as found:
                said = (replace(s, message=in_page_words(s.message)) if s.phase == "error" else s for s in found)
                yield from start.show(said, request.session_hash or "")

        return executed

    def refusal(start: Start) -> str:
        """Shows that a job did not begin, in the browser alone: the server may be out of reach."""
        shown = next(start.show(iter([JobState("error", REFUSED)]), ""))
        return f"() => SpecDemoNotices.refused({json.dumps([shown.get(c, gr.skip()) for c in outputs])})"

    def over(request: gr.Request, *pair: str) -> Updates:
        session = request.session_hash or ""
        signals.end(session, tab)
        return {
            **buttons_of(session, *pair),
            stop: gr.update(interactive=signals.running(session)),
            **end(session),
        }

    def follow(request: gr.Request, pair: str) -> Updates:
        return buttons_of(request.session_hash or "", pair)

    for start in starts:
        prepared = start.button.click(prepare(start), None, [*outputs, *free], trigger_mode="once", **UNQUEUED)
        # Jobs wait in queues of our own, which tell where one stands and hear Stop; Gradio's does neither.
        read = [*(inputs if start.of_page else ()), *start.more]
        done = prepared.then(execute(start), read, list(outputs), concurrency_limit=None, **UNSEEN)
        # What goes wrong in a job ends as a message of its own; this is an event that could not be sent or queued.
        # Gradio's ``then`` follows only on what went well.
        refused = done.failure(None, None, list(outputs), js=refusal(start), **UNQUEUED)
        controls.ended.extend(event.then(over, models, free, **UNQUEUED) for event in (done, refused))
    if models is not None:
        models.change(follow, models, buttons, **UNQUEUED)


def state_line(state: JobState) -> str:
    """The line under the buttons, with a bar while it moves."""
    bar = f'<span class="bar"><b style="width:{100 * state.fraction:.0f}%"></b></span>' if not state.ended else ""
    text = f"<p>{escape(state.message)}</p>{bar}"
    return f'<div class="job-state" data-phase="{state.phase}" role="status">{text}</div>'


def bounded(field: str, value: float | None, most: int, *, least: int = 1) -> int:
    """
    Raises:
        SettingsError: no whole number from ``least`` to ``most``; names the field.
    """
    number = whole(field, value)
    if not isinstance(number, int) or not least <= number <= most:
        raise SettingsError(field, f"must be a whole number from {least} to {most:,}, not {number!r:.80}.")
    return number


def check_length(settings: Settings) -> None:
    """Whether the panel's length can be measured: speeds begin after the first token, which is the prefill's.

    Raises:
        SettingsError: it is too short or too long.
    """
    bounded("length", settings.max_new_tokens, limits().tokens, least=2)
