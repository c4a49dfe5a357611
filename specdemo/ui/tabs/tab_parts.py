"""What the tabs that measure have in common: a line that says how far it is, and two buttons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from html import escape
from typing import Any

import gradio as gr

from specdemo.errors import SettingsError, SpecDemoError
from specdemo.models.request import PairRequest
from specdemo.runs.store import Load, PairStore
from specdemo.ui.event_options import QUIET, UNSEEN
from specdemo.ui.jobs.queue import Turns, visitor_of
from specdemo.ui.jobs.race import BUSY
from specdemo.ui.jobs.server_jobs import place_of
from specdemo.ui.jobs.stops import Stop, Stops
from specdemo.ui.panel.lane_controls import whole

AT_ONCE = 2
"""Visitors of a tab whose measurements take turns in the models' thread where it is one's own; others wait."""

Job = tuple[PairRequest | None, Callable[[Executor, Load | None, Stop], Iterator[dict[Any, Any]]]]
"""The pair that is needed, None if a server does the work, and the updates that follow, from the thread to work in
and the pair's load."""
Start = Callable[..., Job]
STOPPING = """
() => {
  const line = document.querySelector("#%s .job-state:has(.bar) p");
  if (line) line.textContent = "Stopping…";
  return [];
}
"""


def busy(running: bool, *starts: gr.Button) -> list[Any]:
    """Updates for the buttons that start something, one if none are named, and the one that stops it."""
    return [gr.update(interactive=not running) for _ in starts or (None,)] + [gr.update(interactive=running)]


def state_line(phase: str, message: str, fraction: float = 0.0) -> str:
    """The line under the buttons, with a bar while it moves; ``fraction`` from 0 to 1."""
    moving = phase in ("loading", "running")
    bar = f'<span class="bar"><b style="width:{100 * fraction:.0f}%"></b></span>' if moving else ""
    return f'<div class="job-state" data-phase="{phase}" role="status"><p>{escape(message)}</p>{bar}</div>'


def stopping(status: str) -> str:
    """Script that acknowledges Stop in the line with this id at once.

    Not an update by the server, which could arrive after the last one of what was stopped and stay.
    """
    return STOPPING % status


def connect(
    starts: Sequence[tuple[gr.Button, Start]],
    stop: gr.Button,
    status: gr.HTML,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    store: PairStore,
    line: Turns,
    away: Turns | None = None,
) -> Stops:
    """Wire a tab's buttons; returns the visitors' stop signals.

    Args:
        starts: the buttons that start something, each with the job that it makes of the values of ``inputs``.
        stop: the button that ends it.
        status: the line that says how far it is; its id names the queue too.
        inputs, outputs: of all that is started.
        store: has the pairs.
        line: where all that is started takes its turn.
        away: the same for what runs on a server, where a tab can do that.
    """
    stops = Stops()
    buttons = [start for start, _ in starts]

    def prepare(request: gr.Request) -> list[Any]:
        stops.arm(request.session_hash or "")
        return [state_line("loading", "Waiting for a turn…"), *busy(True, *buttons)]

    def end(request: gr.Request) -> None:
        stops.stop(request.session_hash or "")

    def told(begin: Start) -> Callable[..., Iterator[dict[Any, Any]]]:
        def execute(request: gr.Request, *values: Any) -> Iterator[dict[Any, Any]]:
            signal = stops.signal(request.session_hash or "")
            try:
                wanted, work = begin(*values)
                with store.using(wanted) if wanted else nullcontext() as load:
                    thread, queue = place_of([load], store, line, away or line)
                    with queue.place(visitor_of(request)) as place:
                        for text in place.wait(signal, [load]):
                            yield {status: state_line("loading", text)}
                        yield from work(thread, load, signal)
            except SpecDemoError as error:
                yield {status: state_line("error", str(error))}

        return execute

    for start, begin in starts:
        prepared = start.click(prepare, None, [status, *buttons, stop], trigger_mode="once", **QUIET)
        done = prepared.then(
            told(begin),
            list(inputs),
            [status, *outputs],
            concurrency_id=status.elem_id,
            concurrency_limit=None,
            **UNSEEN,
        )
        # What can go wrong ends as a message of its own; this is the queue refusing one more.
        done.failure(lambda: state_line("error", BUSY), None, status, **QUIET)
        done.then(lambda: busy(False, *buttons), None, [*buttons, stop], **QUIET)
    stop.click(end, None, None, js=stopping(status.elem_id), **QUIET)
    return stops


def bounded(field: str, value: float | None, most: int, *, least: int = 1) -> int:
    """
    Raises:
        SettingsError: no whole number from ``least`` to ``most``; names the field.
    """
    number = whole(field, value)
    if not isinstance(number, int) or not least <= number <= most:
        raise SettingsError(field, f"must be a whole number from {least} to {most:,}, not {number!r}.")
    return number
