"""What all tabs have in common: buttons that start and stop a job, and the line that says how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr
from gradio.events import Dependency

from specdemo.errors import SettingsError, SpecDemoError
from specdemo.ui.event_options import QUIET, UNSEEN
from specdemo.ui.jobs.job import WAITING, Job, JobState
from specdemo.ui.jobs.queue import visitor_of
from specdemo.ui.jobs.runner import JobRunner
from specdemo.ui.jobs.stops import StopSignals
from specdemo.ui.panel.lane_controls import whole
from specdemo.ui.panel.server_choice import server_of

BUSY = "The run could not begin: too many are waiting, or a value is not valid. Check the panel, then try again."
# Not an update by the server, which could arrive after the last one of what was stopped and stay.
STOPPING = """
(...values) => {
  const line = document.querySelector("#%s .job-state:has(.bar) p");
  if (line) line.textContent = "Stopping…";
  return values;
}
"""
Updates = dict[Any, Any]
"""New values by component."""
Show = Callable[[Iterator[JobState], str], Iterator[Updates]]
"""What the page shows of a job's states, one update or more for each; also takes the visitor's session."""


@dataclass(frozen=True, slots=True)
class Start:
    """A button that starts a job.

    Attributes:
        button: to press.
        job: makes the job of the values of the inputs; raises SpecDemoError where they cannot be run.
        show: shows it.
    """

    button: gr.Button
    job: Callable[..., Job]
    show: Show


def connect(
    runner: JobRunner,
    starts: Sequence[Start],
    stop: gr.Button,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    more: Sequence[Any] = (),
    begin: Callable[[str], Updates] = lambda session: {},
    end: Callable[[str], Updates] = lambda session: {},
    stop_inputs: Sequence[Any] = (),
    stopped: Callable[[str, Sequence[Any]], object] = lambda session, values: None,
    models: gr.Dropdown | None = None,
) -> tuple[StopSignals, list[Dependency]]:
    """Wire the buttons of a tab.

    Args:
        runner: runs what is started.
        starts: the buttons that start something, and what.
        stop: the button that ends it.
        inputs: what the jobs are made of.
        outputs: what the jobs are shown in; the first shows how far they are.
        more: further components that change as a job begins and ends.
        begin, end: their new values, for a session.
        stop_inputs, stopped: what else happens when a session presses Stop.
        models: the control of the pair, for what servers cannot do: while it names one, the buttons are dimmed.

    Returns:
        The visitors' stop signals, and the events after which the buttons are free again.
    """
    signals = StopSignals()
    buttons = [start.button for start in starts]
    free = [*buttons, stop, *more]

    def buttons_of(session: str, pair: str | None = None) -> Updates:
        free = not signals.running(session) and server_of(pair) is None
        return {button: gr.update(interactive=free) for button in buttons}

    def prepare(start: Start) -> Callable[[gr.Request], Updates]:
        def prepared(request: gr.Request) -> Updates:
            signals.arm(request.session_hash or "")
            shown = next(start.show(iter([JobState("loading", WAITING)]), request.session_hash or ""))
            running = {**buttons_of(request.session_hash or ""), stop: gr.update(interactive=True)}
            return {**shown, **running, **begin(request.session_hash or "")}

        return prepared

    def execute(start: Start) -> Callable[..., Iterator[Updates]]:
        def states(request: gr.Request, values: Sequence[Any]) -> Iterator[JobState]:
            try:
                job = start.job(*values)
            except SpecDemoError as error:
                yield JobState("error", str(error))
                return
            signal = signals.signal(request.session_hash or "")
            yield from runner.run(job, visitor_of(request), signal)

        def executed(request: gr.Request, *values: Any) -> Iterator[Updates]:
            with closing(states(request, values)) as found:
                yield from start.show(found, request.session_hash or "")

        return executed

    def refuse(start: Start) -> Callable[[gr.Request], Updates]:
        def refused(request: gr.Request) -> Updates:
            return next(start.show(iter([JobState("error", BUSY)]), request.session_hash or ""))

        return refused

    def over(request: gr.Request, *pair: str) -> Updates:
        session = request.session_hash or ""
        signals.forget(session)
        return {**buttons_of(session, *pair), stop: gr.update(interactive=False), **end(session)}

    def follow(request: gr.Request, pair: str) -> Updates:
        return buttons_of(request.session_hash or "", pair)

    def halt(request: gr.Request, *values: Any) -> None:
        signals.stop(request.session_hash or "")
        stopped(request.session_hash or "", values)

    ended = []
    for start in starts:
        prepared = start.button.click(prepare(start), None, [outputs[0], *free], trigger_mode="once", **QUIET)
        # Jobs wait in queues of our own, which tell where one stands and hear Stop; Gradio's does neither.
        done = prepared.then(execute(start), list(inputs), list(outputs), concurrency_limit=None, **UNSEEN)
        # What goes wrong in a job ends as a message of its own; this is Gradio's queue refusing one more event.
        done.failure(refuse(start), None, outputs[0], **QUIET)
        ended.append(done.then(over, models, free, **QUIET))
    if models is not None:
        models.change(follow, models, buttons, **QUIET)
    stop.click(halt, list(stop_inputs) or None, None, js=STOPPING % outputs[0].elem_id, **QUIET)
    return signals, ended


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
